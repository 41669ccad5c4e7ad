"""Opening a run: preflight is checked, every table is loaded, and the spool covers every mark of the tables."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lakeingest.config import Config
from lakeingest.core.binlog.position import bytes_between
from lakeingest.core.binlog.segments import LEAST_BYTES
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.chunks import FIRST_ROWS
from lakeingest.files.file import state_of
from lakeingest.lake.identity import identify
from lakeingest.lake.target import Staged
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.binlog.boundaries import check_boundaries, note_boundaries
from lakeingest.pipeline.companions.kinds import companions_of
from lakeingest.pipeline.events import ClockWrong, Observer, Opened, WentBack, in_turn
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.opening.failover import commit_failover
from lakeingest.pipeline.opening.first_spool import open_spool
from lakeingest.pipeline.opening.loading import Loaded, load_tables, unless_table_fails
from lakeingest.pipeline.opening.resumption import asked_to_read_again, owner
from lakeingest.pipeline.opening.starts import begin_copies, with_starts
from lakeingest.pipeline.preconditions import require
from lakeingest.pipeline.rolling_back import roll_all_back
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.clocks import disagreement, with_longer_keeps
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.executors import Executors
from lakeingest.pipeline.run.foreign_keys import know_foreign_keys
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.quiet_tables import QuietTables, note_copies, open_target
from lakeingest.pipeline.run.signal_run import SignalRun
from lakeingest.pipeline.run.stopping import fail, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.throttle import Throttle
from lakeingest.pipeline.run.watch import first_watch
from lakeingest.pipeline.run.witnessing import Witness
from lakeingest.pipeline.schema.definitions import has_other_rows
from lakeingest.side_by_side import side_by_side
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.session import is_session_due
from lakeingest.spool.halts import is_watched_to_halt
from lakeingest.spool.spool import Spool
from lakeingest.state.definition import keep_definition
from lakeingest.state.evidence import Evidence
from lakeingest.state.lease import held
from lakeingest.state.owner import claim, hand_over
from lakeingest.state.signals import SignalFolder
from lakeingest.state.stopped import StoppedTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def opened(
    config: Config,
    tables: Sequence[str],
    observe: Observer,
    spark: "SparkSession | None",
    nursery: Nursery | None = None,
) -> Iterator[OpenRun]:
    """Open a run: check preflight, load every table, and open the spool before the first low watermark is read.

    After a block without an error, notes on the copies are stored. Raises LeaseHeld while another run is at work.
    """
    began = time.monotonic()
    with BinlogSource.open(config.source) as source, Executors(config, spark, nursery) as executors:
        # Step 1: preflight; nothing is changed, so no lease is needed
        known = known_tables(config, source)
        requested = known.updated(config.tables.choose(known.tables, tables))
        # `schemas` has every table with a copy, because the spool continues for all of them, also if they are not
        # `requested`
        schemas, refused = require(config, source, known.updated(), requested, spark=spark is None, done=known.done)
        ours, predecessor = owner(config, source, schemas)
        with held(state_of(config)) as lease:
            # Step 2: under the lease, claim the state folder. After a failover it stays the old server's until step 3
            claim(state_of(config), predecessor or ours)
            identify(config)
            quiet = QuietTables.of(state_of(config))
            config = with_longer_keeps(config, source)
            roll_all_back(config, lease, observe)
            # Step 3: load the copies from the lake, and open a spool that covers their marks
            target = open_target(config, executors.open, quiet)
            in_lake, starts = with_starts(config, source, load_tables(config, source, target, schemas))
            _report_findings(source, in_lake.staged, observe)
            asked = asked_to_read_again(config, requested, in_lake.staged) - refused.keys()
            start = open_spool(config, source, target, in_lake, asked, starts)
            spool, loaded = start.spool, start.loaded
            spool.guard(lease.assert_held)
            if predecessor is not None:
                hand_over(state_of(config), ours)  # only now: the new spool is of the new server
            again = start.again | _copied_by_another_definition(loaded)
            check_boundaries(source, spool)
            if spark is None and is_session_due():
                executors.open()
            # Step 4: the values that the run works with
            throttle = Throttle(config, source)
            state = state_of(config)
            stopped, evidence = StoppedTables(state), Evidence(state, lease.assert_held)
            observe = in_turn(observe)
            witness = Witness.of(state, masked=not config.quality.samples)
            edges = Edges(
                config, source, target, state, quiet, stopped, evidence, lease, executors, throttle, observe, witness
            )
            runs = _table_runs(config, requested, loaded, again, spool)
            signals = SignalRun(SignalFolder(state_of(config), lease.assert_held))
            binlog = BinlogRun(spool, runs, follows_ddl=config.evolves)
            not_updated = {} if tables else known.left  # a run for named tables reports none of them
            beside = companions_of(edges, runs, takes_all=not tables)
            run = OpenRun(edges, runs, binlog, signals, not tables, not_updated, known.done, beside)
            # Step 5: stop the tables that cannot go on; for the others, commit positions and store definitions
            for table, error in {**refused, **loaded.failed}.items():
                if table in runs and runs[table].requested:
                    fail(edges, runs[table], error, asked=table in asked)
            know_foreign_keys(edges, run.binlog)
            commit_failover(edges, runs, start.moved, start.back)
            begin_copies(edges, spool, runs, start.starts)
            _keep_definitions(edges, runs, loaded, again)
            if _needs_workers_soon(run):
                executors.warm_up()
            observe(Opened(len(loaded.schemas), time.monotonic() - began))
            with note_boundaries(source, lambda: run.binlog.spool):
                yield run
            note_copies(target, (table.id for table in run.tables.values() if table.copy is not None))


def _report_findings(source: BinlogSource, loaded: Mapping[TableId, Staged | None], observe: Observer) -> None:
    """Report a clock that disagrees with the copies, and lost files of copies."""
    if (wrong := disagreement(source, loaded)) is not None:
        observe(ClockWrong(wrong))
    for table, staged in loaded.items():
        if staged and staged.lost:
            observe(WentBack(table, staged.lost))


def _copied_by_another_definition(loaded: Loaded) -> set[TableId]:
    """The tables whose copies must begin again because of their definition.

    The rows of such a copy do not have the definition by which the table is read, or the copy is incomplete and DDL has
    changed the table.
    """
    copies = {table: staged for table, staged in loaded.staged.items() if staged}
    differing = {table for table, staged in copies.items() if has_other_rows(staged, loaded.schemas[table])}
    altered = loaded.altered.keys() & copies.keys()
    incomplete = {table for table in altered if not copies[table].progress.splits.complete}
    return differing | incomplete


def _table_runs(
    config: Config, requested: Sequence[TableId], loaded: Loaded, again: Collection[TableId], spool: Spool
) -> dict[TableId, TableRun]:
    """All tables of the run, the requested tables first.

    If a table has a definition and is not in `loaded.staged`, its copy cannot be loaded now: the table stays watched.
    If a table is in `loaded.staged` and in `loaded.failed`, someone asked to read it again: its copy is started over.
    """
    runs, all_requested = {}, frozenset(requested)
    for table in dict.fromkeys([*requested, *loaded.schemas]):
        schema, staged = loaded.schemas.get(table), loaded.staged.get(table)
        is_asked_to_start_over = table in loaded.staged and table in loaded.failed
        watch = first_watch(
            copyable=schema is not None and not is_asked_to_start_over,
            compares=table in again,
            new=table in loaded.staged and staged is None,
            at_ddl=staged is not None and is_watched_to_halt(spool, table, staged.progress.needed_from),
        )
        runs[table] = TableRun(table, config.tables.of(table), schema, table in all_requested, watch)
        if table in loaded.altered:
            runs[table].found_altered()
        if staged is not None:
            runs[table].advance(staged)
    return runs


def _keep_definitions(
    edges: Edges, runs: Mapping[TableId, TableRun], loaded: Loaded, again: Collection[TableId]
) -> None:
    """Store the definition of each copy, but not for the tables `again`, whose copies may have an older definition."""
    state = edges.writing  # asserts once that the lease is held: each assertion is a request to a store

    def keep(copy: Staged) -> None:
        """Store the definition of a copy. If the state folder says that the copy is suspect, doubt its rows."""
        table = copy.progress.table
        with working_on(edges, runs[table]):
            kept = keep_definition(state, loaded.schemas[table])
            if kept.suspect and not copy.is_restarted:  # rows may be wrong, and are not read again yet
                runs[table].doubt_rows()

    copies = [copy for table, copy in loaded.staged.items() if copy is not None and table not in again]
    side_by_side(keep, copies, edges.config.target.tables_at_once)


def _needs_workers_soon(run: OpenRun) -> bool:
    """Whether a table of several chunks is to be copied, or much of the binlog is not spooled yet."""
    source = run.edges.source
    to_copy = (
        table.schema
        for table in run.tables.values()
        if table.is_joining or (table.copy is not None and table.has_missing_chunks)
    )
    rows = (unless_table_fails(source, unknown=0, ask=partial(source.estimated_rows, schema)) for schema in to_copy)
    if any(count > FIRST_ROWS for count in rows):
        return True
    unread_bytes = bytes_between(run.binlog.spool.position.at, source.written(), source.files())
    return unread_bytes > LEAST_BYTES
