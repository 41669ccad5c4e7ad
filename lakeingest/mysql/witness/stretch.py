"""Reads a stretch of the binlog once more: the row images of some tables, up to a number of rows. Pure.

Unlike `rows_in`, a stretch leaves out what the library cannot read, and says so by name in `unread`.
"""

import io
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import BinlogGone, SchemaChanged, UnsupportedEvent, UnsupportedValue
from lakeingest.mysql.wire import events
from lakeingest.mysql.wire.events import ACTIONS, Action, Event, Type
from lakeingest.mysql.wire.grammar import XA, Sign, State, Watched, not_sent
from lakeingest.mysql.wire.matching import compared_columns, kinds_of_matching, matches
from lakeingest.mysql.wire.segment_facts import SegmentFacts
from lakeingest.mysql.witness.decoder import Decoder, Transaction
from lakeingest.mysql.witness.gaps import COMPRESSED, OF_XA
from lakeingest.mysql.witness.readable import ReadableRows
from lakeingest.mysql.witness.values import column_array
from lakeingest.rows import Part

CONDITION = "rows of tables whose condition compares a column that is not read"
NOT_READ = (BinlogGone, SchemaChanged, UnsupportedEvent, UnsupportedValue)  # what ends a stretch, but not the run


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

    `last`: the place of the last transaction in the stretch; None if there is none. `is_partial`: more of this
    transaction may follow. `cut`: tables that may have more row images than `images` has, up to the end of the
    transaction at `last`. `passed`: the places of transactions that were left out. `columns`: by table, the names of
    the columns that the images have. `unread`: by reason, how many values and events were left out.
    """

    images: dict[TableId, list[Image]] = field(default_factory=lambda: defaultdict(list))
    columns: dict[TableId, tuple[str, ...]] = field(default_factory=dict)
    last: tuple[int, int] | None = None
    is_partial: bool = False
    cut: set[TableId] = field(default_factory=set)
    passed: set[tuple[int, int]] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)


def read_stretch(
    raw_events: Iterable[bytes],
    segment: Segment,
    watched: Watched,
    tables: Collection[TableId],
    most_rows: int,
    most_events: int,
) -> Stretch:
    """Read the first row images of `tables` in a segment, from a dump that begins at the segment's start.

    The stretch ends with the row event that brings it to `most_rows`, or with the transaction that brings it to
    `most_events` events of any table. It also ends at an event that this decoder cannot read; `unread` names the event.
    Raises SourceAway if the dump ends before that.
    """
    decoder = _Reading(segment, watched, tables, most_rows)
    stretch = decoder.stretch
    try:
        for count, raw in enumerate(raw_events):
            list(decoder.take(raw))  # it yields nothing, but its code runs only while someone iterates
            has_enough = count >= most_events and decoder.is_between and stretch.last is not None
            if decoder.is_full or decoder.is_done or has_enough:
                break
        else:
            raise not_sent(segment.stop)
    except NOT_READ as error:
        stretch.cut.update(tables)
        stretch.unread[_without_place(error, decoder.at)] += 1
    stretch.is_partial = not decoder.is_between
    if stretch.is_partial:
        stretch.cut.update(tables)
    for table, images in stretch.images.items():
        unread = decoder.rows.unread.get(table, {})
        stretch.columns[table] = tuple(name for name in watched.schemas[table].names if name not in unread)
        for reason in unread.values():
            stretch.unread[reason] += len(images)
    for table in stretch.images:
        _keep_matching(stretch, watched.schemas[table])
    return stretch


def _keep_matching(stretch: Stretch, schema: TableSchema) -> None:
    """Keep only the images of rows that meet the condition of the user, if there is one.

    If the library does not read each column of the condition, no image of the table is compared.
    """
    compared, images = compared_columns(schema), stretch.images[schema.table]
    if not compared or not images:
        return
    values = dict(
        zip(stretch.columns[schema.table], zip(*(image.values for image in images), strict=True), strict=True)
    )
    try:
        read = {name: column_array(schema.column(name), values[name], str(schema.table)) for name in compared}
    except (KeyError, UnsupportedValue):
        stretch.unread[CONDITION] += len(images)
        stretch.images[schema.table], stretch.columns[schema.table] = [], ()
        stretch.cut.add(schema.table)
        return
    is_match = matches(read, schema)
    kinds = kinds_of_matching(np.array([int(image.kind) for image in images], np.int8), is_match)
    stretch.images[schema.table] = [
        replace(image, kind=RowKind(kind))
        for image, kind, is_kept in zip(images, kinds.tolist(), is_match.tolist(), strict=True)
        if is_kept
    ]


class _Reading(Decoder):
    """Decodes events into a `Stretch`, each row event at once. Leaves out transactions that the library cannot read."""

    beyond: Mapping[int, tuple[str, str]] = {}

    def __init__(self, segment: Segment, watched: Watched, tables: Collection[TableId], most_rows: int) -> None:
        super().__init__(segment, segment.start, watched, SegmentFacts(), io.BytesIO(), gtids=False)
        self.rows, self.stretch = ReadableRows(watched.schemas), Stretch()
        self._tables, self._rows_left = set(tables), most_rows
        self._names: dict[int, TableId] = {}  # by table id, the tables that the open transaction has named
        self._place = 0, 0  # of the open transaction

    @property
    def is_full(self) -> bool:
        """Whether the stretch has as many rows as it may have."""
        return self._rows_left <= 0

    @property
    def is_between(self) -> bool:
        """Whether the last event has ended a transaction."""
        return self._state is State.OUTSIDE

    def begin(self, event: Event, begins: FilePosition) -> None:
        """As in `Decoder`. Also note the transaction's place, and that the stretch reaches it if it is not skipped."""
        # MariaDB's GTID event has no length: its transaction has the place beginning + 1 (`wire.follow.Transaction`)
        length = events.read_gtid(event).length or 1
        self._place = begins.number, begins.pos + length
        super().begin(event, begins)
        if self._state is not State.PASSING:
            self.stretch.last = self._place
            self.rows.is_mariadb = self._is_mariadb

    def act_on(self, event: Event, begins: FilePosition) -> Iterator[Part]:
        """Act on an event. Compressed transactions, and transactions of XA, are passed over."""
        action = None if self._state is State.PASSING else ACTIONS.get(event.type)
        if action is Action.PAYLOAD and self._state is State.BEGUN:
            self._pass(COMPRESSED)
            self._state = State.OPEN  # the event stands for all events of the transaction, up to its COMMIT
            yield from self._may_end(Sign.COMMIT, event, begins)
        elif action is Action.PREPARE:
            yield from self._may_end(Sign.XA_PREPARE, event, begins)
        else:
            yield from super().act_on(event, begins)

    def _refuse_xa(self, sign: Sign, at: FilePosition) -> None:  # noqa: ARG002 - of the parent class
        """Pass over a transaction of XA."""
        if sign in XA:
            self._pass(OF_XA)

    def _pass(self, reason: str) -> None:
        """Note, only once, that the open transaction is passed over for this reason."""
        if self._place not in self.stretch.passed:
            self.stretch.passed.add(self._place)
            self.stretch.unread[reason] += 1

    def _buffer(self, event: Event, begins: FilePosition) -> None:
        """Decode a TABLE_MAP or row event at once, if its table is compared; an error cuts the table."""
        self._move_state(Sign.ROWS, event, begins)
        table_id = events.read_table_id(event)
        if event.type == Type.TABLE_MAP:
            self._names[table_id] = events.read_table_name(event)
        table = self._names.get(table_id)
        self._has_events |= table in self._watched.schemas  # for `sign_of`, which refuses a ROLLBACK after rows
        if table not in self._tables or table in self.stretch.cut or self._place in self.stretch.passed:
            return
        try:
            if event.type == Type.TABLE_MAP:
                self.rows.add_table(event, f"at {begins}")
            else:
                images = list(self._images(event, begins))
                self.stretch.images[table] += images
                self._rows_left -= len(images)
        except NOT_READ as error:
            self.stretch.cut.add(table)
            self.stretch.unread[_without_place(error, begins)] += 1

    def _images(self, event: Event, begins: FilePosition) -> Iterator[Image]:
        """Yield the images of a row event of the open transaction."""
        assert self._transaction is not None  # noqa: S101 - the state is OPEN
        beginning = self._transaction.beginning
        gtid = None if beginning.gtid is None else str(beginning.gtid)
        _, row_images = self.rows.row_images(event, f"at {begins}")
        for kind, values in row_images:
            yield Image(self._place, begins, kind, beginning.committed_at, gtid, values)

    def _end(self, transaction: Transaction) -> Iterator[Part]:  # noqa: ARG002 - of the parent class
        """Forget the tables of the transaction. Nothing is yielded, because the stretch has its images already."""
        self.rows.forget()
        self._names.clear()
        self._has_events = False
        yield from ()


def _without_place(error: Exception, at: FilePosition) -> str:
    """The error's message without the position, so that equal reasons are counted together."""
    return str(error).replace(str(at), "a position")
