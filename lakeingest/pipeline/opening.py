"""How a run begins: preflight, every table loaded or made, and a spool that covers every mark."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pymysql

from lakeingest.config import Config
from lakeingest.core.chunks import FIRST_ROWS
from lakeingest.core.history import History
from lakeingest.core.position import FIRST_EPOCH, FilePosition, Place, Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import LEAST_BYTES, Segment, bytes_between
from lakeingest.errors import LakeIngestError, SchemaChanged
from lakeingest.lake.formats import open_target
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import FILE_START, connect, file_sizes, written_position
from lakeingest.mysql.continuity import file_began, wait_until_over
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.key_space import estimated_rows
from lakeingest.mysql.schema_reader import list_tables
from lakeingest.pipeline.binlog_ingest import SpoolSegment
from lakeingest.pipeline.boundaries import check_boundaries, noted
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Observer, Opened, WentBack
from lakeingest.pipeline.preconditions import require
from lakeingest.pipeline.resume import owner, resumption
from lakeingest.spark.scatter import warm_up
from lakeingest.spark.session import is_due, open_session
from lakeingest.spool.spool import Spool
from lakeingest.state.definition import keep_definition
from lakeingest.state.lease import held
from lakeingest.state.owner import claim

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
        chosen = config.tables.choose(known, tables)
        # the spool goes on for every table that has a copy, also where only others were asked for
        schemas, refused = require(config, connection, known, chosen, spark=spark is None)
        ours = owner(config, connection, schemas)
        with held(config.state) as lease:
            claim(config.state, ours)
            target = open_target(config)
            loaded, failed = _loaded(target, schemas)
            for table, staged in loaded.items():
                if staged and staged.lost:
                    observe(WentBack(table, staged.lost))
            spool = _spool(config, connection, target, schemas, loaded, failed)
            check_boundaries(config.source, connection, spool)
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
                keep_definition(config.state, schemas[staged.progress.table])
            observe(Opened(len(schemas), time.monotonic() - began))
            with noted(config.source, lease, lambda: context.spool):
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


def _spool(
    config: Config,
    connection: pymysql.Connection,
    target: Target,
    schemas: dict[TableId, TableSchema],
    loaded: dict[TableId, Staged | None],
    failed: dict[TableId, LakeIngestError],
) -> Spool:
    """The spool that covers every mark of the loaded tables: the one that is there, or one filled anew from the binlog.

    A table whose first copy cannot be gone on with is copied again from the start: nobody has seen it yet. One whose
    position cannot be gone on from fails, and leaves `schemas`. Of a table in `failed` that is in `schemas` the copy
    cannot be loaded: the spool that is there may be needed for it.
    """
    copied = {table: one.progress for table, one in loaded.items() if one}
    unknown = any(table in schemas for table in failed)
    chosen = resumption(config, connection, schemas, copied, unknown=unknown)
    for table in chosen.again:
        target.discard(table)
        loaded[table] = None
    for table, error in chosen.failed.items():
        failed[table] = error
        del loaded[table], schemas[table]
    if chosen.spool is not None:
        return chosen.spool
    begins = chosen.begins or _opening(config, connection)
    if None in loaded.values() and _has_low_at_file_start(connection, begins):
        begins = _file_start(begins)
    return Spool.open(config.state / "spool", begins)


@dataclass(frozen=True, slots=True)
class Joined:
    """The spool, from where on it watches tables that join, and which of them it cannot watch."""

    spool: Spool
    start: Place
    stopped: Mapping[TableId, LakeIngestError] = field(default_factory=dict)


def watched_from(
    config: Config, connection: pymysql.Connection, spool: Spool, joining: Mapping[TableId, TableSchema]
) -> Joined:
    """From where on the spool watches tables that join.

    That is its position, but without GTIDs it may be the start of the file that the position is in: the low watermark
    of a table that joins now is the start of the source's current file.
    """
    position, start = spool.position, _file_start(spool.position)
    if not joining or position == start or not _has_low_at_file_start(connection, position):
        return Joined(spool, position.place)
    if start.place < spool.start:  # it begins in this file: read from the file's start for all
        return Joined(Spool.open(spool.folder, start), start.place)
    segment = Segment.after(start, position.at)
    decoded = SpoolSegment(config.source, segment, joining, spool.folder, position.at.pos).run()
    spool.widen(decoded.manifest)
    return Joined(spool, start.place, decoded.stopped)


def _has_low_at_file_start(connection: pymysql.Connection, position: Position) -> bool:
    """Whether a low watermark that is read from now on may be before the position."""
    without_gtids = position.gtids is None and not is_exact(connection)
    return without_gtids and written_position(connection).number <= position.at.number


def _file_start(position: Position) -> Position:
    """The start of the file that a position without GTIDs is in."""
    history = None if position.history is None else History(position.history.began)
    return replace(position, at=FilePosition(position.at.file, FILE_START), history=history)


def _bytes_behind(connection: pymysql.Connection, at: FilePosition) -> int:
    """How much of the binlog comes after a position."""
    return bytes_between(at, written_position(connection), file_sizes(connection))


def _opening(config: Config, connection: pymysql.Connection) -> Position:
    """Where a first spool begins: no transaction that is not executed yet stands before it.

    The file first, then the executed set: a rotation waits for the commits of earlier files, so all of them are
    executed. Where a position is exact, it is that.
    """
    at, began = _dated_position(config, connection)
    if not is_exact(connection):
        at = FilePosition(at.file, FILE_START)
    state = server_state(connection)
    return Position(state.uuid, FIRST_EPOCH, at, state.executed, History(began))


def _dated_position(config: Config, connection: pymysql.Connection) -> tuple[FilePosition, int]:
    """The written position, and the second in which its file was begun, which is over.

    So a binlog that is reset from now on begins in another second.
    """
    at = written_position(connection)
    while True:
        file, began = at.file, file_began(config.source, at.file)
        wait_until_over(connection, began)
        at = written_position(connection)
        if at.file == file:
            return at, began


def is_exact(connection: pymysql.Connection) -> bool:
    """Whether the low watermark of a read view is its place, which is never before a position that was read before."""
    return dialect(connection).shows_snapshots
