"""Reads a chunk between its own watermarks: the four steps of DBLog's and Flink CDC's snapshot, without a lock.

1. low: `gtid_executed`, which any read view opened after it contains (without GTIDs: the start of the current file,
   because a rotation waits for earlier commits).
2. the read view opens: START TRANSACTION WITH CONSISTENT SNAPSHOT.
3. high: the written position, which contains everything that the view sees. It is read now, not after the rows: the
   view is fixed, so the window is milliseconds.
4. the table's metadata lock; the definition, read while the lock is held; the proof that the session is ours
   (`mysql.session`: so no result is truncated); then the rows, in the same transaction.

MariaDB reports the position of a read view in the binlog. The chunk's own view gives the high watermark, and a view
that is opened earlier gives the low one. But a view may lack an XA COMMIT that is before its position. If XA RECOVER,
asked between the two views, lists any transaction, low is a position that was proved to have no such commit before it
(`xa_list.settle`).

With `source.replica`, the view, the lock, the definition and the rows are the replica's, while low and high are the
primary's; `mysql.replica` says why this is right.

Rows, low, high and definition are returned together: a retried task must never combine parts of two attempts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.core.chunks import SECONDS_MAX, Chunk
from lakeingest.core.position import FilePosition, GtidSet, Low
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.splits import Split
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
from lakeingest.mysql.decoders import select_rows
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.replica import catch_up, has_no_more
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.mysql.xa_list import listed
from lakeingest.rows import table_schema

READ_TRIES = 3  # of a chunk, while its table is being altered

Read = TypeVar("Read")


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions that a test runs between the steps; empty in production."""

    after_low: Callable[[], None] = field(default=_nothing)
    after_view: Callable[[], None] = field(default=_nothing)
    after_high: Callable[[], None] = field(default=_nothing)
    after_rows: Callable[[], None] = field(default=_nothing)


@dataclass(frozen=True, slots=True)
class Cap:
    """The limits of a chunk: seconds of its SELECT, and bytes of its Arrow columns (None: no limit)."""

    seconds: float = SECONDS_MAX
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """The rows of a chunk as its read view sees them, its split, and its high watermark as a file position.

    `nulled` counts the values that are NULL only because the user chose so.
    """

    rows: pa.Table
    split: Split
    high: FilePosition
    nulled: int = 0


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows as one read view saw them, with the view's low watermark, and its high watermark as a file position.

    `nulled` counts the values that are NULL only because the user chose so.
    """

    rows: pa.Table
    low: Low
    high: FilePosition
    nulled: int = 0


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
) -> ChunkRead:
    """Read one chunk; `settled` and the errors are those of `read_rows`."""
    read = read_rows(source, schema, (chunk.range.predicate(schema.key),), server_uuid, epoch, hooks, cap, settled)
    return ChunkRead(read.rows, Split(chunk.range, read.low, read.high.place(epoch)), read.high, read.nulled)


def read_stable(read: Callable[[], Read]) -> Read:
    """The result of `read`, which is repeated a few times if its table changes during the read.

    Each try takes its own watermarks. Raises SplitUnstable if the table changes during the last try, too.
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
) -> RowsRead:
    """Read the rows that meet one of the conditions, in one read view, with a SELECT for each condition.

    `settled` is an earlier position of the binlog: new views contain every XA COMMIT before it. The read opens two
    connections to the server `server_uuid`; with a replica, one to that server and two to the replica.

    Raises:
        SplitUnstable: the table or the server changed during the read, so it has to be read again; or XA transactions
            are prepared on MariaDB, and no `settled` is given.
        SchemaChanged: the definition is not `schema`.
        OperatorNeeded: binlog_order_commits is OFF, or the replica has transactions that its primary lacks.
        UnsupportedValue: a value cannot be copied exactly, or a key column that the user declared is NULL in a row.
        SourceAway: the replica lags.
        ChunkTooSlow, ChunkTooLarge: the read reached the cap.

    """
    # The steps are those at the head of this file. Errors in the block name the server of the inner connection.
    with connect(source) as beside, connect(source.of_rows, stream=True) as reading:
        # Steps 1 to 3: low, the view, high
        low, high = _marked_view(source, reading, beside, server_uuid, epoch, hooks, settled)
        # Step 4: the definition is read under the metadata lock, so no DDL comes between it and the rows
        table = table_name(schema.table)
        query(reading, f"SELECT 1 FROM {table} LIMIT 1")  # takes the lock; error 1412 if DDL came after the view
        current = _definition(source, reading, beside, schema)
        if current.fingerprint != schema.fingerprint:
            raise SchemaChanged(
                f"{schema.table}: DDL changed its definition since its first chunk; copy the table again"
            )
        if source.replica is None:
            _same_server(reading, server_uuid)
        # capped: an ALTER would wait for the metadata lock of an open transaction
        milliseconds = round(cap.seconds * 1000)
        select = dialect(reading).capped_select.format(milliseconds=milliseconds, seconds=milliseconds / 1000)
        rows, nulled = _rows(reading, schema, select, conditions, cap)
        hooks.after_rows()
        query(reading, "COMMIT")
        if source.replica is not None:
            has_no_more(source, beside, reading)
        for name in schema.key if schema.declared else ():
            if rows[name].null_count:
                raise UnsupportedValue(
                    f"{schema.table}: {name} is NULL in a row, and tables.options → key names it; correct the row"
                )
    return RowsRead(rows, low, high, nulled)


def _marked_view(
    source: Source,
    reading: pymysql.Connection,
    beside: pymysql.Connection,
    server_uuid: str,
    epoch: int,
    hooks: Hooks,
    settled: FilePosition | None,
) -> tuple[Low, FilePosition]:
    """Open the read view; return its low and its high watermark."""
    is_exact = dialect(beside).has_snapshot_position
    # Step 1: low, before the view opens, so that the view contains it; a replica must have it by then
    with named_errors(source):
        low = _settled_low(beside, settled).place(epoch) if is_exact else read_low(beside, server_uuid, epoch)
    hooks.after_low()
    if source.replica is not None:
        catch_up(reading, low)
    # Step 2: the view
    query(reading, OPEN_VIEW)
    hooks.after_view()
    # Step 3: high, after the view opened, so that high contains all that the view sees
    with named_errors(source):
        high = snapshot_position(reading) if is_exact else written_position(beside)
        _same_server(beside, server_uuid)
    hooks.after_high()
    return low, high


def _settled_low(connection: pymysql.Connection, settled: FilePosition | None) -> FilePosition:
    """The low watermark of a read view that is opened after this returns, on a server that shows views' positions.

    Raises SplitUnstable if XA transactions are prepared, and no `settled` is given.
    """
    low = written_position(connection)
    if not (dialect(connection).is_xa_late and listed(connection)):
        return low
    if settled is None:
        raise SplitUnstable("XA transactions are prepared on the source; end them, and run the same command again")
    return settled


def read_low(connection: pymysql.Connection, server_uuid: str, epoch: int) -> Low:
    """The low watermark of a read view that is opened after this returns. Raises SplitUnstable on another server."""
    state = server_state(connection)
    if state.uuid != server_uuid:
        raise SplitUnstable(f"another server answers: {state.uuid}, not {server_uuid}; run the same command again")
    if state.executed is not None:
        return state.executed
    return written_position(connection).start_of_file.place(epoch)


def _definition(
    source: Source, reading: pymysql.Connection, beside: pymysql.Connection, schema: TableSchema
) -> TableSchema:
    """The table's definition on the server that its rows are read from.

    It is read on another connection: inside the view, information_schema is as old as the view.
    """
    if source.replica is None:
        return read_schema(beside, schema.table, schema.choices)
    with connect(source.of_rows) as beside_reading:
        _same_server(beside_reading, server_of(reading))
        return read_schema(beside_reading, schema.table, schema.choices)


def server_state(connection: pymysql.Connection) -> ServerState:
    """The server's state. Raises OperatorNeeded if commits are not in binlog order.

    One SELECT reads it all: binlog_order_commits can be switched off at any moment, and the executed set has gaps then.
    """
    uuid, mode, ordered, executed = query_row(connection, dialect(connection).state, 4)
    if str(ordered) not in {"1", "ON"}:
        raise OperatorNeeded(
            "binlog_order_commits is OFF, so gtid_executed may have gaps; SET GLOBAL binlog_order_commits = ON"
        )
    return ServerState(str(uuid), GtidSet.parse(executed) if mode == "ON" else None)


def _same_server(connection: pymysql.Connection, server_uuid: str) -> None:
    """Raise SplitUnstable if another server answers on this connection."""
    uuid = server_of(connection)
    if uuid != server_uuid:
        raise SplitUnstable(f"another server answers: {uuid}, not {server_uuid}; run the same command again")


def _rows(
    connection: pymysql.Connection, schema: TableSchema, select: str, conditions: Sequence[str], cap: Cap
) -> tuple[pa.Table, int]:
    """The rows that meet the conditions, and the number of values that are NULL only because the user chose so."""
    nulled: Counter[TableId] = Counter()
    batches: list[pa.RecordBatch] = []
    size = 0
    for condition in conditions:
        rest = f"FROM {table_name(schema.table)} WHERE {condition}"
        for batch in select_rows(connection, schema, select, rest, nulled):
            batches.append(batch)
            size += batch.nbytes
            if cap.bytes is not None and size > cap.bytes:
                raise ChunkTooLarge(
                    f"{schema.table}: a chunk has more than {cap.bytes:,} bytes; set a smaller chunk_rows"
                )
    return pa.Table.from_batches(batches, table_schema(schema)), nulled.total()
