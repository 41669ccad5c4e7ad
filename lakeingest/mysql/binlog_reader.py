"""Reads a segment of the binlog into Arrow batches. The server sends the segment as it would to a replica."""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import COMMAND, CR, ER

from lakeingest.config import Source
from lakeingest.core.binlog.position import FILE_START, FilePosition, GtidSet, file_start, is_before, is_in_one_of
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.copies.prepared import Pending, Prepared, PreparedAt, Xid
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
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
from lakeingest.mysql.decoders import change_rows, receive_parts
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

__all__ = ["Part", "SegmentFacts", "can_begin_at", "dump_error", "dump_events", "read_event", "read_segment"]

_DUMP_POS_MAX = 0xFFFFFFFF  # the command has four bytes for a position
_NON_BLOCK = 1  # at the end of the binlog, end the dump
_WITH_ANNOTATIONS = 2  # MariaDB: send all events, because positions are counted from the sizes of events
_GTIDS_KNOWN = 4  # MariaDB: send GTID events unchanged
_DUMP = struct.Struct("<IHI")
_BEFORE_EVENT = 100  # the most packets that are read to find one event: the file's name and format precede the event
_FATAL_READING = 1236  # the server cannot read the binlog that was asked for, or ended the dump for another replica
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
    """Yield the change rows of the tables in `schemas`, and a row of `rows.TRANSACTIONS` for each transaction.

    Transactions in `segment.skip` are left out. The rows of each table are in binlog order, and so are the rows of
    transactions. All rows are valid only if the iterator ends without an error; then `facts` describe the whole
    segment. If `segment.history` is given, it is compared with the binlog before the first part is yielded. DDL of
    tables in `schemas` or `waiting` is refused by an error, whose `ddl` is this DDL if a copy can be lifted over it.
    `prepared` has the XA transactions that were prepared at the segment's start, or at an earlier position. Without
    `prepared`, the XA PREPARE of a transaction that the segment commits is searched for in the binlog.

    The connection must be fresh and cannot be used afterwards: close it. `server_id` must not be that of a replica.

    Raises:
        BinlogGone: the server does not have this segment.
        SourceReplaced: the connection leads to another server.
        SourceAway: the connection breaks.
        SchemaChanged, UnsupportedEvent, UnsupportedValue: something in the segment cannot be replayed exactly.

    """
    if segment.empty:
        return
    facts = facts or SegmentFacts()
    begin = _dump_start(segment)
    if not can_begin_at(begin):
        begin = begin.start_of_file  # the decoder passes over the events before the segment
    try:
        uuid, gtid_mode, *_ = query_row(connection, dialect(connection).state, 4)
        _require_segment(str(uuid), written_position(connection), segment)
        _start_dump(connection, begin, server_id)
        source = source_of(connection)
        replay = _Replay(source, segment, server_id, schemas, prepared)
        # a server that logs an XA COMMIT before its effect may lose the effect in a crash, and then log an end again
        replay.may_end_twice = dialect(connection).is_xa_late
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
        # a version that cannot log changes by foreign keys never sets the flag of row events: its lack says nothing
        facts.lacks_cascades &= can_log_cascades(connection)
    except pymysql.err.MySQLError as error:
        raise dump_error(error, f"{segment.start} to {segment.stop}") from error


def _dump_start(segment: Segment) -> FilePosition:
    """The position where the dump begins: the segment's start, or one event before it.

    It is one event before the start if the segment's history has that event, because the event proves the history.
    """
    history = segment.history
    if history and history.event:
        return FilePosition(segment.start.file, history.event.pos)
    return segment.start


class _Replay:
    """Reads prepared XA transactions from the binlog again (`wire.xa.Replay`). Each read opens a connection.

    `prepared` has the transactions that are prepared at the position `prepared.at`, so that the binlog before
    `prepared.at` need not be read for them. `prepared` is ignored if `prepared.at` is after the segment's start. A
    segment with `prepared` must have no transactions to skip, because a skipped transaction may be an XA PREPARE.
    """

    def __init__(
        self,
        source: Source,
        segment: Segment,
        server_id: int,
        schemas: Mapping[TableId, TableSchema],
        prepared: PreparedAt | None,
    ) -> None:
        self._source, self._segment, self._server_id = source, segment, server_id
        self._schemas = schemas
        is_too_new = prepared is not None and is_before(segment.start, prepared.at)
        self._known_at_start = None if is_too_new else prepared  # never changes
        self._known = self._known_at_start  # becomes None when `_pending` contains these transactions
        self._pending = Pending()  # the transactions in the part of the binlog that `_look_back` has read
        self._looked_to: FilePosition | None = None  # the start of that part; None before the first search
        self.nulled = Counter[TableId]()
        self.may_end_twice = False  # whether the server may write two ends of a transaction

    def find(self, xid: Xid, at: FilePosition) -> Prepared:
        """Find the XA PREPARE of the transaction `xid`, which the segment commits at `at`.

        The XA PREPARE is before the segment, or the segment skips it. Raises UnsupportedEvent if the binlog does not
        have the XA PREPARE.
        """
        if self._looked_to is None:
            # Without known transactions, the search goes backwards from `at` and not from the segment's start, because
            # the segment may skip the XA PREPARE.
            self._looked_to = at if self._known is None else self._segment.start
        if xid not in self._pending.prepared:  # an earlier search may have found it
            self._look_back(xid, self._looked_to)
        if xid not in self._pending.prepared:
            raise self._error_without_prepare(at, self._schemas)
        return self._pending.prepared[xid]

    def rows(self, prepared: Prepared, at: FilePosition, stamp: Stamp) -> Iterator[Part]:
        """Yield the change rows of a prepared transaction as rows of `stamp`, the transaction that commits it at `at`.

        Raises UnsupportedEvent if the binlog with its XA PREPARE has been purged.
        """
        from lakeingest.mysql.wire.segment import SegmentDecoder

        of_prepared = replace(self._segment, start=prepared.start, stop=prepared.stop, skip=GtidSet(), history=None)
        begin = prepared.start if can_begin_at(prepared.start) else prepared.start.start_of_file
        if not is_in_one_of(begin, self._files()):
            raise self._error_without_prepare(at, prepared.changed(self._schemas))
        decoder = SegmentDecoder(of_prepared, begin, self._schemas, gtids=False, stamp=stamp)
        for table, batch in self._read(of_prepared, begin, decoder):
            if table is not None:  # None: the row of TRANSACTIONS, which `self._segment` itself has for `stamp`
                yield table, batch
        self.nulled += decoder.nulled

    def _look_back(self, xid: Xid, stop: FilePosition) -> None:
        """Read the binlog before `stop`, the newest file first, until the XA PREPARE of the transaction is found.

        If the whole binlog does not have the XA PREPARE, the transaction stays missing in `_pending`.
        """
        starts = [start for start in map(file_start, self._files()) if is_before(start, stop)]  # oldest first
        unread = stop  # the binlog before this place is not read yet
        while starts and xid not in self._pending.prepared:
            start = starts[-1]  # of the newest file that is not read completely
            known = self._known
            if known is not None and is_before(start, known.at):
                # The known transactions are those of a place in this file: read only the part after that place. If
                # `xid` is not among them, the next turn reads the part before that place.
                self._known = None
                newer = self._pending.after(self._pending_in(known.at, unread))
                self._pending = newer.after(Pending(dict(known.prepared)))
                unread = known.at
            else:
                self._pending = self._pending.after(self._pending_in(start, unread))
                starts.pop()
                unread = start
            self._looked_to = unread

    def prove_prepared(self, xid: Xid, at: FilePosition) -> None:
        """Raise UnsupportedEvent if the transaction that is rolled back at `at` had ended earlier.

        Only MariaDB can end a transaction twice: after a crash between the write of its XA COMMIT and the moment in
        which its rows become visible.
        """
        if not self.may_end_twice:
            return
        # the newest part that prepares or ends the transaction decides; if there is no such part, nothing is wrong
        for start, stop in self._parts_before(at):
            part = self._pending_in(start, stop, frozenset({xid}))
            if xid in part.prepared:
                return
            if xid in part.ended:
                error = UnsupportedEvent(
                    f"the binlog holds an XA ROLLBACK at {at} of a transaction that had ended before that: the source"
                    " was killed during its XA COMMIT, and differs from its binlog; copy the tables again"
                )
                error.tables = frozenset(self._schemas)
                raise error
            # the transaction is known to be prepared at `start`, so the binlog before `start` need not be read
            if self._known_at_start and start == self._known_at_start.at and xid in self._known_at_start.prepared:
                return

    def _parts_before(self, stop: FilePosition) -> list[tuple[FilePosition, FilePosition]]:
        """The start and the stop of each part of the binlog before `stop`, the newest part first.

        A part is a file. Only the file with the position of known transactions is divided, at that position.
        """
        starts = {file_start(file) for file in self._files()}
        if self._known_at_start:
            starts.add(self._known_at_start.at)
        starts_before = [start for start in starts if is_before(start, stop)]
        parts = []
        for start in sorted(starts_before, key=lambda start: (start.number, start.pos), reverse=True):
            parts.append((start, stop))
            stop = start  # the next part stops where this one starts
        return parts

    def ended_before(self, xids: frozenset[Xid]) -> tuple[frozenset[Xid], frozenset[Xid]]:
        """Two sets among `xids`, as the function `ended_before` returns them for the segment."""
        in_segment = self._pending_in(self._segment.start, self._segment.stop, xids)
        not_in_segment = xids.difference(in_segment.prepared, in_segment.ended)
        if not not_in_segment:  # then the list of binlog files is not needed either
            return frozenset(), frozenset()
        ended = frozenset[Xid]()
        unseen = not_in_segment  # transactions without an event in the segment and in the parts that were read
        # the newest part first, because the last event of a transaction counts
        for start, stop in self._parts_before(self._segment.start):
            if not unseen:
                break
            part = self._pending_in(start, stop, unseen)
            # a name that is in both sets was prepared again after its end, and that transaction has not ended
            ended |= unseen & (part.ended - part.prepared.keys())
            unseen = unseen.difference(part.prepared, part.ended)
        return ended, not_in_segment - ended

    def _pending_in(self, start: FilePosition, stop: FilePosition, sought: frozenset[Xid] = frozenset()) -> Pending:
        """The transactions that the binlog from `start` to `stop` prepares and does not end, and those that it ends.

        A transaction that this part both prepares and ends counts as ended only if it is in `sought`.
        """
        from lakeingest.mysql.wire.segment import SegmentDecoder

        if start == stop:
            return Pending()
        segment = replace(self._segment, start=start, stop=stop, skip=GtidSet(), history=None)
        begin = start if can_begin_at(start) else start.start_of_file
        decoder = SegmentDecoder(segment, begin, {}, gtids=False)
        decoder.xa.pending = Pending(sought=sought)
        for _ in self._read(segment, begin, decoder):
            pass  # to the stop: the decoder collects the transactions
        return decoder.xa.pending

    def _files(self) -> list[str]:
        """The names of the source's binlog files, oldest first."""
        with connect(self._source) as connection:
            return list(file_sizes(connection))

    def _read(self, segment: Segment, begin: FilePosition, decoder: "SegmentDecoder") -> Iterator[Part]:
        """Yield the parts that the decoder makes of a dump from `begin` on. The dump has its own connection."""
        with connect(self._source) as connection:
            uuid, *_ = query_row(connection, dialect(connection).state, 4)
            _require_segment(str(uuid), written_position(connection), segment)
            _start_dump(connection, begin, free_server_id(connection, self._source, self._server_id))
            try:
                yield from receive_parts(connection, decoder)
            except pymysql.err.MySQLError as error:
                raise dump_error(error, f"{segment.start} to {segment.stop}") from error

    def _error_without_prepare(self, at: FilePosition, tables: Iterable[TableId]) -> UnsupportedEvent:
        """The error for an XA COMMIT at `at` whose XA PREPARE is no longer in the binlog. The error stops `tables`."""
        error = UnsupportedEvent(
            f"the binlog holds an XA COMMIT at {at}, but not the XA PREPARE of its transaction any more; keep the "
            "binlog for longer than transactions stay prepared, then copy the tables again"
        )
        error.tables = frozenset(tables)
        return error


def ended_before(
    source: Source, segment: Segment, server_id: int, xids: Collection[Xid]
) -> tuple[frozenset[Xid], frozenset[Xid]]:
    """Two sets of XA transactions among `xids`: those that ended before the segment, and those that did not.

    Transactions that the segment prepares or ends are in neither set. The binlog before the segment is read backwards
    until each transaction is found, or to the oldest file. The errors are those of `read_segment`.
    """
    replay = _Replay(source, segment, server_id, schemas=NO_TABLES, prepared=None)
    return replay.ended_before(frozenset(xids))


def can_begin_at(at: FilePosition) -> bool:
    """Whether a dump can begin at a position. The command cannot express positions beyond 4 GiB."""
    return at.pos <= _DUMP_POS_MAX


def read_event(connection: pymysql.Connection, at: FilePosition, server_id: int) -> tuple[int, Event, bytes]:
    """Read the event that begins at `at`. Returns the second in which the file was begun, the event, and its bytes.

    At the start of a file the event is the file's FORMAT_DESCRIPTION. The connection must be fresh and cannot be used
    afterwards. Raises BinlogGone if no event begins at `at`.
    """
    began, checksums = 0, True
    try:
        _start_dump(connection, at, server_id)
        for raw in islice(dumped_events(connection), _BEFORE_EVENT):
            event = Event.parse(raw, checksums=checksums)
            if event.type == Type.FORMAT_DESCRIPTION:  # each dump sends it before the event at `at`
                began, checksums = event.seconds, has_checksums(raw)
                if at.pos == FILE_START:  # there it is itself the event at `at`
                    return began, event, raw
            elif not event.is_artificial and event.type not in HEARTBEATS:  # those two are not in the file
                return began, event, raw
    except Damaged as damage:
        raise other_history(at, str(damage)) from damage
    except pymysql.err.MySQLError as error:
        raise dump_error(error, f"{at}") from error
    raise other_history(at, "it ends there")


def assert_same_server(uuid: str, expected: str, at: FilePosition) -> None:
    """Raise SourceReplaced if `uuid`, the present server, is not `expected`, the server of the saved position `at`."""
    if uuid != expected:
        raise SourceReplaced(
            f"the source is another server now: {uuid}, the position {at} is of {expected};"
            " `lakeingest run` continues on the new server, or says why it cannot"
        )


def _require_segment(uuid: str, written: FilePosition, segment: Segment) -> None:
    """Raise SourceReplaced if the server is not that of the segment, BinlogGone if its binlog ends before the stop."""
    assert_same_server(uuid, segment.server_uuid, segment.start)
    if is_before(written, segment.stop):
        raise BinlogGone(f"the source's binlog ends at {written}, before {segment.stop}; copy the tables again")


def _start_dump(connection: pymysql.Connection, begin: FilePosition, server_id: int) -> None:
    """Send the command that makes the server send its binlog from `begin` on, as to a replica."""
    # Without source_binlog_checksum (before MySQL 8.0.26 and on MariaDB: master_binlog_checksum) the server refuses to
    # send events with checksums. The other variables are reset, because init_connect may have set them, and then the
    # server would take this connection for a semi-synchronous replica, or would begin at a GTID.
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
    """Yield the events, with their headers, that the server sends: from `begin` to the end of its binlog.

    `connection` and `server_id` are as in `read_segment`. Raises the driver's errors, which `dump_error` names.
    """
    _start_dump(connection, begin, server_id)
    return dumped_events(connection)


def dump_error(error: pymysql.err.MySQLError, what: str) -> Exception:
    """The lakeingest error for a driver's error during the dump of `what`; the driver's own if there is none."""
    code, text = (*error.args, 0, "")[:2]  # 0 and "" stand for missing arguments
    ended_for_other_replica = code == _FATAL_READING and "replica with the same" in str(text)
    if code == _FATAL_READING and not ended_for_other_replica:
        return BinlogGone(f"the source cannot send {what}: {text}; copy the tables again")
    if ended_for_other_replica or code in _LOST or isinstance(error, pymysql.err.InterfaceError):
        return SourceAway(f"the source stopped sending its binlog: {text}; run the same command again")
    return error
