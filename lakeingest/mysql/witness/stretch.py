"""Reads a stretch of the binlog once more: the row images of some tables, up to a number of rows. Pure.

Unlike `rows_in`, a stretch leaves out what the library cannot read, and says so by name in `unread`.
"""

import io
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeingest.core.change import RowKind
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import NO_TABLES, TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import BinlogGone, SchemaChanged, UnsupportedEvent, UnsupportedValue
from lakeingest.mysql.wire import events
from lakeingest.mysql.wire.dml import Reach
from lakeingest.mysql.wire.events import Event, Type
from lakeingest.mysql.wire.grammar import Sign, Watched, not_asked
from lakeingest.mysql.wire.segment_facts import SegmentFacts
from lakeingest.mysql.witness.decoder import Decoder, Transaction
from lakeingest.mysql.witness.gaps import XA_AND_COMPRESSED
from lakeingest.mysql.witness.readable import ReadableRows
from lakeingest.rows import Part

MOST_EVENTS = 100_000  # of one stretch, with those of other tables: they cost time, too
_NOT_READ = (BinlogGone, SchemaChanged, UnsupportedEvent, UnsupportedValue)  # the library or the grammar stops here


@dataclass(frozen=True, slots=True)
class Image:
    """A row image: `place` of its transaction (the file's number, and the position), `at`: where its event begins."""

    place: tuple[int, int]
    at: FilePosition
    kind: RowKind
    committed_at: int
    gtid: str | None
    values: tuple[Any, ...]


@dataclass(slots=True)
class Stretch:
    """The row images in a stretch of the binlog, by table and in order.

    `last`: the place of the last transaction in it; None if there is none. `cut`: the tables that may have more images
    up to there. `columns`: by table, the names of the columns that the images have. `unread`: by table and reason, how
    often something was left out: the images without a column, or an event.
    """

    images: dict[TableId, list[Image]] = field(default_factory=lambda: defaultdict(list))
    columns: dict[TableId, tuple[str, ...]] = field(default_factory=dict)
    last: tuple[int, int] | None = None
    transactions: int = 0
    cut: set[TableId] = field(default_factory=set)
    unread: dict[TableId, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def read_stretch(
    raw_events: Iterable[bytes],
    segment: Segment,
    schemas: Mapping[TableId, TableSchema],
    tables: Collection[TableId],
    most_rows: int,
    waiting: Mapping[TableId, TableSchema] = NO_TABLES,
    reach: Reach = not_asked,
) -> Stretch:
    """The first row images of `tables` in a segment, from the events of a dump that begins at the segment's start.

    The stretch ends with the row event that brings it to `most_rows`. It also ends at an event that this decoder cannot
    read, and then `unread` names the event for each of the tables. `schemas` are all watched tables. SourceAway is
    raised if the events end before that.
    """
    decoder = _Reading(segment, Watched(schemas, waiting, reach), tables, most_rows)
    stretch = decoder.stretch
    try:
        for count, raw in enumerate(raw_events):
            list(decoder.take(raw))  # it yields nothing
            if decoder.is_full or decoder.is_done:
                break
            if count >= MOST_EVENTS and decoder.is_between:
                break
    except _NOT_READ as error:
        stretch.cut.update(tables)
        for table in tables:
            stretch.unread[table][_without_places(error, decoder.at)] += 1
    if decoder.is_full and not decoder.is_between:
        stretch.cut.update(tables)
    for table, images in stretch.images.items():
        unread = decoder.rows.unread.get(table, {})
        stretch.columns[table] = tuple(name for name in schemas[table].names if name not in unread)
        for name, reason in unread.items():
            stretch.unread[table][f"column {name}: {reason}"] += len(images)
    return stretch


class _Reading(Decoder):
    """Decodes events into a `Stretch`, each row event at once."""

    beyond = XA_AND_COMPRESSED

    def __init__(self, segment: Segment, watched: Watched, tables: Collection[TableId], most_rows: int) -> None:
        super().__init__(segment, segment.start, watched, SegmentFacts(), io.BytesIO(), gtids=False)
        self.rows, self.stretch = ReadableRows(watched.schemas), Stretch()
        self._tables, self._rows_left = set(tables), most_rows
        self._names: dict[int, TableId] = {}  # by table id, the tables that the open transaction has named
        self._place, self._gtid = (0, 0), None  # of the open transaction

    @property
    def is_full(self) -> bool:
        """Whether the stretch has as many rows as it may have."""
        return self._rows_left <= 0

    @property
    def is_between(self) -> bool:
        """Whether the last event has ended a transaction."""
        return self._transaction is None

    def _begin(self, event: Event, begins: FilePosition) -> None:
        super()._begin(event, begins)
        if self._transaction is None or self._transaction.skipped_to:
            return
        length = self._transaction.beginning.length
        # MariaDB's GTID event does not say where the transaction ends: see `wire.segment`
        self._place = begins.number, begins.pos + (length or 1)
        self.stretch.last = self._place
        self.stretch.transactions += 1
        self.rows.is_mariadb = self._is_mariadb

    def _buffer(self, event: Event, begins: FilePosition) -> None:
        """Decode a row event of a table that is compared."""
        self._move_state(Sign.ROWS, event, begins)
        self._has_events |= self._is_copied.get(events.read_table_id(event), False)
        table_id, where = events.read_table_id(event), f"at {begins}"
        if event.type == Type.TABLE_MAP:
            self._names[table_id] = events.read_table_name(event)
        table = self._names.get(table_id)
        if table not in self._tables or table in self.stretch.cut or self._transaction is None:
            return
        beginning = self._transaction.beginning
        gtid = None if beginning.gtid is None else str(beginning.gtid)
        try:
            if event.type == Type.TABLE_MAP:
                self.rows.add_table(event, where)
                return
            _, row_images = self.rows.row_images(event, where)
            images = [
                Image(self._place, begins, kind, beginning.committed_at, gtid, values) for kind, values in row_images
            ]
        except _NOT_READ as error:
            self.stretch.cut.add(table)
            self.stretch.unread[table][_without_places(error, begins)] += 1
            return
        self.stretch.images[table] += images
        self._rows_left -= len(images)

    def _end(self, transaction: Transaction) -> Iterator[Part]:  # noqa: ARG002 - of the parent class
        self.rows.forget()
        self._names.clear()
        self._has_events = False
        yield from ()


def _without_places(error: Exception, at: FilePosition) -> str:
    """The error's message without the position, so that equal reasons are counted together."""
    return str(error).replace(str(at), "a position")
