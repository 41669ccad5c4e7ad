"""How a run begins: preflight, every table loaded or made, and a spool that covers every mark."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pymysql

from lakeingest.config import Config
from lakeingest.control.lease import held
from lakeingest.control.spool import Spool
from lakeingest.core.chunks import FIRST_ROWS
from lakeingest.core.position import FIRST_EPOCH, FilePosition, Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import LEAST_BYTES, bytes_between
from lakeingest.errors import BinlogGone, LakeIngestError, OperatorNeeded, SchemaChanged, SpoolGap, UsageError
from lakeingest.lake.formats import open_target
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.chunk_reader import ServerState, server_state
from lakeingest.mysql.connection import FILE_START, connect, file_sizes, written_position
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.key_space import estimated_rows
from lakeingest.mysql.schema_reader import list_tables
from lakeingest.pipeline.boundaries import noted
from lakeingest.pipeline.check import require
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Observer, Opened
from lakeingest.spark.scatter import warm_up
from lakeingest.spark.session import is_due, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def opened(config: Config, tables: Sequence[str], observe: Observer, spark: "SparkSession | None") -> Iterator[Context]:
    """Preflight, then all edges of a run: every table loaded or created, the spool open before the first low.

    LeaseHeld while another run of the pipeline is at work.
    """
    began = time.monotonic()
    with connect(config.source) as connection:
        known = config.tables.select(list_tables(connection))
        chosen = choose(config, known, tables)
        # the spool goes on for every table that has a copy, also where only others were asked for
        schemas, refused = require(config, connection, known, chosen, spark=spark is None)
        with held(config.state) as lease:
            target = open_target(config)
            loaded, failed = _loaded(target, schemas)
            spool = _spool(config, connection, target, loaded, unknown=any(table in schemas for table in failed))
            session = spark or (open_session(config) if is_due(config) else None)
            there = {table: one for table, one in schemas.items() if loaded.get(table) or table in failed}
            context = Context(config, lease, connection, session, target, spool, there, observe, tuple(chosen))
            context.borrowed = spark is not None
            for table, error in (refused | failed).items():
                if table in chosen:
                    context.stop(table, error)
            context.joining = {table: schemas[table] for table, staged in loaded.items() if staged is None}
            new = (table for table, staged in loaded.items() if staged is None or not staged.progress.splits.complete)
            more_than_a_chunk = any(estimated_rows(connection, schemas[table]) > FIRST_ROWS for table in new)
            if more_than_a_chunk or _bytes_behind(connection, spool.position.at) > LEAST_BYTES:
                warm_up(context.open_spark())
            for staged in filter(None, loaded.values()):
                context.advance(staged)
            observe(Opened(len(schemas), time.monotonic() - began))
            with noted(config.source, lease, spool):
                yield context


def _loaded(
    target: Target, schemas: dict[TableId, TableSchema]
) -> tuple[dict[TableId, Staged | None], dict[TableId, LakeIngestError]]:
    """Where each table stands, None for one that is new; and why others cannot go on.

    A table whose definition is another one than its copy was made with leaves `schemas`: it can only be copied again.
    """
    loaded: dict[TableId, Staged | None] = {}
    failed: dict[TableId, LakeIngestError] = {}
    for table, schema in list(schemas.items()):
        try:
            staged = target.load(table)
            if staged:
                assert_unchanged(staged, schema)
            loaded[table] = staged
        except LakeIngestError as error:
            if not error.of_table:
                raise
            failed[table] = error
            if isinstance(error, SchemaChanged):
                del schemas[table]
    return loaded, failed


def assert_unchanged(staged: Staged, schema: TableSchema) -> None:
    """SchemaChanged unless the table is still defined as its copy was made."""
    if staged.progress.fingerprint != schema.fingerprint:
        raise SchemaChanged(
            f"{schema.table}: DDL or tables.options changed its definition since it was copied; it must be copied again"
        )


def choose(config: Config, known: Sequence[TableId], names: Sequence[str]) -> list[TableId]:
    """The tables that were asked for as `database.table`, or all; UsageError for one that is not included."""
    if not known:
        raise OperatorNeeded(f"no table of the source matches tables.include {list(config.tables.include)}")
    by_name = {str(table): table for table in known}
    for name in names:
        if name not in by_name:
            raise UsageError(f"{name} is not among the source's tables that tables.include names")
    return sorted(by_name[name] for name in set(names)) or list(known)


def _spool(
    config: Config,
    connection: pymysql.Connection,
    target: Target,
    loaded: dict[TableId, Staged | None],
    *,
    unknown: bool,
) -> Spool:
    """The spool that covers every mark of the loaded tables: the one that is there, or one filled anew from the binlog.

    A table whose first copy the spool no longer covers is copied again from the start: nobody has seen it yet. With
    `unknown` tables have copies that cannot be loaded, so that the spool that is there may be needed.
    """
    folder = config.state / "spool"
    spool = Spool.load(folder)
    begun = unknown or any(staged and staged.progress.splits.all for staged in loaded.values())
    if spool is not None and begun and all(staged is None or _covered(spool, staged) for staged in loaded.values()):
        still_there(connection, spool.position)
        if spool.opened.gtids is None and not is_exact(connection) and None in loaded.values():
            return _from_file_start(connection, spool)
        return spool
    kept = []
    for table, staged in loaded.items():
        if staged is None:
            continue
        if staged.progress.splits.stop is None:
            target.discard(table)
            loaded[table] = None
        elif staged.progress.position is not None:
            kept.append(staged.progress.position)
    if kept:
        oldest = min(kept, key=lambda position: position.place)
        still_there(connection, oldest)
        return Spool.open(folder, oldest)
    return Spool.open(folder, _opening(connection))


def _bytes_behind(connection: pymysql.Connection, at: FilePosition) -> int:
    """How much of the binlog comes after a position."""
    return bytes_between(at, written_position(connection), file_sizes(connection))


def _from_file_start(connection: pymysql.Connection, spool: Spool) -> Spool:
    """The spool once more, from the start of the file it begins in.

    Without GTIDs the low watermark of a table that joins is the start of a file, which the spool has to cover for it.
    """
    opened = spool.opened
    start = Position(opened.server_uuid, opened.epoch, FilePosition(opened.at.file, FILE_START), None)
    still_there(connection, start)
    return Spool.open(spool.folder, start)


def _covered(spool: Spool, staged: Staged) -> bool:
    """Whether the spool holds every change that the table's next merge needs."""
    progress = staged.progress
    if not progress.splits.all:
        return spool.start <= progress.needed_from <= spool.position.place
    try:
        spool.files(progress.table, progress.needed_from, spool.position.place)
    except SpoolGap:
        return False
    return True


def _opening(connection: pymysql.Connection) -> Position:
    """Where a first spool begins: no transaction that is not executed yet stands before it.

    The file first, then the executed set: a rotation waits for the commits of earlier files, so all of them are
    executed. Where a position is exact, it is that.
    """
    at = written_position(connection)
    if not is_exact(connection):
        at = FilePosition(at.file, FILE_START)
    state = server_state(connection)
    return Position(state.uuid, FIRST_EPOCH, at, state.executed)


def is_exact(connection: pymysql.Connection) -> bool:
    """Whether the low watermark of a read view is its place, which is never before a position that was read before."""
    return dialect(connection).shows_snapshots


def still_there(connection: pymysql.Connection, position: Position) -> None:
    """BinlogGone unless the source still has, and still is, the binlog that the position stands in."""
    state = server_state(connection)
    same_history(state, position)
    if position.at.file not in file_sizes(connection):
        raise BinlogGone(f"the source has purged {position.at.file}, from which on changes are missing")
    written = written_position(connection)
    if written.place(0) < position.at.place(0):
        raise BinlogGone(f"the source's binlog ends at {written}, before our position {position.at}: it was reset")


def same_history(state: ServerState, position: Position) -> None:
    """BinlogGone unless the server is the one that the position is of, and has executed all up to there."""
    if state.uuid != position.server_uuid:
        raise BinlogGone(
            f"the source is another server now: {state.uuid}, the position {position.at} is of {position.server_uuid}"
        )
    if (state.executed is None) != (position.gtids is None):
        raise BinlogGone("the source's gtid_mode was changed since the last run; the tables must be copied again")
    if state.executed is not None and position.gtids is not None and not position.gtids <= state.executed:
        raise BinlogGone(
            f"the source lacks {position.gtids - state.executed}, which is copied already: its binlog was reset"
        )
