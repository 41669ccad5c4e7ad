"""One segment of the binlog, from the bytes of a dump to Arrow batches. Pure: it reads no socket.

`framing` finds the events, `follow` follows those that are as most are, and leaves all others to this class; row
events wait in a window of bytes, which is read when it is full. A transaction's place is known from its beginning:
its GTID event says how long it is, and that it ends there is proved when it does. MariaDB's does not say: its place is
where it begins.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from lakeingest.core.history import Committed, History, LastEvent
from lakeingest.core.position import FilePosition, Gtid
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import BinlogGone, SourceAway, concerning
from lakeingest.wire import events, grammar
from lakeingest.wire.arrow import Part
from lakeingest.wire.buffer import Buffer
from lakeingest.wire.charsets import UnknownCharset
from lakeingest.wire.events import ACTIONS, Action, Damaged, Event, Type
from lakeingest.wire.follow import At, follow
from lakeingest.wire.framing import CHECKSUM_BYTES, DAMAGES, Status, frame_bare_events, frame_events, payload_at
from lakeingest.wire.grammar import Sign, State
from lakeingest.wire.maps import Maps
from lakeingest.wire.payload import open_payload, read_payload
from lakeingest.wire.table_map import read_table_map
from lakeingest.wire.window import Window

_BUFFER_BYTES = 4 << 20
_EVENTS = 16_384  # that are framed at once
_FAR = int(np.iinfo(np.int64).max)


class SegmentDecoder:
    """Takes the bytes of a dump from `begin` on as they come, and gives out batches in binlog order.

    `begin` is the segment's start, or stands before it in the same file: what ends up to the start is passed over.
    With `gtids`, a transaction without a GTID is refused. A transaction's rows count only when the segment `is_done`.
    """

    def __init__(
        self, segment: Segment, begin: FilePosition, schemas: Mapping[TableId, TableSchema], *, gtids: bool
    ) -> None:
        self._segment, self._schemas = segment, schemas
        self._at = np.zeros(len(At), np.int64)
        self._at[At.GTIDS] = gtids
        self._began: int | None = None  # the second of the file's beginning, from its FORMAT_DESCRIPTION event
        self._last: Committed | None = None
        self._event_before: LastEvent | None = None
        self._enter(begin)
        self._checksums = True  # what we ask of the server; then each file says what it has
        self._is_doubted = False  # whether it said that it has none, and no event proved it yet
        self._outer, self._inner = Buffer(_BUFFER_BYTES), Buffer(_BUFFER_BYTES)
        self._read_from = self._outer  # what the places in the window are of
        self._sequence = 1
        self._offset, self._size = np.empty(_EVENTS, np.int64), np.empty(_EVENTS, np.int64)
        self._maps = Maps()
        self._window = Window(segment, schemas.values())
        self.is_done = False
        self.error: bytes | None = None  # the payload of the packet with which the server gave up

    @property
    def nulled(self) -> Counter[TableId]:
        """How many values of new rows are NULL only because the user chose so, by table."""
        return self._window.reader.nulled

    @property
    def history(self) -> History:
        """What was seen of the binlog at the stop, when it is done."""
        return History(self._began, self._event_before, self._last)

    @property
    def at(self) -> FilePosition:
        """The end of the last event that was taken."""
        return FilePosition(self._file.file, int(self._at[At.POS]))

    def room(self) -> memoryview:
        """Where the next bytes from the server go."""
        return self._outer.room()

    def take(self, count: int) -> Iterator[Part]:
        """Use the next `count` bytes, which are in `room`; the batches that they complete.

        BinlogGone when no transaction ends at the segment's stop; UnsupportedEvent, UnsupportedValue, SchemaChanged
        when something cannot be replayed exactly; SourceAway when the server has sent all that it has.
        """
        outer = self._outer
        outer.end += count
        try:
            while True:
                status, outer.at, self._sequence, found = frame_events(
                    outer.data, outer.at, outer.end, self._sequence, self._checksums, self._offset, self._size
                )
                yield from self._follow(outer, self._offset, self._size, found)
                if self.is_done:
                    yield from self._flush()
                    return
                _whole(status)
                if status == Status.EOF:
                    # between the flush and the sync of a commit group its end is written, but not sent yet
                    raise SourceAway(f"the source does not send {self._segment.stop} yet; run the same command again")
                if status == Status.ERROR:
                    self.error = payload_at(outer.data, outer.at)
                    return
                if status == Status.MORE:
                    if outer.is_full:
                        yield from self._flush()
                        outer.make_room()
                    return
        except Damaged as damage:
            raise grammar.damaged(damage, self.at) from damage

    def _follow(self, buffer: Buffer, offset: np.ndarray, size: np.ndarray, found: int) -> Iterator[Part]:
        """Follow so many events, which were framed in `buffer`."""
        if self._is_doubted and found:
            self._is_doubted = False
            if events.is_proved(buffer.data[offset[0] : offset[0] + size[0]].tobytes()):
                raise Damaged("a file that says that its events have no checksums, and they have")
        checksum = CHECKSUM_BYTES if self._checksums and buffer is self._outer else 0
        done = 0
        while not self.is_done:
            done = follow(
                buffer.data,
                offset,
                size,
                done,
                found,
                checksum,
                int(buffer is self._inner),
                self._at,
                self._maps.places,
                self._maps.data,
                self._window.sources.known,
                self._window.rows[: self._room_for_rows(buffer)],
                self._window.transactions,
            )
            if done == found:
                return
            start = int(offset[done])
            raw = buffer.data[start : start + int(size[done])].tobytes()
            if buffer is self._inner:
                yield from self._act(Event.kept(raw), buffer, start)
            else:
                yield from self._event(raw, start)
            done += 1

    def _room_for_rows(self, buffer: Buffer) -> int:
        """How many row events the window may hold: those of one buffer."""
        if not self._at[At.ROWS]:
            self._read_from = buffer
        return len(self._window.rows) if self._read_from is buffer else int(self._at[At.ROWS])

    def _event(self, raw: bytes, start: int) -> Iterator[Part]:
        """Take an event that stands in the binlog, or that the server made up."""
        event = Event.parse(raw, checksums=self._checksums)
        if event.type == Type.FORMAT_DESCRIPTION:
            self._checksums = events.has_checksums(raw)
            self._is_doubted = not self._checksums
            self._began = event.seconds
            grammar.prove_file(self._segment, self._file.file, event.seconds)
        is_within = self._is_within(event)
        if event.is_made_up and not is_within:
            yield from self._announced(event)
            return
        end = int(self._at[At.POS]) + event.size
        if end & 0xFFFFFFFF != event.end and not is_within:  # it has four bytes, and a file may be longer
            raise Damaged(f"an event that should end at {end} says {event.end}")
        before, begins = self._state, int(self._at[At.POS])
        if end > self._at[At.START]:
            yield from self._act(event, self._outer, start)
        if begins < self._at[At.START] <= end:
            grammar.prove_start(self._segment, LastEvent(begins, events.digest(raw)), end)
        self._at[At.POS] = end
        if before is not State.OUTSIDE:
            self._prove(end)
        if end >= self._at[At.STOP]:
            self._event_before = LastEvent(begins, events.digest(raw))
            self._stop(end)

    def _is_within(self, event: Event) -> bool:
        """Whether it stands in the file, but does not say where it ends.

        MariaDB 11 says it of the last event of a transaction alone, which proves those before it.
        """
        if event.end or event.is_artificial or event.type == Type.FORMAT_DESCRIPTION:
            return False
        is_passed = self._at[At.POS] < self._at[At.START]
        return is_passed or (self._state is State.OPEN and not self._at[At.ENDS])

    def _announced(self, event: Event) -> Iterator[Part]:
        """Take an event that the server made up for us: it stands in no file and moves no position."""
        if event.type in {Type.FORMAT_DESCRIPTION, Type.HEARTBEAT, Type.HEARTBEAT_V2}:
            return
        if event.type != Type.ROTATE:
            raise grammar.refusal(*events.refusal(event.type), self.at)
        file = FilePosition(*events.read_rotate(event))
        if file == self.at:  # the first event of a dump
            return
        if file.number != self._file.number + 1 or self._state is not State.OUTSIDE:
            raise BinlogGone(
                f"after {self.at} the source goes on with {file.file}: its binlog has a gap; copy the tables again"
            )
        yield from self._flush()
        self._enter(file)
        if file.pos >= self._at[At.STOP]:
            self._stop(file.pos)

    def _enter(self, file: FilePosition) -> None:
        """Go on in a file."""
        start, stop = self._segment.start, self._segment.stop
        self._file = file
        self._began = None
        self._at[At.POS] = file.pos
        self._at[At.START] = start.pos if file.number == start.number else 0
        self._at[At.STOP] = stop.pos if file.number == stop.number else _FAR if file.number < stop.number else 0

    def _act(self, event: Event, buffer: Buffer, start: int) -> Iterator[Part]:
        """Do what an event says, which begins at `start` in the buffer; the position is still where it begins."""
        if self._state is State.PASSING:
            return
        match ACTIONS.get(event.type):
            case None:
                raise grammar.refusal(*events.refusal(event.type), self.at)
            case Action.GTID | Action.PAYLOAD if buffer is self._inner:
                what = f"an event of type {event.type} in a TRANSACTION_PAYLOAD event, where none may stand"
                raise grammar.refusal(what, "report it to the lakeingest project", self.at)
            case Action.PASS:
                pass
            case Action.FILE:
                self._move(Sign.FILE, event)
            case Action.GTID:
                yield from self._begin(event)
            case Action.TABLE:
                self._map(event)
            case Action.ROWS:
                yield from self._keep(event, buffer, start)
            case Action.QUERY:
                has_rows = bool(self._at[At.HAS_ROWS])
                self._move(grammar.sign_of(event, self._schemas, self.at, has_rows=has_rows), event)
            case Action.COMMIT:
                self._move(Sign.COMMIT, event)
            case Action.PAYLOAD:
                yield from self._unpack(event)

    @property
    def _state(self) -> State:
        return State(self._at[At.STATE])

    def _move(self, sign: Sign, event: Event) -> None:
        self._at[At.STATE] = grammar.after(self._state, sign, event.type, self.at)

    def _begin(self, event: Event) -> Iterator[Part]:
        beginning, at = events.read_gtid(event), self._at
        gtid, is_mariadb = beginning.gtid, event.type == Type.DOMAIN_GTID
        if gtid is None and at[At.GTIDS]:
            what = "a transaction without a GTID, although gtid_mode is ON"
            raise grammar.refusal(what, "leave gtid_mode as it is", self.at)
        if not beginning.length and not is_mariadb:
            what = "a transaction that does not say how long it is, as those of MySQL before 8.0.2"
            raise grammar.refusal(what, "copy from a newer replica", self.at)
        if at[At.TRANSACTIONS] == len(self._window.transactions):
            yield from self._flush()
        self._move(Sign.GTID, event)
        at[At.ENDS] = 0 if is_mariadb else at[At.POS] + beginning.length
        source, number = (-1, 0) if gtid is None else (self._window.sources.number(gtid), gtid.number)
        if isinstance(gtid, Gtid) and gtid in self._segment.skip:
            at[At.STATE] = State.PASSING
            return
        if beginning.is_begin:
            self._move(Sign.BEGIN, event)
        place = at[At.ENDS] or at[At.POS] + 1
        self._window.transactions[at[At.TRANSACTIONS]] = (source, number, place, beginning.committed_at)
        at[At.TRANSACTIONS] += 1
        at[At.COUNT] += 1
        at[At.HAS_ROWS] = 0
        at[At.BEGUN] = at[At.POS]

    def _map(self, event: Event) -> None:
        self._move(Sign.ROWS, event)
        schema = self._schemas.get(events.read_table_name(event))
        table = -1 if schema is None else self._add(schema, event)
        self._maps.add(events.read_table_id(event), event.payload, table, int(self._at[At.COUNT]))

    def _add(self, schema: TableSchema, event: Event) -> int:
        """The reader's number of a copied table as this TABLE_MAP event describes it."""
        with concerning(schema.table):
            try:
                found = read_table_map(event, is_mariadb=not self._at[At.ENDS])
                return self._window.reader.add(schema, found, f"at {self.at}")
            except UnknownCharset as error:
                what, _, fix = str(error).partition("; ")
                raise grammar.refusal(what, fix, self.at) from error

    def _keep(self, event: Event, buffer: Buffer, start: int) -> Iterator[Part]:
        """Put a row event of a copied table into the window."""
        self._move(Sign.ROWS, event)
        at, window = self._at, self._window
        table_id = events.read_table_id(event)
        table = self._maps.table(table_id, int(at[At.COUNT]))
        if table is None:
            raise Damaged(f"a row event of table id {table_id}, which no TABLE_MAP event named")
        if table < 0:
            return
        if at[At.ROWS] == self._room_for_rows(buffer):
            yield from self._flush()
            self._read_from = buffer
        window.rows[at[At.ROWS]] = (start, start + len(event.data), table, at[At.TRANSACTIONS] - 1, at[At.POS])
        at[At.ROWS] += 1
        at[At.HAS_ROWS] = 1

    def _unpack(self, event: Event) -> Iterator[Part]:
        """Follow the events of a compressed transaction."""
        inner = self._inner
        if self._state is not State.BEGUN:
            what = f"a TRANSACTION_PAYLOAD event {self._state.shown}, where none may stand"
            raise grammar.refusal(what, "report it to the lakeingest project", self.at)
        offset, size = np.empty(_EVENTS, np.int64), np.empty(_EVENTS, np.int64)
        stream = open_payload(event)
        count = 1
        while count:
            if inner.is_full:
                yield from self._flush()
                inner.make_room()
            count = read_payload(stream, inner.room())
            inner.end += count
            status = int(Status.FULL)
            while status == Status.FULL:
                status, inner.at, found = frame_bare_events(inner.data, inner.at, inner.end, offset, size)
                yield from self._follow(inner, offset, size, found)
            _whole(status)
        if inner.at != inner.end or self._at[At.STATE] != State.OUTSIDE:
            raise Damaged("a TRANSACTION_PAYLOAD event that ends within its transaction")

    def _prove(self, end: int) -> None:
        """Prove that the transaction ends where it said."""
        ends = int(self._at[At.ENDS])
        if not ends:
            return
        if self._state is State.PASSING and end == ends:
            self._at[At.STATE] = State.OUTSIDE
        if end > ends or (end == ends) != (self._state is State.OUTSIDE):
            raise Damaged(f"a transaction that should end at {ends}, and is {self._state.shown} at {end}")

    def _stop(self, end: int) -> None:
        if end > self._at[At.STOP] or self._state is not State.OUTSIDE:
            raise BinlogGone(
                f"no transaction ends at {self._segment.stop} in the source's binlog: it is not the one that this "
                "position was read from; copy the tables again"
            )
        self.is_done = True

    def _flush(self) -> Iterator[Part]:
        """Give out what is in the window; what its places are of may go then."""
        at = self._at
        is_open = self._state in {State.BEGUN, State.OPEN}
        rows, transactions = int(at[At.ROWS]), int(at[At.TRANSACTIONS])
        if transactions and not is_open:
            gtid, committed_at = self._window.last(transactions)
            self._last = Committed(self._file.file, int(at[At.BEGUN]), gtid, committed_at)
        yield from self._window.parts(self._read_from.data, rows, transactions, self._file, is_open=is_open)
        at[At.ROWS], at[At.TRANSACTIONS] = 0, is_open


def _whole(status: int) -> None:
    if status in DAMAGES:
        raise Damaged(DAMAGES[Status(status)])
