"""Failover: finds a position of another server in the binlog of this server, so that a run can continue on this server.

`core.binlog.failover` decides. This file reads the facts: the GTIDs before each binlog file, and the transactions of
the one file in which the position's last transaction ends.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.failover import Found, Logged, find, is_related, newest
from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet, Position, file_start, files_after, is_before
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
from lakeingest.errors import (
    BinlogGone,
    LakeIngestError,
    OperatorNeeded,
    RestartNeeded,
    SourceBehind,
    SourceDiverged,
    UnsupportedEvent,
)
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import (
    clock,
    connect,
    file_sizes,
    free_server_id,
    query_dicts,
    query_row,
    written_position,
)
from lakeingest.mysql.continuity import executed_with, file_began, wait_until_over
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.domains import find_on, gtids_before, has_gtid, transactions_of
from lakeingest.rows import Part


class ThisServer:
    """The binlog of the server that the source is now. The GTIDs before a binlog file are read at most once.

    `epoch` is the number of this server's history in the positions that are found.
    """

    def __init__(self, source: Source, connection: pymysql.Connection, epoch: int) -> None:
        self._source, self._connection, self._epoch = source, connection, epoch
        self._state, self._files = server_state(connection), list(file_sizes(connection))
        self._before = dict[str, GtidSet]()  # by binlog file
        self._purged: GtidSet | None = None

    def moved(self, saved: Position, tables: Mapping[TableId, TableSchema]) -> tuple[Position, frozenset[TableId]]:
        """The saved position on this server, and the tables among `tables` that errant transactions may have changed.

        MariaDB's GTIDs are compared by `mysql.domains`.

        Raises:
            SourceBehind: this server lacks transactions of the position, and is still replicating.
            SourceDiverged: this server lacks transactions of the position, or has other transactions in their place.
            BinlogGone: this server has purged the binlog after the position, or one of the two servers has no GTIDs.

        """
        # Step 1: find where the position ends on this server
        end_here = self._find_end(saved)
        # Step 2: read the file up to that end, for the history that later runs compare
        stop, facts = end_here.end, SegmentFacts()
        for _ in self._read(file_start(stop.file), stop, skip=GtidSet(), facts=facts):
            pass  # read to the end, which sets `facts`
        # Step 3: wait until the second in which the file began is over. A binlog that is reset from now on begins in a
        # later second, by which later runs tell it from this binlog
        if facts.history is not None and facts.history.began is not None:
            wait_until_over(self._connection, facts.history.began)
        position_here = end_here.position(saved, self._state.uuid, self._epoch, facts.history)
        # Step 4: find the tables that errant transactions have changed
        return position_here, self._tables_changed_by_errant(saved, end_here, tables)

    def takes_over(self, saved: Position) -> bool:
        """Whether this server continues the history of a position, as far as its GTIDs tell.

        Also True for a server that still replicates, and does not have all transactions of the position yet.
        """
        if self._state.executed is not None:
            return is_related(saved, self._state.executed)
        # without a set of executed GTIDs, as on MariaDB, the position itself must be found
        try:
            self._find_end(saved)
        except SourceBehind:  # the server still gets the missing transactions
            return True
        except RestartNeeded:
            return False
        return True

    def position_at(self, at: FilePosition) -> Position:
        """The position at a place of this server's binlog, with all transactions up to it.

        Raises BinlogGone if the binlog from there on is purged, and OperatorNeeded if no transaction ends there.
        """
        # Step 1: read the file up to the place, for the transactions and for the history that later runs compare
        if is_before(at, file_start(self._files[0])):
            raise BinlogGone(f"the source has purged {at.file}; its first binlog file is {self._files[0]}")
        if at.file not in self._files:
            raise OperatorNeeded(f"no transaction of the source's binlog ends at {at}: it has no such file")
        facts, has_gtids = SegmentFacts(), self._state.executed is not None
        gtids = self._before_file(at.file) if has_gtids else None
        try:
            for _, rows in self._read(file_start(at.file), at, skip=GtidSet(), facts=facts):
                if gtids is not None:
                    gtids |= GtidSet.of_gtids(_gtids_of(rows))
        except (RestartNeeded, UnsupportedEvent, ValueError) as error:
            raise OperatorNeeded(f"no transaction of the source's binlog ends at {at}: {error}") from error
        history = facts.history or History(file_began(self._source, at.file))  # at the file's start nothing was read
        # Step 2: wait as in `moved`, and until the server has executed all these transactions
        if history.began is not None:
            wait_until_over(self._connection, history.began)
        state = executed_with(self._connection, gtids or GtidSet())
        return Position(state.uuid, self._epoch, at, gtids, history)

    def position_after(self, gtids: GtidSet) -> Position:
        """The position that has exactly these transactions.

        Raises BinlogGone if this server has purged transactions that are not among `gtids`. Raises OperatorNeeded if no
        position of its binlog has exactly `gtids`.
        """
        executed = self._state.executed
        if executed is None:
            raise OperatorNeeded("the source has no GTIDs of MySQL, so a GTID set names no position of its binlog")
        if missing := gtids - executed:
            raise OperatorNeeded(f"the source has not executed {missing}")
        # The last of `gtids` is in the newest file before which some of `gtids` are missing. Without such a file, all
        # are before the first file.
        file = newest(self._files, lambda name: not gtids <= self._before_file(name))
        end = file_start(file or self._files[0])
        if file is not None:
            ends = [each.end for each in self._transactions(file) if each.gtid in gtids]
            end = ends[-1]
        position = self.position_at(end)
        if others := (position.gtids or GtidSet()) - gtids:
            if unread := self._before_file(self._files[0]) - gtids:
                raise BinlogGone(f"the source has purged {unread}, which come after the named GTIDs or between them")
            raise OperatorNeeded(f"the GTID set names no position: {others} come before its last transaction")
        return position

    def position_before(self, moment: datetime) -> Position:
        """The position before the first transaction that was committed at this moment or later.

        If there is no such transaction, it is the end of the binlog. MariaDB stores whole seconds: there, a transaction
        of the same second counts as committed at the moment or later.

        Raises BinlogGone if the source may have purged transactions after the moment, and OperatorNeeded for a moment
        in the future.
        """
        micros = int(moment.timestamp() * 1_000_000)
        if micros // 1_000_000 > clock(self._connection):
            raise OperatorNeeded(f"{moment.isoformat()} is in the future, by the source's clock")
        # after this wait, nothing more is committed before the moment; the clock has whole seconds
        wait_until_over(self._connection, micros // 1_000_000)
        if dialect(self._connection) is MARIADB:
            micros -= micros % 1_000_000
        # `file` is the newest file that was begun in a second before the moment. Older files have only transactions
        # from before the moment. On a replica, newer files may have such transactions, too.
        file = newest(self._files, lambda name: file_began(self._source, name) < micros // 1_000_000)
        if file is None:
            first = self._files[0]
            raise BinlogGone(f"the source's binlog begins with {first}, which is newer than {moment.isoformat()}")
        end = file_start(file)
        for name in [file, *files_after(end, self._files)]:
            for each in self._logged(name):
                if each.committed_at >= micros:
                    return self.position_at(end)
                end = each.end
        return self.position_at(end)

    def _logged(self, file: str) -> Iterator[Logged[Any]]:
        """Yield the transactions of a binlog file, with or without GTIDs."""
        if dialect(self._connection) is not MARIADB:
            yield from self._transactions(file)
            return
        with connect(self._source) as reading:
            yield from transactions_of(reading, file, free_server_id(reading, self._source))

    def _find_end(self, saved: Position) -> Found:
        """Where the saved position ends in this server's binlog. The errors are those of `moved`."""
        executed = self._state.executed
        last = None if saved.history is None else saved.history.last  # the position's last transaction
        # on MariaDB the position is found by its last transaction
        if last is not None and executed is None and dialect(self._connection) is MARIADB and has_gtid(last):
            replicates = is_replicating(self._connection)
            return find_on(self._source, self._connection, last, replicates=replicates)
        # from here on both servers must be MySQL with GTIDs
        if saved.gtids is None or executed is None:
            raise BinlogGone(
                f"the source is another server now: {self._state.uuid}, the position {saved.at} is of"
                f" {saved.server_uuid}, and without GTIDs it cannot be found here"
            )
        if missing := saved.gtids - executed:
            if is_replicating(self._connection):
                raise SourceBehind(
                    f"the source is another server now, {self._state.uuid}, and does not have {missing} yet;"
                    " run the same command again when it has caught up"
                )
            raise SourceDiverged(f"the source is another server now, {self._state.uuid}, and lacks {missing}")
        purged = self._before_file(self._files[0])
        if unread := purged - saved.gtids:
            raise BinlogGone(f"the source is another server now, and has purged {unread}, which the copy lacks")

        def has_more_to_come(name: str) -> bool:
            """Whether transactions of the position are in this file or in later files."""
            return bool(saved.gtids and not saved.gtids <= self._before_file(name))

        file = newest(self._files, has_more_to_come)  # the position ends in this file
        if file is None:
            raise BinlogGone("the source is another server now, and has purged all transactions that are copied")
        return find(saved, self._before_file(file), self._transactions(file))

    def _before_file(self, file: str) -> GtidSet:
        """The transactions before a binlog file: in older files, in purged files, and in restored data.

        Raises BinlogGone if the file does not name them.
        """
        if self._purged is None:  # gtid_purged has the transactions of purged files and of restored data
            self._purged = GtidSet.parse(str(query_row(self._connection, "SELECT @@global.gtid_purged", 1)[0]))
        if file not in self._before:
            self._before[file] = self._purged | GtidSet.parse(gtids_before(self._connection, file, "Previous_gtids"))
        return self._before[file]

    def _transactions(self, file: str) -> Iterator[Logged[Gtid]]:
        """Yield the transactions of a binlog file, with the positions at which they end."""
        for _, rows in self._read(file_start(file), self._end_of(file), skip=GtidSet()):  # rows of TRANSACTIONS
            positions = rows["pos"].to_pylist()
            times = rows["committed_at"].cast("int64").to_pylist()  # in µs
            for gtid, pos, committed_at in zip(_gtids_of(rows), positions, times, strict=True):
                yield Logged(gtid, FilePosition(file, pos), committed_at)

    def _end_of(self, file: str) -> FilePosition:
        """The start of the next binlog file; for the newest file, the written position."""
        later = files_after(file_start(file), self._files)
        return file_start(later[0]) if later else written_position(self._connection)

    def _tables_changed_by_errant(
        self, saved: Position, end_here: Found, tables: Mapping[TableId, TableSchema]
    ) -> frozenset[TableId]:
        """The tables that errant transactions have changed, and the tables that have DDL after an errant transaction.

        Such DDL may have given a table the rows of another table, which an errant transaction had changed.
        """
        if not end_here.errant:
            return frozenset()
        # the newest file that begins before all errant transactions; without such a file, all binlog is read
        start = file_start(newest(self._files, self._begins_before(end_here.errant)) or self._files[0])
        copied = saved.gtids or GtidSet()

        def read_rows(examined: Mapping[TableId, TableSchema]) -> Iterator[Part]:
            return self._read(start, end_here.end, skip=copied, watched=examined)

        def read_ddl(examined: Mapping[TableId, TableSchema]) -> Iterator[Part]:
            # nothing is skipped: DDL of copied transactions counts, too
            return self._read(start, end_here.end, skip=GtidSet(), waiting=examined)

        changed = self._changed_in(tables, read_rows)
        altered = self._changed_in(tables, read_ddl)
        return frozenset(changed | altered)

    def _begins_before(self, gtids: GtidSet) -> Callable[[str], bool]:
        """A function that tells whether a binlog file begins before all of these transactions."""
        return lambda file: not gtids & self._before_file(file)

    def _changed_in(
        self, tables: Mapping[TableId, TableSchema], read: Callable[[Mapping[TableId, TableSchema]], Iterator[Part]]
    ) -> set[TableId]:
        """The tables with rows among the parts that `read` yields, and the tables of events that `read` refuses.

        `read` is called with the tables that are still to be examined. An error that names no tables is raised.
        """
        changed = set[TableId]()
        while True:  # a refused event ends the read; the next read leaves the event's tables out, so it gets further
            try:
                parts = read(_tables_without(tables, changed))
                changed |= {table for table, _ in parts if table is not None}
            except LakeIngestError as error:
                if not error.tables:
                    raise
                changed |= error.tables
            else:
                return changed

    def _read(
        self,
        start: FilePosition,
        stop: FilePosition,
        skip: GtidSet,
        *,
        watched: Mapping[TableId, TableSchema] = NO_TABLES,
        waiting: Mapping[TableId, TableSchema] = NO_TABLES,
        facts: SegmentFacts | None = None,
    ) -> Iterator[Part]:
        """Yield the parts of a segment of this server's binlog, without the transactions in `skip` (`read_segment`)."""
        segment = Segment(self._state.uuid, self._epoch, start, stop, skip)
        with connect(self._source) as connection:
            server_id = free_server_id(connection, self._source)
            yield from read_segment(connection, segment, watched, server_id, facts, waiting)


def _gtids_of(rows: pa.RecordBatch) -> Iterator[Gtid]:
    """The GTIDs of rows of `rows.TRANSACTIONS`."""
    columns = (rows[name].to_pylist() for name in ("uuid", "tag", "number"))
    return (Gtid(uuid, number, tag or "") for uuid, tag, number in zip(*columns, strict=True))


def _tables_without(tables: Mapping[TableId, TableSchema], left_out: Collection[TableId]) -> dict[TableId, TableSchema]:
    return {table: schema for table, schema in tables.items() if table not in left_out}


def is_replicating(connection: pymysql.Connection) -> bool:
    """Whether the server receives or applies transactions of another server."""
    for status in query_dicts(connection, "SHOW REPLICA STATUS"):
        states = [str(status[name]) for name in status if name.endswith(("_io_running", "_sql_running"))]
        if any(state != "No" for state in states):  # `Yes`, and also `Connecting`
            return True
    return False
