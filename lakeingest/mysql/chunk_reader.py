"""Reads a chunk between its own watermarks: the four steps of DBLog's and Flink CDC's snapshot, without a lock.

1. Read low: `gtid_executed`. Any read view that opens later contains these transactions. Without GTIDs, low is the
   start of the current binlog file, because a rotation waits for earlier commits.
2. Open the read view: START TRANSACTION WITH CONSISTENT SNAPSHOT.
3. Read high: the written position, which contains everything that the view contains. High is read before the rows: the
   view does not change any more, so the window is only milliseconds long.
4. Take the table's metadata lock and read the definition while the lock is held. Prove that the session still has our
   settings (`mysql.session`), so that no result is truncated. Then read the rows in the same transaction.

MariaDB reports the binlog position of a read view. The chunk's view gives the high watermark, and another view, which
is opened earlier, gives the low watermark. But a view may lack an XA COMMIT that is before its position. So XA RECOVER
is asked between the two views. If it lists a transaction, low is an earlier position, `settled`: `xa_list.settle`
has proven that new views contain each XA COMMIT before `settled`.

With `source.replica`, the view, the lock, the definition and the rows are the replica's, while low and high are the
primary's. `mysql.replica` says why the chunk is right nevertheless.

Rows, low and high are returned together, because a retried task must never combine parts of two attempts.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, GtidSet, Low
from lakeingest.core.proofs.witness import NO_CHUNK_LOOK, ChunkLook, Compared
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.core.waves.chunks import SECONDS_MAX, Chunk
from lakeingest.core.waves.splits import Split
from lakeingest.errors import ChunkTooLarge, OperatorNeeded, SchemaChanged, SplitUnstable, UnsupportedValue
from lakeingest.mysql.connection import (
    OPEN_VIEW,
    connect,
    named_errors,
    query,
    query_row,
    server_of,
    snapshot_position,
    table_name,
    written_position,
)
from lakeingest.mysql.decoders import row_differences, select_rows, uses_slow_decoders
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.hash_key import keyed
from lakeingest.mysql.replica import catch_up, require_no_more
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.mysql.wire.matching import matching
from lakeingest.mysql.xa_list import prepared_xids
from lakeingest.rows import table_schema

PACED_SECONDS = 20.0  # the longest time for which a chunk is read slowly, because its read view is open meanwhile
READ_TRIES = 3  # how often a chunk is read while its table is being altered

Read = TypeVar("Read")


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions that a test runs between the steps. In production, they do nothing."""

    after_low: Callable[[], None] = field(default=_nothing)
    after_view: Callable[[], None] = field(default=_nothing)
    after_high: Callable[[], None] = field(default=_nothing)
    after_rows: Callable[[], None] = field(default=_nothing)


@dataclass(frozen=True, slots=True)
class Cap:
    """The limits of a chunk: seconds of its SELECT, bytes of its Arrow columns, and bytes that are read in a second.

    None: no limit. A chunk that takes longer than `PACED_SECONDS` is read at full speed from then on.
    """

    seconds: float = SECONDS_MAX
    bytes: int | None = None
    bytes_per_second: float | None = None

    def pause(self, size: int, seconds: float) -> float:
        """The seconds to wait after `size` bytes of the chunk were read in `seconds`."""
        if self.bytes_per_second is None:
            return 0.0
        return max(0.0, min(size / self.bytes_per_second, PACED_SECONDS) - seconds)


@dataclass(frozen=True, slots=True)
class SecondLook:
    """What the second decoder found in rows of a read view, and the cost: seconds of the CPU, and by the clock."""

    compared: Compared
    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The number of rows that were read, and the number of their bytes in Arrow. Both decide what a chunk costs."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """The rows of a chunk in its read view, its split, and its high watermark as a file position.

    `nulled` counts the values that are NULL only because the user chose so. `second_look`: None if nothing is compared.
    `seen` counts the rows that were read, also those that do not meet the condition of the user.
    """

    rows: pa.Table
    split: Split
    high: FilePosition
    nulled: int = 0
    second_look: SecondLook | None = None
    seen: Seen = Seen()


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows of one read view, with the view's low watermark, and its high watermark as a file position.

    `nulled` counts the values that are NULL only because the user chose so. `second_look`: None if nothing is compared.
    `seen` counts the rows that were read, also those that do not meet the condition of the user.
    """

    rows: pa.Table
    low: Low
    high: FilePosition
    nulled: int = 0
    second_look: SecondLook | None = None
    seen: Seen = Seen()


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server's identity and its executed GTIDs (None without GTIDs), read by one SELECT."""

    uuid: str
    executed: GtidSet | None


def read_chunk(
    source: Source,
    schema: TableSchema,
    chunk: Chunk,
    server_uuid: str,
    epoch: int,
    hooks: Hooks = Hooks(),
    cap: Cap = Cap(),
    settled: FilePosition | None = None,
    look: ChunkLook = NO_CHUNK_LOOK,
) -> ChunkRead:
    """Read one chunk, of at most `cap`. All other arguments and the errors are those of `read_rows`."""
    conditions = [chunk.range.predicate(schema.source_key)]
    what = source, schema, conditions, server_uuid, epoch
    read = read_rows(*what, hooks=hooks, cap=cap, settled=settled, look=look)
    split = Split(chunk.range, read.low, read.high.place(epoch))
    return ChunkRead(read.rows, split, read.high, read.nulled, read.second_look, read.seen)


def read_stable(read: Callable[[], Read]) -> Read:
    """The result of `read`, which is called until it does not raise SplitUnstable, at most `READ_TRIES` times.

    `read` must read new watermarks at each call. Raises SplitUnstable if the last call raises it.
    """
    for _ in range(READ_TRIES - 1):
        with suppress(SplitUnstable):
            return read()
    return read()


def read_rows(
    source: Source,
    schema: TableSchema,
    conditions: Sequence[str],
    server_uuid: str,
    epoch: int,
    hooks: Hooks = Hooks(),
    cap: Cap = Cap(),
    settled: FilePosition | None = None,
    look: ChunkLook = NO_CHUNK_LOOK,
) -> RowsRead:
    """Read the rows that meet one of the conditions, in one read view, with a SELECT for each condition.

    Of these rows, only those that also meet the condition of the user are returned.

    `server_uuid` and `epoch` are those of the source, which must not have been replaced. `settled` is an earlier
    position of its binlog; new read views must contain every XA COMMIT before that position. `look` says how many of
    the first condition's rows are compared with what the second decoder reads in the same view. The read opens two
    connections to the source; with a replica, one connection to the source and two connections to the replica.

    Raises:
        SplitUnstable: the table or the server changed during the read, so the rows have to be read again; or XA
            transactions are prepared on MariaDB, and no `settled` is given.
        SchemaChanged: the definition is not `schema`.
        OperatorNeeded: binlog_order_commits is OFF, or the replica has transactions that the source lacks.
        UnsupportedValue: a value cannot be copied exactly, or a key column that the user declared is NULL in a row.
        SourceAway: the replica lags.
        ChunkTooSlow, ChunkTooLarge: the read reached the cap.

    """
    # The steps are those at the head of this file. `primary` leads to the source. `reading` is another connection: to
    # the replica or, without a replica, to the source. Errors in the block name the server of `reading`.
    with connect(source) as primary, connect(source.of_rows, stream=True) as reading:
        # Steps 1 to 3: low, the view, high
        low, high = _open_view(source, reading, primary, server_uuid, epoch, hooks, settled)
        # Step 4: the definition is read under the metadata lock, so no DDL comes between it and the rows
        table = table_name(schema.table)
        query(reading, f"SELECT 1 FROM {table} LIMIT 1")  # takes the lock; error 1412 if DDL came after the view
        current = _current_schema(source, reading, primary, schema)
        if current.fingerprint != schema.fingerprint:
            raise SchemaChanged(
                f"{schema.table}: DDL changed its definition since its first chunk; copy the table again"
            )
        if source.replica is None:  # proves the server and the settings; on a replica, `_current_schema` has done so
            _require_server(reading, server_uuid)
        # the SELECT has a time limit, because an ALTER waits for the metadata lock of this transaction
        milliseconds = round(cap.seconds * 1000)
        select = dialect(reading).capped_select.format(milliseconds=milliseconds, seconds=milliseconds / 1000)
        rows, nulled, seen = _matching_rows(reading, keyed(schema, source), select, conditions, cap)
        hooks.after_rows()
        second_look = _look_again(reading, schema, select, conditions, rows, look)
        query(reading, "COMMIT")
        if source.replica is not None:  # the rows must not be those of a transaction that only the replica has
            require_no_more(source, primary, reading)
        declared_key = schema.key if schema.declared else ()  # any other key has an index without NULL
        for name in declared_key:
            if rows[name].null_count:
                name_there = schema.column(name).source_name
                raise UnsupportedValue(
                    f"{schema.table}: {name_there} is NULL in a row, and tables.options → key names it; correct the row"
                )
    return RowsRead(rows, low, high, nulled, second_look, seen)


def _open_view(
    source: Source,
    reading: pymysql.Connection,
    primary: pymysql.Connection,
    server_uuid: str,
    epoch: int,
    hooks: Hooks,
    settled: FilePosition | None,
) -> tuple[Low, FilePosition]:
    """Open the read view on the connection `reading`; return the view's low and high watermark."""
    reports_positions = dialect(primary).has_snapshot_position  # whether the server reports positions of read views
    # Step 1: low is read before the view opens, so that the view contains low; a replica catches up to low first
    with named_errors(source):  # so that errors name the primary
        low: Low
        if reports_positions:
            low = _settled_low(primary, settled).place(epoch)
        else:
            low = read_low(primary, server_uuid, epoch)
    hooks.after_low()
    if source.replica is not None:
        catch_up(reading, low)
    # Step 2: the view
    query(reading, OPEN_VIEW)
    hooks.after_view()
    # Step 3: high is read after the view has opened, so that high contains everything that the view contains
    with named_errors(source):
        high = snapshot_position(reading) if reports_positions else written_position(primary)
        _require_server(primary, server_uuid)
    hooks.after_high()
    return low, high


def _settled_low(connection: pymysql.Connection, settled: FilePosition | None) -> FilePosition:
    """The low watermark of a read view that is opened after this call, on a server that reports views' positions.

    It is the written position, or `settled` while XA transactions are prepared, because a new view may lack their XA
    COMMIT. Raises SplitUnstable if XA transactions are prepared, and no `settled` is given.
    """
    low = written_position(connection)
    view_may_lack_commits = dialect(connection).is_xa_late and prepared_xids(connection)
    if not view_may_lack_commits:
        return low
    if settled is None:
        raise SplitUnstable("XA transactions are prepared on the source; end them, and run the same command again")
    return settled


def read_low(connection: pymysql.Connection, server_uuid: str, epoch: int) -> Low:
    """The low watermark of a read view that is opened after this call, on a server that reports no positions of views.

    With GTIDs, it is the executed GTID set. Without GTIDs, it is the start of the current binlog file, because MySQL
    begins a file only when all commits in the earlier files are visible. Raises SplitUnstable if the server is not
    `server_uuid`.
    """
    state = server_state(connection)
    if state.uuid != server_uuid:
        raise SplitUnstable(f"another server answers: {state.uuid}, not {server_uuid}; run the same command again")
    if state.executed is not None:
        return state.executed
    return written_position(connection).start_of_file.place(epoch)


def _current_schema(
    source: Source, reading: pymysql.Connection, primary: pymysql.Connection, schema: TableSchema
) -> TableSchema:
    """The table's present definition on the server of `reading`, which the rows are read from.

    The definition is read on another connection than `reading`, because information_schema in the read view is as old
    as the view. Raises SplitUnstable if the other connection leads to another server than `reading`.
    """
    if source.replica is None:
        return read_schema(primary, schema.table, schema.choices)
    with connect(source.of_rows) as fresh:
        _require_server(fresh, server_of(reading))
        return read_schema(fresh, schema.table, schema.choices)


def server_state(connection: pymysql.Connection) -> ServerState:
    """The server's state. Raises OperatorNeeded if commits are not in binlog order.

    One SELECT reads all values: between two statements, binlog_order_commits could be switched off, and then the
    executed GTIDs may have gaps.
    """
    uuid, mode, ordered, executed = query_row(connection, dialect(connection).state, 4)
    if str(ordered) not in {"1", "ON"}:
        raise OperatorNeeded(
            "binlog_order_commits is OFF, so gtid_executed may have gaps; SET GLOBAL binlog_order_commits = ON"
        )
    return ServerState(str(uuid), GtidSet.parse(executed) if mode == "ON" else None)


def _require_server(connection: pymysql.Connection, server_uuid: str) -> None:
    """Raise SplitUnstable if the connection leads to another server, OperatorNeeded if the session lost a setting."""
    uuid = server_of(connection)  # raises OperatorNeeded for a lost setting
    if uuid != server_uuid:
        raise SplitUnstable(f"another server answers: {uuid}, not {server_uuid}; run the same command again")


def _matching_rows(
    connection: pymysql.Connection, schema: TableSchema, select: str, conditions: Sequence[str], cap: Cap
) -> tuple[pa.Table, int, Seen]:
    """Read the rows that meet one of `conditions`.

    Returns those rows that also meet the condition of the user; the number of values that were read and are NULL only
    because the user chose so; and the number and size of all rows that were read. Raises ChunkTooLarge if the returned
    rows would have more than `cap.bytes` bytes.
    """
    nulled: Counter[TableId] = Counter()
    batches: list[pa.RecordBatch] = []
    seen, size, began = Seen(), 0, time.monotonic()
    for condition in conditions:
        rest = f"FROM {table_name(schema.table)} WHERE {condition}"
        for batch in select_rows(connection, schema, select, rest, nulled):
            seen = Seen(seen.rows + batch.num_rows, seen.bytes + batch.nbytes)
            batches.append(matching(batch, schema))
            size += batches[-1].nbytes  # of the returned rows; `seen` has all rows
            if cap.bytes is not None and size > cap.bytes:
                raise ChunkTooLarge(
                    f"{schema.table}: a chunk has more than {cap.bytes:,} bytes; set a smaller chunk_rows"
                )
            time.sleep(cap.pause(seen.bytes, time.monotonic() - began))
    return pa.Table.from_batches(batches, table_schema(schema)), nulled.total(), seen


def _look_again(
    connection: pymysql.Connection,
    schema: TableSchema,
    select: str,
    conditions: Sequence[str],
    rows: pa.Table,
    look: ChunkLook,
) -> SecondLook | None:
    """Compare rows that meet the first condition, as many as `look` says, with what the second decoder reads.

    None if nothing is to be compared, or if a slow decoder has read `rows`: the second decoder is the same decoder.
    """
    most = look.rows_of(rows.num_rows)
    if not most or not conditions or uses_slow_decoders():
        return None
    began, cpu = time.monotonic(), time.process_time()
    compared = row_differences(connection, schema, select, conditions[0], rows, most)
    return SecondLook(compared, time.process_time() - cpu, time.monotonic() - began)
