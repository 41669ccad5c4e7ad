"""Opening: preflight, every table is loaded, and the spool covers every mark of the tables."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pymysql

from lakeingest.config import Config
from lakeingest.core.chunks import FIRST_ROWS
from lakeingest.core.history import History
from lakeingest.core.position import (
    FilePosition,
    GtidSet,
    Position,
    bytes_between,
    in_same_file,
)
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import LEAST_BYTES
from lakeingest.errors import LakeIngestError, NotOurCopy, SchemaChanged
from lakeingest.files.file import state_of
from lakeingest.lake.identity import identify
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import connect, file_sizes, named_errors, written_position
from lakeingest.mysql.continuity import executed_with, file_began, last_transaction, wait_until_over
from lakeingest.mysql.key_space import estimated_rows
from lakeingest.pipeline.binlog.boundaries import check_boundaries, noted
from lakeingest.pipeline.binlog.coverage import has_low_at_file_start, is_exact
from lakeingest.pipeline.events import ClockWrong, Observer, Opened, WentBack
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.opening.failover import go_on
from lakeingest.pipeline.opening.resumption import Resumption, asked_anew, owner, resumption
from lakeingest.pipeline.preconditions import require
from lakeingest.pipeline.publishing.publish import DEFINITION
from lakeingest.pipeline.rolling_back import roll_all_back
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.clocks import disagreement, patient
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.executors import Executors
from lakeingest.pipeline.run.foreign_keys import know_foreign_keys
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.quiet_tables import QuietTables, open_target
from lakeingest.pipeline.run.signal_run import SignalRun
from lakeingest.pipeline.run.stopping import stop, working_on
from lakeingest.pipeline.run.table_run import TableRun, Watch
from lakeingest.spark.scatter import warm_up
from lakeingest.spark.session import is_due, open_session
from lakeingest.spool.halts import waits
from lakeingest.spool.spool import Spool
from lakeingest.state.definition import definition_of, keep_definition, restore_definition
from lakeingest.state.lease import held
from lakeingest.state.owner import claim, hand_over
from lakeingest.state.signals import SignalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = TypeVar("Answer")


@contextmanager
def opened(config: Config, tables: Sequence[str], observe: Observer, spark: "SparkSession | None") -> Iterator[OpenRun]:
    """Preflight, then every table is loaded, and the spool is open before the first low watermark.

    LeaseHeld while another run of the pipeline is at work.
    """
    began = time.monotonic()
    with connect(config.source) as connection:
        known = known_tables(config, connection)
        requested = config.tables.choose(known.tables, tables)
        # the spool continues for every table that has a copy, also when the run is for other tables only
        schemas, refused = require(config, connection, known.tables, requested, spark=spark is None)
        ours, before = owner(config, connection, schemas)
        with held(state_of(config)) as lease:
            claim(state_of(config), before or ours)
            identify(config)
            quiet = QuietTables.of(state_of(config))
            config = patient(config, connection)
            roll_all_back(config, lease, observe)
            target = open_target(config, quiet)
            altered = dict[TableId, TableSchema]()
            loaded, failed = _loaded(config, connection, target, schemas, altered)
            _tell(connection, loaded, observe)
            asked = asked_anew(config, requested, loaded) - refused.keys()
            spool, again, chosen = _spool(config, connection, target, schemas, loaded, failed, asked)
            if before is not None:
                hand_over(state_of(config), ours)
            again |= {table for table, one in loaded.items() if one and _has_other_rows(one, schemas[table])}
            again |= {table for table in altered if (one := loaded.get(table)) and not one.progress.splits.complete}
            check_boundaries(config.source, connection, spool)
            session = spark or (open_session(config) if is_due() else None)
            executors = Executors(config, session, borrowed=spark is not None)
            edges = Edges(config, connection, target, quiet, lease, executors, observe)
            runs = _table_runs(config, requested, schemas, loaded, failed, again, spool)
            for name in altered.keys() & runs.keys():  # the others fail by their position, and were not asked for
                runs[name].altered_unseen = True
            signals = SignalRun(SignalFolder(state_of(config)))
            left = {} if tables else known.left
            run = OpenRun(edges, runs, BinlogRun(spool, runs), signals, takes_new=not tables, left=left)
            for table, error in (refused | failed).items():
                if table in requested:
                    stop(edges, runs[table], error, asked=table in asked)
            know_foreign_keys(edges, run.binlog)
            go_on(edges, runs, chosen.moved, chosen.back)
            for table, staged in loaded.items():
                if staged is not None and table not in again:  # else its rows may have the definition of before
                    with working_on(edges, runs[table]):
                        kept = keep_definition(state_of(config), schemas[table])
                        runs[table].suspect = kept.suspect and not is_restarted(staged)
            if _is_large(config, connection, run):
                warm_up(executors.open())
            observe(Opened(len(schemas), time.monotonic() - began))
            with noted(config.source, lease, lambda: run.binlog.spool):
                yield run


def _tell(connection: pymysql.Connection, loaded: Mapping[TableId, Staged | None], observe: Observer) -> None:
    """Say what is remarkable in what was loaded: a clock that disagrees, and files that were lost."""
    if (wrong := disagreement(connection, loaded)) is not None:
        observe(ClockWrong(wrong))
    for table, staged in loaded.items():
        if staged and staged.lost:
            observe(WentBack(table, staged.lost))


def _table_runs(
    config: Config,
    requested: Sequence[TableId],
    schemas: Mapping[TableId, TableSchema],
    loaded: Mapping[TableId, Staged | None],
    failed: Collection[TableId],
    again: Collection[TableId],
    spool: Spool,
) -> dict[TableId, TableRun]:
    """All tables of the run, the requested tables first.

    A table with a definition that is missing in `loaded` has a copy which cannot be loaded now: it stays watched. One
    that is loaded and has `failed` was asked for, and its copy is started over.
    """
    runs = {}
    for table in dict.fromkeys([*requested, *schemas]):
        schema, staged = schemas.get(table), loaded.get(table)
        watch = Watch.WATCHED
        if schema is None or (table in loaded and table in failed):
            watch = Watch.UNWATCHED
        elif table in again or (table in loaded and staged is None):
            watch = Watch.JOINING
        elif staged is not None and waits(spool, table, staged.progress.needed_from):
            watch = Watch.WAITING
        options, is_requested = config.tables.of(table), table in requested
        runs[table] = TableRun(table, options, schema, is_requested, watch, follows=config.evolves)
        runs[table].over_gap = table in again
        if staged is not None:
            runs[table].advance(staged)
    return runs


def _is_large(config: Config, connection: pymysql.Connection, run: OpenRun) -> bool:
    """Whether the run needs Spark soon: a table of several chunks is to be copied, or much of the binlog is unread."""
    to_copy = (
        table.schema
        for table in run.tables.values()
        if table.watch is Watch.JOINING or (table.copy is not None and table.has_missing_chunks)
    )
    rows = (_unless_away(config, 0, partial(estimated_rows, connection, schema)) for schema in to_copy)
    if any(count > FIRST_ROWS for count in rows):
        return True
    unread = bytes_between(run.binlog.spool.position.at, written_position(connection), file_sizes(connection))
    return unread > LEAST_BYTES


def _loaded(
    config: Config,
    connection: pymysql.Connection,
    target: Target,
    schemas: dict[TableId, TableSchema],
    altered: dict[TableId, TableSchema],
) -> tuple[dict[TableId, Staged | None], dict[TableId, LakeIngestError]]:
    """The staged state of each table, None for a new table; and for other tables why they cannot be loaded.

    Where DDL has changed the definition of a table since the copy, `schemas` gets the one that its rows have, and
    `altered` the new one: the binlog tells how one becomes the other. Where that one is not known, the table is removed
    from `schemas`: it can only be copied again. So is one of another pipeline, which needs no change of it from here.
    """
    loaded: dict[TableId, Staged | None] = {}
    failed: dict[TableId, LakeIngestError] = {}
    for table, schema in list(schemas.items()):
        try:
            staged = target.recover(table)
            if staged and _is_begun_in_vain(config, connection, staged, schema):
                target.discard(table)
                staged = None
            if staged:
                _restore_definition(config, target, staged)
                known = schemas[table] = _as_copied(config, staged, schema)
                if not known.reads_as(schema):
                    altered[table] = schema
            loaded[table] = staged
        except LakeIngestError as error:
            if not error.of_table:
                raise
            failed[table] = error
            if isinstance(error, SchemaChanged | NotOurCopy):
                del schemas[table]
    return loaded, failed


def _restore_definition(config: Config, target: Target, staged: Staged) -> None:
    """Where the state folder was lost, the last publish tells how the rows were defined."""
    table, fingerprint = staged.progress.table, staged.progress.fingerprint
    if staged.published is not None and definition_of(state_of(config), table, fingerprint) is None:
        restore_definition(state_of(config), table, fingerprint, target.properties(table).get(DEFINITION, ""))


def _is_kept(config: Config, connection: pymysql.Connection, staged: Staged | None, schema: TableSchema) -> bool:
    """Whether a copy that cannot be continued is more than a few chunks that nobody has seen."""
    return staged is not None and (staged.published is not None or _is_worth(config, connection, staged, schema))


def _is_worth(config: Config, connection: pymysql.Connection, staged: Staged, schema: TableSchema) -> bool:
    return _unless_away(config, True, partial(is_worth_comparing, connection, staged, schema))


def _unless_away(config: Config, unknown: Answer, ask: Callable[[], Answer]) -> Answer:
    """The source's answer to a question about one table; `unknown` if other sessions lock it, or DDL has dropped it.

    The table then stops when the run reads its rows.
    """
    try:
        with named_errors(config.source):
            return ask()
    except LakeIngestError as error:
        if not error.of_table:
            raise
        return unknown


def is_restarted(staged: Staged) -> bool:
    """Whether a copy that readers see was started over, or went on over a gap, and is not complete since."""
    return staged.published is not None and (staged.progress.gap or not staged.progress.splits.complete)


def _is_begun_in_vain(config: Config, connection: pymysql.Connection, staged: Staged, schema: TableSchema) -> bool:
    """Whether DDL came into a first copy, of which too little is there to be compared."""
    is_partial = staged.published is None and not staged.progress.splits.complete
    if not (is_partial and config.evolves and _has_other_rows(staged, schema)):
        return False
    return config.asks or not _is_worth(config, connection, staged, schema)


def _as_copied(config: Config, staged: Staged, schema: TableSchema) -> TableSchema:
    """The definition that the rows of the copy have; SchemaChanged where the copy cannot follow to that of now.

    Where the rows are not complete, and can have that of now, it is that one. The same definition has the layout of
    when they were read: without names in the binlog, the rows before DDL that changes only that are read by it.
    """
    if staged.progress.fingerprint == schema.fingerprint:
        known = definition_of(state_of(config), schema.table, schema.fingerprint)
        if known is None:
            return schema.laid_out()
        return schema.laid_out(known) if known.reads_as(schema) else known
    if config.evolves and not config.asks and not staged.progress.splits.complete:
        return schema  # its rows were being read again, and are once more
    known = definition_of(state_of(config), schema.table, staged.progress.fingerprint)
    is_ddl = known is not None and known.choices == schema.choices
    if known is None or not is_ddl or not config.evolves or not staged.progress.splits.complete:
        assert_unchanged(staged, schema)
        raise RuntimeError(f"{schema.table}: its definition is unchanged, and is not")
    return known


def _has_other_rows(staged: Staged, schema: TableSchema) -> bool:
    return staged.progress.fingerprint != schema.fingerprint


def assert_unchanged(staged: Staged, schema: TableSchema) -> None:
    """SchemaChanged unless the table is still defined as its copy was made."""
    if _has_other_rows(staged, schema):
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
    asked: Collection[TableId],
) -> tuple[Spool, frozenset[TableId], Resumption]:
    """A spool that covers every mark of the loaded tables: the existing spool, or a new one.

    If the first copy of a table cannot be continued, it is copied again from the start, because readers have not seen
    it, or is compared. The tables that are answered have a copy that is to be started over, or compared. A table whose
    position cannot be continued fails, and is removed from `schemas` and `loaded`, unless it was `asked` for. A table
    that is in `failed` and in `schemas` has a copy which cannot be loaded: that copy may need the existing spool.
    Copies of another server have in `loaded` the progress on this one, which is still to be committed.
    """
    copied = {table: staged.progress for table, staged in loaded.items() if staged}
    unknown = any(table in schemas for table in failed)
    chosen = resumption(config, connection, schemas, copied, asked=asked, unknown=unknown)
    again = frozenset(table for table in chosen.again if _is_kept(config, connection, loaded[table], schemas[table]))
    for table in chosen.again:
        if table not in again:
            target.discard(table)
            loaded[table] = None
    for table, progress in chosen.moved.items():
        if staged := loaded[table]:
            loaded[table] = replace(staged, progress=progress)
    for table, error in chosen.failed.items():
        failed[table] = error
        if table not in asked:
            del loaded[table], schemas[table]
    if chosen.spool is not None:
        return chosen.spool, again, chosen
    begins = chosen.begins or _opening(config, connection, chosen.epoch)
    if (again or None in loaded.values()) and has_low_at_file_start(connection, begins):
        begins = begins.start_of_file
    return Spool.open(state_of(config) / "spool", begins), again, chosen


def _opening(config: Config, connection: pymysql.Connection, epoch: int) -> Position:
    """Where a first spool begins: every transaction before it is executed.

    The file is read before the executed set: a rotation waits for the commits of earlier files, so all of them are
    executed then. Where low watermarks are exact, the spool begins at the written position.
    """
    at, began = _dated_position(config, connection)
    has_gtids = server_state(connection).executed is not None
    last = last_transaction(config.source, connection, at) if has_gtids or is_exact(connection) else None
    if not is_exact(connection):
        at = at.start_of_file
    state = executed_with(connection, GtidSet.parse(last.gtid or "") if has_gtids and last else GtidSet())
    return Position(state.uuid, epoch, at, state.executed, History(began, last=last))


def _dated_position(config: Config, connection: pymysql.Connection) -> tuple[FilePosition, int]:
    """The written position, and the second in which its file was begun; this second is over.

    So a binlog that is reset after now begins in another second.
    """
    at = written_position(connection)
    while True:
        before, began = at, file_began(config.source, at.file)
        wait_until_over(connection, began)
        at = written_position(connection)
        if in_same_file(at, before):
            return at, began
