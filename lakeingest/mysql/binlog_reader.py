"""Reads a segment of the binlog, which the server sends as to a replica, to Arrow batches."""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import COMMAND, CR, ER

from lakeingest.config import Source
from lakeingest.core.position import FILE_START, FilePosition, GtidSet, file_start, is_before, is_in_one_of
from lakeingest.core.prepared import Pending, Prepared, PreparedAt, Xid
from lakeingest.core.schema import NO_TABLES, TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import BinlogGone, SourceAway, SourceReplaced, UnsupportedEvent
from lakeingest.mysql.connection import (
    KILLED,
    connect,
    file_sizes,
    free_server_id,
    query,
    query_row,
    source_of,
    written_position,
)
from lakeingest.mysql.decoders import change_rows, received
from lakeingest.mysql.dialect import MARIADB, can_log_cascades, copies_xa, dialect
from lakeingest.mysql.packets import dumped_events
from lakeingest.mysql.statement_reach import StatementReach
from lakeingest.mysql.wire.events import HEARTBEATS, Damaged, Event, Type, has_checksums
from lakeingest.mysql.wire.grammar import other_history
from lakeingest.mysql.wire.segment_facts import SegmentFacts
from lakeingest.mysql.wire.xa import Stamp
from lakeingest.rows import Part

if TYPE_CHECKING:
    from lakeingest.mysql.wire.segment import SegmentDecoder

__all__ = ["Part", "SegmentFacts", "can_begin_at", "dump_events", "read_event", "read_segment"]

_DUMP_POS_MAX = 0xFFFFFFFF  # the command has four bytes for a position
_NON_BLOCK = 1  # at the end of the binlog, end the dump
_WITH_ANNOTATIONS = 2  # MariaDB: send all events, or positions do not add up
_GTIDS_KNOWN = 4  # MariaDB: send GTID events unchanged
_DUMP = struct.Struct("<IHI")
_BEFORE_EVENT = 100  # packets: where a dump begins, a server sends the file's name, its format, and heartbeats
_FATAL_READING = 1236
_INTERRUPTED = 1317
_LOST = {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN, _INTERRUPTED, *KILLED}


def read_segment(
    connection: pymysql.Connection,
    segment: Segment,
    schemas: Mapping[TableId, TableSchema],
    server_id: int,
    facts: SegmentFacts | None = None,
    waiting: Mapping[TableId, TableSchema] = NO_TABLES,
    prepared: PreparedAt | None = None,
) -> Iterator[Part]:
    """The change rows of the tables in `schemas`, and a log row for each transaction that is not in `skip`.

    Rows of a table, and those of the log, are in binlog order. They count only when the iterator ends without an
    error; then `facts` are those of the whole segment. Where the segment has the history of its start, that is proven
    before the first part. Of the tables in `waiting` there are no rows, but their DDL is refused, too; where a table
    could be lifted over it, the UnsupportedEvent has its `ddl`. `prepared` is what is prepared (XA) where the segment
    starts, or at a place before that; without it, the binlog is searched.

    The connection must be fresh and cannot be used afterwards; the caller closes it. No replica may have `server_id`.

    Raises:
        BinlogGone: the server does not have this segment.
        SourceReplaced: it is another server.
        SourceAway: the connection breaks.
        SchemaChanged, UnsupportedEvent, UnsupportedValue: something in the segment cannot be replayed exactly.

    """
    if segment.empty:
        return
    begin, facts = _dump_start(segment), facts or SegmentFacts()
    if not can_begin_at(begin):
        begin = begin.start_of_file
    try:
        uuid, gtid_mode, *_ = query_row(connection, dialect(connection).state, 4)
        _require_segment(str(uuid), written_position(connection), segment)
        _start_dump(connection, begin, server_id)
        source = source_of(connection)
        replay = _Replay(source, segment, server_id, schemas, prepared)
        replay.ends_twice = dialect(connection).is_xa_late
        yield from change_rows(
            connection,
            segment,
            begin,
            schemas,
            waiting,
            facts,
            gtids=gtid_mode == "ON",
            reach=StatementReach(source),
            replay=replay if copies_xa(connection) else None,
        )
        facts.nulled.update(replay.nulled)
        facts.lacks_cascades &= can_log_cascades(connection)
    except pymysql.err.MySQLError as error:
        raise _dump_error(error, f"{segment.start} to {segment.stop}") from error


def _dump_start(segment: Segment) -> FilePosition:
    """Where the dump begins: with the event that ends at the segment's start, if that is known, to prove it."""
    history = segment.history
    return segment.start if not (history and history.event) else FilePosition(segment.start.file, history.event.pos)


class _Replay:
    """Reads XA transactions again that were prepared in the binlog. Each read opens a connection (`wire.xa.Replay`).

    `known` says what is prepared at some place of it. If that is not after the segment's start, nothing older is read,
    and the segment has no transactions to skip, which may be prepared, too.
    """

    def __init__(
        self,
        source: Source,
        segment: Segment,
        server_id: int,
        schemas: Mapping[TableId, TableSchema],
        known: PreparedAt | None,
    ) -> None:
        self._source, self._segment, self._server_id = source, segment, server_id
        self._schemas = schemas
        self._known = self._known_at_start = None if known is None or is_before(segment.start, known.at) else known
        self._pending = Pending()  # prepared before what the segment's reader has seen
        self._looked_to: FilePosition | None = None  # and since this place
        self.nulled = Counter[TableId]()
        self.ends_twice = False  # whether the server may end a transaction twice

    def find(self, xid: Xid, at: FilePosition) -> Prepared:
        """Where the transaction was prepared that is committed at `at`, and was prepared before the segment."""
        if self._looked_to is None:
            self._looked_to = at if self._known is None else self._segment.start
        if xid not in self._pending.prepared:
            self._look_back(xid, self._looked_to)
        if xid not in self._pending.prepared:
            raise self._lost(at, self._schemas)
        return self._pending.prepared[xid]

    def rows(self, found: Prepared, at: FilePosition, stamp: Stamp) -> Iterator[Part]:
        """The change rows of a prepared transaction, as rows of the transaction `stamp`, which commits it at `at`."""
        from lakeingest.mysql.wire.segment import SegmentDecoder

        segment = replace(self._segment, start=found.start, stop=found.stop, skip=GtidSet(), history=None)
        begin = found.start if can_begin_at(found.start) else found.start.start_of_file
        if not is_in_one_of(begin, self._files()):
            raise self._lost(at, found.changed(self._schemas))
        decoder = SegmentDecoder(segment, begin, self._schemas, gtids=False, stamp=stamp)
        for table, batch in self._read(segment, begin, decoder):
            if table is not None:
                yield table, batch
        self.nulled += decoder.nulled

    def _look_back(self, xid: Xid, stop: FilePosition) -> None:
        """Read the binlog before `stop`, the newest file first, until it shows where this was prepared."""
        starts = [start for start in map(file_start, self._files()) if is_before(start, stop)]
        while starts and xid not in self._pending.prepared:
            start, known = starts[-1], self._known
            if known is not None and is_before(start, known.at):
                start, self._known = known.at, None
            else:
                starts.pop()
                known = None
            self._pending = self._pending.after(self._pending_in(start, stop))
            if known is not None:
                self._pending = self._pending.after(Pending(dict(known.prepared)))
            self._looked_to = stop = start

    def prove_prepared(self, xid: Xid, at: FilePosition) -> None:
        """UnsupportedEvent if the transaction that is rolled back at `at` had ended before that.

        Only MariaDB may end it twice: after a crash in which it had written XA COMMIT and not shown the rows yet.
        """
        for start, stop in self._parts_before(at) if self.ends_twice else ():
            found = self._pending_in(start, stop, frozenset({xid}))
            if xid in found.prepared:
                return
            if xid in found.ended:
                error = UnsupportedEvent(
                    f"the binlog holds an XA ROLLBACK at {at} of a transaction that had ended before that: the source"
                    " was killed during its XA COMMIT, and differs from its binlog; copy the tables again"
                )
                error.tables = frozenset(self._schemas)
                raise error
            if self._known_at_start and start == self._known_at_start.at and xid in self._known_at_start.prepared:
                return

    def _parts_before(self, stop: FilePosition) -> list[tuple[FilePosition, FilePosition]]:
        """The binlog before a position, the newest part first: files, cut where something is known."""
        starts = {file_start(file) for file in self._files()}
        starts |= {self._known_at_start.at} if self._known_at_start else set()
        ordered = sorted((one for one in starts if is_before(one, stop)), key=lambda one: (one.number, one.pos))
        return list(zip(ordered, [*ordered[1:], stop], strict=True))[::-1]

    def last_before(self, xids: frozenset[Xid]) -> tuple[frozenset[Xid], frozenset[Xid]]:
        """Of these, those that have ended before the segment, and all others that are not in the segment."""
        later = self._pending_in(self._segment.start, self._segment.stop, xids)
        others = left = xids.difference(later.prepared, later.ended)
        ended = frozenset[Xid]()
        for part in self._parts_before(self._segment.start) if left else ():
            if not left:
                break
            found = self._pending_in(*part, left)
            ended |= (left & found.ended).difference(found.prepared)
            left = left.difference(found.prepared, found.ended)
        return ended, others - ended

    def _pending_in(self, start: FilePosition, stop: FilePosition, sought: frozenset[Xid] = frozenset()) -> Pending:
        """What a part of the binlog leaves prepared, and what ends in it."""
        from lakeingest.mysql.wire.segment import SegmentDecoder

        if start == stop:
            return Pending()
        segment = replace(self._segment, start=start, stop=stop, skip=GtidSet(), history=None)
        begin = start if can_begin_at(start) else start.start_of_file
        decoder = SegmentDecoder(segment, begin, {}, gtids=False)
        decoder.xa.pending = Pending(sought=sought)
        for _ in self._read(segment, begin, decoder):
            pass
        return decoder.xa.pending

    def _files(self) -> list[str]:
        with connect(self._source) as connection:
            return list(file_sizes(connection))

    def _read(self, segment: Segment, begin: FilePosition, decoder: "SegmentDecoder") -> Iterator[Part]:
        with connect(self._source) as connection:
            uuid, *_ = query_row(connection, dialect(connection).state, 4)
            _require_segment(str(uuid), written_position(connection), segment)
            _start_dump(connection, begin, free_server_id(connection, self._source, self._server_id))
            try:
                yield from received(connection, decoder)
            except pymysql.err.MySQLError as error:
                raise _dump_error(error, f"{segment.start} to {segment.stop}") from error

    def _lost(self, at: FilePosition, tables: Iterable[TableId]) -> UnsupportedEvent:
        error = UnsupportedEvent(
            f"the binlog holds an XA COMMIT at {at}, but not the XA PREPARE of its transaction any more; keep the "
            "binlog for longer than transactions stay prepared, then copy the tables again"
        )
        error.tables = frozenset(tables)
        return error


def last_before(
    source: Source, segment: Segment, server_id: int, xids: Collection[Xid]
) -> tuple[frozenset[Xid], frozenset[Xid]]:
    """Of these XA transactions, those that have ended before the segment, and all others that are not in the segment.

    The binlog is read backwards, until it shows each of them. The errors are those of `read_segment`.
    """
    return _Replay(source, segment, server_id, NO_TABLES, None).last_before(frozenset(xids))


def can_begin_at(at: FilePosition) -> bool:
    """Whether a dump can begin at a position: the command cannot express positions beyond 4 GiB."""
    return at.pos <= _DUMP_POS_MAX


def read_event(connection: pymysql.Connection, at: FilePosition, server_id: int) -> tuple[int, Event, bytes]:
    """The second in which the file was begun; the event that begins at `at`, and its bytes as the server sends them.

    At the start of a file the event is its FORMAT_DESCRIPTION. BinlogGone where no event begins at `at`. The connection
    must be fresh and cannot be used afterwards.
    """
    began, checksums = 0, True
    try:
        _start_dump(connection, at, server_id)
        for raw in islice(dumped_events(connection), _BEFORE_EVENT):
            event = Event.parse(raw, checksums=checksums)
            if event.type == Type.FORMAT_DESCRIPTION:
                began, checksums = event.seconds, has_checksums(raw)
            elif event.is_artificial or event.type in HEARTBEATS:
                continue
            if event.type != Type.FORMAT_DESCRIPTION or at.pos == FILE_START:
                return began, event, raw
    except Damaged as damage:
        raise other_history(at, str(damage)) from damage
    except pymysql.err.MySQLError as error:
        raise _dump_error(error, f"{at}") from error
    raise other_history(at, "it ends there")


def assert_same_server(uuid: str, expected: str, at: FilePosition) -> None:
    """SourceReplaced unless the server that answers is the one that a saved position is of."""
    if uuid != expected:
        raise SourceReplaced(
            f"the source is another server now: {uuid}, the position {at} is of {expected};"
            " `lakeingest run` goes on with it, or says why it cannot"
        )


def _require_segment(uuid: str, written: FilePosition, segment: Segment) -> None:
    """SourceReplaced unless the server is that of the segment, BinlogGone unless it has written the segment."""
    assert_same_server(uuid, segment.server_uuid, segment.start)
    if is_before(written, segment.stop):
        raise BinlogGone(f"the source's binlog ends at {written}, before {segment.stop}; copy the tables again")


def _start_dump(connection: pymysql.Connection, begin: FilePosition, server_id: int) -> None:
    # Without it, the server refuses to send events with checksums. MySQL knows the first name from 8.0.26 on.
    # What init_connect may have set would make the reader a semi-synchronous replica, or one that begins at a GTID.
    query(
        connection,
        "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', @rpl_semi_sync_replica = 0,"
        " @rpl_semi_sync_slave = 0, @slave_connect_state = NULL",
    )
    flags = _NON_BLOCK
    if dialect(connection) is MARIADB:
        query(connection, f"SET @mariadb_slave_capability = {_GTIDS_KNOWN}")
        flags |= _WITH_ANNOTATIONS
    request = _DUMP.pack(begin.pos, flags, server_id) + begin.file.encode()
    wire: Any = connection  # the driver has no public way to send a command
    wire._execute_command(COMMAND.COM_BINLOG_DUMP, request)  # noqa: SLF001


def dump_events(connection: pymysql.Connection, begin: FilePosition, server_id: int) -> Iterator[bytes]:
    """The events that the server sends from `begin` on, up to the end of its binlog, with their headers.

    The connection must be fresh and cannot be used afterwards. No replica may have `server_id`.
    """
    _start_dump(connection, begin, server_id)
    return dumped_events(connection)


def _dump_error(error: pymysql.err.MySQLError, what: str) -> Exception:
    """The lakeingest error for a driver's error during the dump of `what`; other driver errors stay as they are."""
    code, text = (*error.args, 0, "")[:2]
    if code == _FATAL_READING and "replica with the same" not in str(text):
        return BinlogGone(f"the source cannot send {what}: {text}; copy the tables again")
    if code in _LOST or code == _FATAL_READING or isinstance(error, pymysql.err.InterfaceError):
        return SourceAway(f"the source stopped sending its binlog: {text}; run the same command again")
    return error
