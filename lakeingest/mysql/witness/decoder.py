"""Decodes the events of a segment, from bytes to change rows and transactions. Pure: it reads no socket.

A transaction's row events are buffered until its end, because the end is the place of all its rows. A small buffer is
in memory, a larger one in a temporary file, so that a transaction of any size fits.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from lakeingest.core.binlog.history import Committed, History, LastEvent
from lakeingest.core.binlog.position import FilePosition, Gtid
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
from lakeingest.errors import concerning
from lakeingest.mysql.wire import events
from lakeingest.mysql.wire.dml import Reach
from lakeingest.mysql.wire.events import ACTIONS, Action, Damaged, Event, Type
from lakeingest.mysql.wire.grammar import (
    XA,
    Sign,
    State,
    Watched,
    begun_with,
    damaged,
    gap,
    no_end,
    not_asked,
    not_sent,
    prove_file,
    prove_start,
    refusal,
    require_known,
    sign_of,
    state_after,
)
from lakeingest.mysql.wire.segment_facts import SegmentFacts
from lakeingest.mysql.witness.change_batches import ChangeBatches
from lakeingest.mysql.witness.gaps import BEYOND
from lakeingest.mysql.witness.row_events import RowEvents
from lakeingest.rows import Part

_End = tuple[int, int, int]  # the end of a transaction: its epoch, and the file's number and position
_IN_MEMORY = 64 << 20  # how many bytes of a transaction are kept in memory
_LENGTH_BYTES = 4  # the size of the length before each buffered event


def rows_in(
    raw_events: Iterable[bytes],
    segment: Segment,
    begin: FilePosition,
    schemas: Mapping[TableId, TableSchema],
    waiting: Mapping[TableId, TableSchema] = NO_TABLES,
    facts: SegmentFacts | None = None,
    *,
    gtids: bool,
    reach: Reach = not_asked,
) -> Iterator[Part]:
    """Yield the change rows and the log rows of a segment, from the events of a dump that begins at `begin`.

    `begin` is the segment's start, or an earlier position in the same file: events that end at the start or before it
    are skipped. Rows of tables in `schemas` are decoded. DDL of tables in `schemas` and in `waiting` is refused. With
    `gtids`, a transaction without a GTID is refused. `reach` says why a statement may change tables that it does not
    name. The rows are valid only if the iterator ends without an error; then `facts` describe the whole segment.

    Raises:
        BinlogGone: no transaction ends at the segment's stop.
        SourceAway: the events end before the stop.
        SchemaChanged, UnsupportedEvent, UnsupportedValue: something cannot be replayed exactly, or not by this decoder.

    """
    facts = facts or SegmentFacts()
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as buffer:
        decoder = Decoder(segment, begin, Watched(schemas, waiting, reach), facts, buffer, gtids=gtids)
        for raw in raw_events:
            yield from decoder.take(raw)
            if decoder.is_done:
                yield from decoder.batches.rest()
                facts.history = decoder.history
                return
        raise not_sent(segment.stop)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The transaction that is being read."""

    begins: FilePosition
    beginning: events.Beginning  # the content of its GTID event
    skipped_to: int = 0  # if it is skipped: its end in the file


class Decoder:
    """Decodes the events of a dump into batches, event by event, as `rows_in` describes.

    `beyond`: the types of events that this decoder refuses, although `wire` reads them.
    """

    beyond: Mapping[int, tuple[str, str]] = BEYOND

    def __init__(
        self,
        segment: Segment,
        begin: FilePosition,
        watched: Watched,
        facts: SegmentFacts,
        buffer: IO[bytes],
        *,
        gtids: bool,
    ) -> None:
        self._segment, self._watched, self._facts, self._gtids = segment, watched, facts, gtids
        self._file, self._number, self._pos = begin.file, begin.number, begin.pos  # the end of the last event
        # as pairs of file number and position, which can be compared
        self._start = (segment.start.number, segment.start.pos)
        self._stop = (segment.stop.number, segment.stop.pos)
        self._checksums = True  # as `_start_dump` asks the server; from each FORMAT_DESCRIPTION on, as the file says
        self._state = State.OUTSIDE
        self._transaction: Transaction | None = None
        self._file_began: int | None = None  # the second of the file's FORMAT_DESCRIPTION event
        self._last: Committed | None = None  # the last transaction that was not skipped
        self._event_at_stop: LastEvent | None = None
        self._is_mariadb = False  # whether the last GTID event was MariaDB's
        self._is_copied: dict[int, bool] = {}  # by table id, for the tables that the open transaction has named
        # the open transaction's TABLE_MAP and row events of copied tables; whether there are any
        self._events, self._has_events = buffer, False
        self._rows = RowEvents(watched.schemas)
        self.batches = ChangeBatches(watched.schemas)

    @property
    def history(self) -> History:
        """What was seen of the binlog's history at the segment's stop. It is complete when the decoder `is_done`."""
        return History(self._file_began, self._event_at_stop, self._last)

    @property
    def at(self) -> FilePosition:
        """The end of the last event whose end was checked; before the first event, the beginning of the dump."""
        return FilePosition(self._file, self._pos)

    @property
    def is_done(self) -> bool:
        """Whether the segment's stop is reached. Raises BinlogGone if no transaction ends there."""
        at = (self._number, self._pos)
        if at > self._stop or (at == self._stop and self._state is not State.OUTSIDE):
            raise no_end(self._segment.stop)
        return at == self._stop

    def take(self, raw: bytes) -> Iterator[Part]:
        """Decode the next event; yield the batches that it fills."""
        begins = self.at
        try:
            event = Event.parse(raw, checksums=self._checksums)
            if event.type == Type.FORMAT_DESCRIPTION:
                self._checksums = events.has_checksums(raw)
                self._file_began = event.seconds
                prove_file(self._segment, self._file, event.seconds)
            is_inside = self._is_inside(event)
            if event.is_made_up and not is_inside:
                self._take_made_up(event)
                return
            self._advance(event, is_inside=is_inside)
            at = (self._number, self._pos)
            if (begins.number, begins.pos) < self._start <= at:  # the last event before the segment
                prove_start(self._segment, LastEvent(begins.pos, events.digest(raw)), self._pos)
            if at > self._start:
                yield from self.act_on(event, begins)
            if at == self._stop:
                self._event_at_stop = LastEvent(begins.pos, events.digest(raw))
        except Damaged as damage:
            raise damaged(damage, begins) from damage

    def _take_made_up(self, event: Event) -> None:
        """Handle an event that the server made up for the dump. Only a ROTATE moves the position: to its file."""
        if event.type in {Type.FORMAT_DESCRIPTION, Type.HEARTBEAT, Type.HEARTBEAT_V2}:
            return
        if event.type != Type.ROTATE:
            raise refusal(*events.name_and_fix(event.type), self.at)
        file = FilePosition(*events.read_rotate(event))
        if file == self.at:  # the first event of a dump
            return
        if file.number != self._number + 1 or self._state is not State.OUTSIDE:
            raise gap(self.at, file)
        self._file, self._number, self._pos, self._file_began = file.file, file.number, file.pos, None

    def _is_inside(self, event: Event) -> bool:
        """Whether an event has no end position because in MariaDB 11 only the last event of a transaction has one."""
        if event.end or event.is_artificial or event.type == Type.FORMAT_DESCRIPTION:
            return False
        return self._is_mariadb and self._state in {State.OPEN, State.PREPARING}

    def _advance(self, event: Event, *, is_inside: bool) -> None:
        """Move the position to the end of the event. Raises Damaged if the event names another end."""
        end = self._pos + event.size
        # an event has only the last four bytes of its end: a file may be longer
        if (end & 0xFFFFFFFF) != event.end and not is_inside:
            raise Damaged(f"an event that should end at {end} says {event.end}")
        self._pos = end

    def act_on(self, event: Event, begins: FilePosition) -> Iterator[Part]:
        """Act on an event of the segment, which begins at `begins`.

        If the event ends a transaction, the full batches are yielded. Events of a skipped transaction are passed over.
        Raises UnsupportedEvent if the type of the event is refused.
        """
        if self._state is State.PASSING:
            self._skip()
            return
        action = None if event.type in self.beyond else ACTIONS.get(event.type)  # None: refused
        match action:
            case None:
                raise refusal(*(self.beyond.get(event.type) or events.name_and_fix(event.type)), begins)
            case Action.PASS:
                pass
            case Action.FILE:
                self._move_state(Sign.FILE, event, begins)
            case Action.GTID:
                self.begin(event, begins)
            case Action.TABLE:
                table = events.read_table_name(event)
                self._facts.met.add(table)
                self._is_copied[events.read_table_id(event)] = table in self._watched.schemas
                self._buffer(event, begins)
            case Action.ROWS:
                self._facts.lacks_cascades |= not events.logs_cascades(event)
                self._buffer(event, begins)
            case Action.QUERY:
                has_rows, is_mariadb = self._has_events, self._is_mariadb
                sign = sign_of(event, self._watched, begins, has_rows=has_rows, is_mariadb=is_mariadb)
                yield from self._may_end(sign, event, begins)
            case Action.COMMIT:
                yield from self._may_end(Sign.COMMIT, event, begins)

    def _move_state(self, sign: Sign, event: Event, begins: FilePosition) -> None:
        self._state = state_after(self._state, sign, event.type, begins)

    def begin(self, event: Event, begins: FilePosition) -> None:
        """Begin a transaction at its GTID event, or begin to skip it."""
        beginning = events.read_gtid(event)
        require_known(beginning, begins, gtids=self._gtids, has_length=False)  # the length is needed only to skip
        self._move_state(Sign.GTID, event, begins)
        self._is_mariadb = event.type == Type.DOMAIN_GTID
        is_skipped = isinstance(beginning.gtid, Gtid) and beginning.gtid in self._segment.skip
        if not is_skipped:
            self._transaction = Transaction(begins, beginning)
            if (begun := begun_with(beginning)) is not None:  # MariaDB's GTID event also is the BEGIN, or the XA START
                self._refuse_xa(begun, begins)
                self._move_state(begun, event, begins)
            return
        if not beginning.length:
            raise Damaged("a GTID event without the length of its transaction")
        self._transaction = Transaction(begins, beginning, begins.pos + beginning.length)
        self._state = State.PASSING

    def _skip(self) -> None:
        """Pass over an event of a skipped transaction. Raises Damaged if the event ends after the transaction's end."""
        ends = self._transaction.skipped_to if self._transaction else 0
        if self._pos > ends:
            raise Damaged(f"a transaction that should end at {ends} continues to {self._pos}")
        if self._pos == ends:
            self._state, self._transaction = State.OUTSIDE, None

    def _buffer(self, event: Event, begins: FilePosition) -> None:
        """Buffer a TABLE_MAP or row event until the end of its transaction, if the table is copied.

        Raises Damaged for a row event without a TABLE_MAP event in its transaction.
        """
        self._move_state(Sign.ROWS, event, begins)
        table_id = events.read_table_id(event)
        if table_id not in self._is_copied:
            raise Damaged(f"a row event of table id {table_id}, without a TABLE_MAP event")
        if self._is_copied[table_id]:
            self._events.write(len(event.data).to_bytes(_LENGTH_BYTES, "little") + event.data)
            self._has_events = True

    def _may_end(self, sign: Sign, event: Event, begins: FilePosition) -> Iterator[Part]:
        """Move the state by a sign. If the sign ends the transaction, collect its rows (`_end`)."""
        self._refuse_xa(sign, begins)
        self._move_state(sign, event, begins)
        if self._state is State.OUTSIDE and self._transaction is not None:
            yield from self._end(self._transaction)
            self._transaction = None
            self._is_copied.clear()

    def _refuse_xa(self, sign: Sign, at: FilePosition) -> None:
        """Raise UnsupportedEvent if the sign is one of XA."""
        if sign in XA:
            raise refusal(*BEYOND[Type.XA_PREPARE], at)

    def _end(self, transaction: Transaction) -> Iterator[Part]:
        """Collect the rows and the log row of a transaction that ends at `self.at`; yield the full batches."""
        beginning = transaction.beginning
        end = (self._segment.epoch, self._number, self._pos)
        gtid = None if beginning.gtid is None else str(beginning.gtid)
        if self._has_events:
            yield from self._decode(end, beginning.committed_at, gtid, f"in the transaction at {transaction.begins}")
        mysql_gtid = beginning.gtid if isinstance(beginning.gtid, Gtid) else None
        gtid_parts = (None, None, None) if mysql_gtid is None else (mysql_gtid.uuid, mysql_gtid.tag, mysql_gtid.number)
        yield from self.batches.add(None, (*gtid_parts, *end, beginning.committed_at))  # None: the log's batch
        self._last = Committed(transaction.begins.file, transaction.begins.pos, gtid, beginning.committed_at)

    def _decode(self, end: _End, committed_at: int, gtid: str | None, where: str) -> Iterator[Part]:
        """Decode the buffered events of a transaction, which ends at `end`: yield its full batches; empty the buffer.

        `where` names the transaction in messages.
        """
        ordinal = 0  # of the row image in the transaction
        self._events.seek(0)
        while size := int.from_bytes(self._events.read(_LENGTH_BYTES), "little"):  # 0 at the buffer's end
            event = Event.from_data(self._events.read(size))
            if event.type == Type.TABLE_MAP:
                with concerning(events.read_table_name(event)):
                    self._rows.add_table(event, where)
                continue
            table, row_images = self._rows.row_images(event, where)
            with concerning(table):
                for kind, values in row_images:
                    yield from self.batches.add(table, (int(kind), *end, ordinal, committed_at, gtid, *values))
                    ordinal += 1
            yield from self.batches.count_bytes(table, size)
        self._rows.forget()
        self._events.seek(0)
        self._events.truncate()
        self._has_events = False
