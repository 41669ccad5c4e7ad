"""Decodes a segment of the binlog, from the bytes of a dump to Arrow batches. Pure: it reads no socket.

`framing` finds the events. `follow` handles the usual events, and `SegmentDecoder` all others. Row events are buffered,
and decoded when the buffer is full. The place of a MySQL transaction is its end: known from the length in its GTID
event, and proved at the end. MariaDB's GTID event has no length, so a MariaDB transaction's place is its beginning.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.history import Committed, History, LastEvent
from lakeingest.core.binlog.position import FilePosition, Gtid
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
from lakeingest.mysql.wire import events, framing, grammar, xa
from lakeingest.mysql.wire.buffer import SENT_MAX, UNPACKED_MAX, Buffer
from lakeingest.mysql.wire.dml import Reach
from lakeingest.mysql.wire.event_buffer import EventBuffer
from lakeingest.mysql.wire.events import ACTIONS, Action, Damaged, Event, Type
from lakeingest.mysql.wire.follow import ReaderState, follow
from lakeingest.mysql.wire.grammar import Sign, State
from lakeingest.mysql.wire.maps import Maps
from lakeingest.mysql.wire.payload import open_payload, read_payload
from lakeingest.rows import Part

_BUFFER_BYTES = 4 << 20  # of each buffer at first
_BUFFER_BYTES_MAX = (SENT_MAX, UNPACKED_MAX, UNPACKED_MAX)  # a dump; a compressed, a prepared transaction
_EVENTS = 16_384  # that are framed at a time
_NO_STOP = int(np.iinfo(np.int64).max)  # in a file before the file of the stop


class SegmentDecoder:
    """Decodes the bytes of a dump from `begin` on, as they arrive, to batches in binlog order.

    `begin` is the segment's start, or an earlier position in the same file: events that end at or before the start are
    skipped. Rows of tables in `schemas` are decoded. DDL of tables in `schemas` or `waiting` is refused. With `gtids`,
    a transaction without a GTID is refused. `reach`: see `grammar.Watched`. Rows are valid only once `is_done`.

    `replay` reads the rows of a prepared transaction when the segment commits the transaction. Without `replay`, XA is
    refused if there are `schemas`. With `stamp`, the segment is one prepared transaction, and its rows get the `stamp`.
    """

    def __init__(
        self,
        segment: Segment,
        begin: FilePosition,
        schemas: Mapping[TableId, TableSchema],
        waiting: Mapping[TableId, TableSchema] = NO_TABLES,
        *,
        gtids: bool,
        replay: xa.Replay | None = None,
        stamp: xa.Stamp | None = None,
        reach: Reach = grammar.not_asked,
    ) -> None:
        self._segment, self._schemas, self._watched = segment, schemas, grammar.Watched(schemas, waiting, reach)
        self._replay = replay if schemas else None
        self._is_committed_xa = stamp is not None  # so XA_PREPARE commits: see `grammar.ONCE_COMMITTED`
        self.xa, self.reader = xa.Preparing(self._replay, schemas), np.zeros(len(ReaderState), np.int64)
        self.reader[ReaderState.GTIDS] = gtids
        self._file_began: int | None = None  # the second of the file's FORMAT_DESCRIPTION event
        self._last: Committed | None = None  # the last transaction, without those that were skipped
        self._event_at_stop: LastEvent | None = None
        self._enter_file(begin)
        self._checksums = True  # as requested from the server; after a FORMAT_DESCRIPTION event, as this event says
        self._must_prove_no_checksums = False  # at the next event, if the file says that it has no checksums
        self._outer, self._inner, self._prepared_buffer = (Buffer(_BUFFER_BYTES, most) for most in _BUFFER_BYTES_MAX)
        self._row_buffer = self._outer  # the buffer that the offsets of the row events refer to
        self._sequence = 1  # the number that the next packet must have
        self._offset, self._size = np.empty(_EVENTS, np.int64), np.empty(_EVENTS, np.int64)
        self.maps, self._events = Maps(), EventBuffer(segment, schemas.values(), stamp)
        self.is_done = False
        self.error: bytes | None = None  # the payload of the ERR packet, if the server sent one

    @property
    def nulled(self) -> Counter[TableId]:
        """The number of values of new rows that are NULL only because the user chose so, by table."""
        return self._events.reader.nulled

    @property
    def history(self) -> History:
        """What was seen of the binlog's history at the segment's stop. It is complete when the decoder `is_done`."""
        return History(self._file_began, self._event_at_stop, self._last)

    @property
    def at(self) -> FilePosition:
        """The end of the last event that was handled; while an event is handled, its beginning."""
        return FilePosition(self._file.file, int(self.reader[ReaderState.POS]))

    def free_space(self) -> memoryview:
        """The free space for the next bytes from the server."""
        return self._outer.free_space()

    def take(self, count: int) -> Iterator[Part]:
        """Use the next `count` bytes of `free_space`; yield the batches that they complete. An ERR packet sets `error`.

        Raises:
            BinlogGone: no transaction ends at the segment's stop.
            UnsupportedEvent, UnsupportedValue, SchemaChanged: an event or a value cannot be replayed exactly.
            SourceAway: the server ends the dump before the stop.

        """
        outer = self._outer
        outer.end += count
        try:
            while True:  # after FULL or LOOK the buffer may have more complete events; the other statuses end the loop
                status, outer.at, self._sequence, framed = framing.frame_events(
                    outer.data, outer.at, outer.end, self._sequence, self._checksums, self._offset, self._size
                )
                yield from self._follow(outer, self._offset, self._size, framed)
                if self.is_done:
                    yield from self._flush()
                    return
                framing.require_undamaged(status)
                if status == framing.Status.EOF:
                    raise grammar.not_sent(self._segment.stop)
                if status == framing.Status.ERROR:
                    self.error = framing.payload_at(outer.data, outer.at)
                    return
                if status == framing.Status.MORE:
                    if outer.is_full:
                        yield from self._flush()  # because `make_room` moves the bytes of row events
                        outer.make_room()
                    return
        except Damaged as damage:
            raise grammar.damaged(damage, self.at) from damage

    def _follow(self, buffer: Buffer, offset: np.ndarray, size: np.ndarray, framed: int) -> Iterator[Part]:
        """Handle the first `framed` events in `buffer`: `offset` and `size` say where they are, and how long."""
        if self._must_prove_no_checksums and framed:
            self._must_prove_no_checksums = False
            if events.ends_with_checksum(buffer.data[offset[0] : offset[0] + size[0]].tobytes()):
                raise Damaged("a file whose events have checksums although it says that they have none")
        is_inner = buffer is not self._outer
        checksum = framing.CHECKSUM_BYTES if self._checksums and not is_inner else 0
        index = 0  # of the next event
        while not self.is_done:
            rows, transactions = self._events.rows[: self._rows_max(buffer)], self._events.transactions
            arrays = self.reader, self.maps.entries, self.maps.data, self._events.prefixes.table, rows, transactions
            index = follow(buffer.data, offset, size, index, framed, checksum, int(is_inner), *arrays)
            if index == framed:
                return
            start = int(offset[index])  # of the event that the kernel has left to this class
            raw = buffer.data[start : start + int(size[index])].tobytes()
            if is_inner:
                yield from self._act(Event.from_data(raw), buffer, start)
            else:
                yield from self._handle_event(raw, start)
            index += 1

    def _rows_max(self, buffer: Buffer) -> int:
        """The number of row events at which the array is full, if the next row event is in `buffer`.

        All row events in the array must be in the same buffer, `_row_buffer`. If that is not `buffer`, the array counts
        as full with the row events it has. An empty array gets `buffer` as its `_row_buffer` here.
        """
        if not self.reader[ReaderState.ROWS]:
            self._row_buffer = buffer
        return len(self._events.rows) if self._row_buffer is buffer else int(self.reader[ReaderState.ROWS])

    def _handle_event(self, raw: bytes, start: int) -> Iterator[Part]:
        """Handle an event that the server sends. If the event is in the file, move the position to the event's end."""
        event = Event.parse(raw, checksums=self._checksums)
        if event.type == Type.FORMAT_DESCRIPTION:
            self._checksums = events.has_checksums(raw)
            self._must_prove_no_checksums = not self._checksums
            self._file_began = event.seconds
            grammar.prove_file(self._segment, self._file.file, event.seconds)
        is_inside = self._is_inside(event)
        if event.is_made_up and not is_inside:
            yield from self._handle_made_up(event)
            return
        state_before, begins = self._state, int(self.reader[ReaderState.POS])
        end = begins + event.size
        if (end & 0xFFFFFFFF) != event.end and not is_inside:  # a header has only 32 bits of the end
            raise Damaged(f"an event that should end at {end} says {event.end}")
        if end > self.reader[ReaderState.START]:  # else the event is skipped, because it is before the segment
            yield from self._act(event, self._outer, start)
        if begins < self.reader[ReaderState.START] <= end:  # the last event before the segment
            grammar.prove_start(self._segment, LastEvent(begins, events.digest(raw)), end)
        self.reader[ReaderState.POS] = end
        if state_before is not State.OUTSIDE:  # the event is in a transaction, after its GTID
            self._prove_end(end)
        if end >= self.reader[ReaderState.STOP]:
            self._event_at_stop = LastEvent(begins, events.digest(raw))
            self._end_segment(end)

    def _is_inside(self, event: Event) -> bool:
        """Whether an event has no end position because in MariaDB 11 only the last event of a transaction has one."""
        if event.end or event.is_artificial or event.type == Type.FORMAT_DESCRIPTION:
            return False
        is_skipped = self.reader[ReaderState.POS] < self.reader[ReaderState.START]  # then `_state` is not moved
        return is_skipped or (self._state in {State.OPEN, State.PREPARING} and not self.reader[ReaderState.ENDS])

    def _handle_made_up(self, event: Event) -> Iterator[Part]:
        """Handle an event that the server made up for the reader. Only a ROTATE moves the position: to its file."""
        if event.type in {Type.FORMAT_DESCRIPTION, Type.HEARTBEAT, Type.HEARTBEAT_V2}:
            return
        if event.type != Type.ROTATE:
            raise grammar.refusal(*events.name_and_fix(event.type), self.at)
        file = FilePosition(*events.read_rotate(event))
        if file == self.at:  # the first event of a dump
            return
        if file.number != self._file.number + 1 or self._state is not State.OUTSIDE:
            raise grammar.gap(self.at, file)
        yield from self._flush()
        self._enter_file(file)
        if file.pos >= self.reader[ReaderState.STOP]:  # the segment ends at this file's beginning, or before it
            self._end_segment(file.pos)

    def _enter_file(self, file: FilePosition) -> None:
        """Continue at the position `file`: where the dump begins, or the beginning of a new file."""
        start, stop = self._segment.start, self._segment.stop
        self._file, self._file_began, self.reader[ReaderState.POS] = file, None, file.pos
        self.reader[ReaderState.START] = start.pos if file.number == start.number else 0
        other_stop = _NO_STOP if file.number < stop.number else 0  # of a file without the stop; 0: all is beyond it
        self.reader[ReaderState.STOP] = stop.pos if file.number == stop.number else other_stop

    def _act(self, event: Event, buffer: Buffer, start: int) -> Iterator[Part]:
        """Act on an event, which begins at `start` in the buffer. The caller moves `self.at` to its end afterwards."""
        if self._state is State.PASSING:
            return
        match ACTIONS.get(event.type):
            case None if self._watched.schemas or self._watched.waiting:  # the event may change a watched table
                raise grammar.refusal(*events.name_and_fix(event.type), self.at)
            case Action.GTID | Action.PAYLOAD if buffer is not self._outer:
                raise grammar.misplaced(f"an event of type {event.type} in a TRANSACTION_PAYLOAD event", self.at)
            case None | Action.PASS:  # None: the type is unknown, but no tables are watched
                pass
            case Action.FILE:
                self._move_state(Sign.FILE, event)
            case Action.GTID:
                yield from self._begin_transaction(event)
            case Action.TABLE | Action.ROWS if self._state is State.PREPARING:
                self._move_state(Sign.ROWS, event)
                self.xa.add(event)
            case Action.TABLE:
                self._add_map(event)
            case Action.ROWS:
                yield from self._add_rows(event, buffer, start)
            case Action.QUERY:
                yield from self._handle_query(event)
            case Action.COMMIT:
                self._move_state(Sign.COMMIT, event)
            case Action.PREPARE:
                yield from self._handle_prepare(event)
            case Action.PAYLOAD:
                yield from self._unpack(event)

    @property
    def _state(self) -> State:
        return State(self.reader[ReaderState.STATE])

    def _handle_query(self, event: Event) -> Iterator[Part]:
        """Move the state by a statement. If it is an XA COMMIT, yield the rows of the prepared transaction first."""
        is_mariadb = not self.reader[ReaderState.ENDS]  # only MySQL's GTID event has the length of its transaction
        has_rows = bool(self.reader[ReaderState.HAS_ROWS])
        begun = self._transaction_begins if self._state is State.BEGUN else None
        sign = grammar.sign_of(event, self._watched, self.at, has_rows=has_rows, begun=begun, is_mariadb=is_mariadb)
        yield from self._prepared_rows(self.xa.handle(event, sign, self._transaction_begins))
        self._move_state(sign, event)

    def _handle_prepare(self, event: Event) -> Iterator[Part]:
        stop = replace(self.at, pos=int(self.reader[ReaderState.ENDS]) or self.at.pos + event.size)  # 0: not known
        yield from self._prepared_rows(self.xa.prepare(event, self._transaction_begins, stop))  # only with ONE PHASE
        self._move_state(Sign.XA_PREPARE, event)

    def _prepared_rows(self, committed: xa.Committed | None) -> Iterator[Part]:
        """Yield the rows of the prepared transaction `committed`, as rows of the open transaction that commits them."""
        if committed is None:
            return
        if committed.events is not None:  # TABLE_MAP and row events, which are allowed only when OPEN
            outer_state = self._state
            self.reader[ReaderState.STATE] = State.OPEN
            yield from self._read_events(self._prepared_buffer, pa.BufferReader(committed.events))
            self.reader[ReaderState.STATE] = outer_state
        elif self._replay:  # the events were not kept in memory: read them from the binlog again
            yield from self._flush()
            stamp = self._events.stamp_of_last(int(self.reader[ReaderState.TRANSACTIONS]), self._file)
            yield from self._replay.rows(committed.prepared, self._transaction_begins, stamp)

    @property
    def _transaction_begins(self) -> FilePosition:
        """The position at which the open transaction begins."""
        return FilePosition(self._file.file, int(self.reader[ReaderState.BEGUN]))

    def _move_state(self, sign: Sign, event: Event) -> None:
        """Move the state by a sign. Raises UnsupportedEvent if the sign is not allowed here, or XA is refused."""
        if self._is_committed_xa:
            sign = grammar.ONCE_COMMITTED.get(sign, sign)
        elif sign in grammar.XA and self._schemas and self._replay is None:
            raise grammar.refusal(*grammar.NO_XA, self.at)
        if ACTIONS.get(event.type) is Action.ROWS:  # noted for the facts of the segment
            self.reader[ReaderState.LACKS_CASCADES] |= not events.logs_cascades(event)
        self.reader[ReaderState.STATE] = grammar.state_after(self._state, sign, event.type, self.at)

    def _begin_transaction(self, event: Event) -> Iterator[Part]:
        """Begin a transaction at its GTID event, or begin to skip it."""
        beginning, reader = events.read_gtid(event), self.reader
        gtid, is_mariadb = beginning.gtid, event.type == Type.DOMAIN_GTID
        grammar.require_known(beginning, self.at, gtids=bool(reader[ReaderState.GTIDS]), has_length=not is_mariadb)
        if reader[ReaderState.TRANSACTIONS] == len(self._events.transactions):  # the array is full
            yield from self._flush()
        self._move_state(Sign.GTID, event)
        reader[ReaderState.ENDS] = 0 if is_mariadb else reader[ReaderState.POS] + beginning.length
        prefix, number = (-1, 0) if gtid is None else (self._events.prefixes.index_of(gtid), gtid.number)
        if isinstance(gtid, Gtid) and gtid in self._segment.skip:
            reader[ReaderState.STATE] = State.PASSING
            return
        if (sign := grammar.begun_with(beginning)) is not None:  # the GTID event is also this statement
            self.xa.begin()
            self._move_state(sign, event)
        pos = reader[ReaderState.ENDS] or reader[ReaderState.POS] + 1  # see `Transaction.POS`
        self._events.transactions[reader[ReaderState.TRANSACTIONS]] = (prefix, number, pos, beginning.committed_at)
        reader[ReaderState.TRANSACTIONS] += 1
        reader[ReaderState.COUNT] += 1
        reader[ReaderState.HAS_ROWS] = 0
        reader[ReaderState.BEGUN] = reader[ReaderState.POS]

    def _add_map(self, event: Event) -> None:
        self._move_state(Sign.ROWS, event)
        schema = self._schemas.get(self.maps.meet(event))
        is_mariadb = not self.reader[ReaderState.ENDS]  # only MySQL's GTID event has the length of its transaction
        table = -1 if schema is None else self._events.add_table(schema, event, self.at, is_mariadb=is_mariadb)
        self.maps.add(events.read_table_id(event), event.payload, table, int(self.reader[ReaderState.COUNT]))

    def _add_rows(self, event: Event, buffer: Buffer, start: int) -> Iterator[Part]:
        """Buffer a row event, if its table is copied."""
        self._move_state(Sign.ROWS, event)
        reader, buffered = self.reader, self._events
        table = self.maps.table(events.read_table_id(event), int(reader[ReaderState.COUNT]))
        if table is None:
            raise Damaged("a row event without a TABLE_MAP event")
        if table < 0:  # not copied
            return
        if reader[ReaderState.ROWS] == self._rows_max(buffer):
            yield from self._flush()
            self._row_buffer = buffer  # the array is empty now
        row = start, start + len(event.data), table, reader[ReaderState.TRANSACTIONS] - 1, reader[ReaderState.POS]
        buffered.rows[reader[ReaderState.ROWS]] = row  # its columns: `follow.Row`
        reader[ReaderState.ROWS] += 1
        reader[ReaderState.HAS_ROWS] = 1

    def _unpack(self, event: Event) -> Iterator[Part]:
        """Handle the events of a compressed transaction."""
        if self._state is not State.BEGUN:
            raise grammar.misplaced(f"a TRANSACTION_PAYLOAD event {self._state.in_words}", self.at)
        yield from self._read_events(self._inner, open_payload(event))
        if self.reader[ReaderState.STATE] != State.OUTSIDE:
            raise Damaged("a TRANSACTION_PAYLOAD event that ends within its transaction")

    def _read_events(self, inner: Buffer, stream: Any) -> Iterator[Part]:
        """Handle the events of a compressed or a prepared transaction: `stream` has their bytes, read into `inner`."""
        count = 1
        offset, size = np.empty(_EVENTS, np.int64), np.empty(_EVENTS, np.int64)  # `take` still needs those of `self`
        while count:  # the number of bytes that were read last: 0 at the stream's end
            if inner.is_full:
                yield from self._flush()
                inner.make_room()
            count = read_payload(stream, inner.free_space())
            inner.end += count
            status = int(framing.Status.FULL)
            while status == framing.Status.FULL:  # the arrays are full, so more events may follow
                status, inner.at, framed = framing.frame_bare_events(inner.data, inner.at, inner.end, offset, size)
                yield from self._follow(inner, offset, size, framed)
            framing.require_undamaged(status)
        if inner.at != inner.end:
            raise Damaged("a TRANSACTION_PAYLOAD event that ends within its transaction")

    def _prove_end(self, end: int) -> None:
        """End a skipped transaction if `end` is its announced end. Raises Damaged if any transaction ends elsewhere."""
        ends = int(self.reader[ReaderState.ENDS])  # as announced by the GTID event
        if not ends:  # MariaDB's GTID event announces no end
            return
        if self._state is State.PASSING and end == ends:
            self.reader[ReaderState.STATE] = State.OUTSIDE
        is_at_end, is_complete = end == ends, self._state is State.OUTSIDE
        if end > ends or is_at_end != is_complete:
            raise Damaged(f"a transaction that should end at {ends}, and is {self._state.in_words} at {end}")

    def _end_segment(self, end: int) -> None:
        """End the segment at `end`. Raises BinlogGone if `end` is beyond the stop, or within a transaction."""
        if end > self.reader[ReaderState.STOP] or self._state is not State.OUTSIDE:
            raise grammar.no_end(self._segment.stop)
        self.is_done = True

    def _flush(self) -> Iterator[Part]:
        """Decode the row events in the arrays, and empty the arrays. After that nothing needs the row events' bytes."""
        reader = self.reader
        is_open = self._state in {State.BEGUN, State.OPEN, State.PREPARING}
        rows, transactions = int(reader[ReaderState.ROWS]), int(reader[ReaderState.TRANSACTIONS])
        if transactions and not is_open:  # the last transaction in the array is complete
            gtid, committed_at = self._events.gtid_and_time_of_last(transactions)
            self._last = Committed(self._file.file, int(reader[ReaderState.BEGUN]), gtid, committed_at)
        yield from self._events.parts(self._row_buffer.data, rows, transactions, self._file, is_open=is_open)
        reader[ReaderState.ROWS], reader[ReaderState.TRANSACTIONS] = 0, int(is_open)  # an open one stays
