"""Catching up: spool the binlog up to the written position, then merge and publish the tables as of that position."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from lakeingest.core.schema import TableId
from lakeingest.core.trimming import Watched, trim
from lakeingest.errors import MainMoved
from lakeingest.lake.target import Joint
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.cascades.cascades import read_cascades, remove_merged_patches
from lakeingest.pipeline.publishing.at_once import publish_at_once
from lakeingest.pipeline.publishing.publish import publish
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import generation, know_parents, parents_first
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, working_on
from lakeingest.pipeline.run.table_run import TableRun, Trust
from lakeingest.pipeline.run.watch import Watch
from lakeingest.pipeline.schema.lifting import merge_over_halts, reload
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.quality.suites import user_suites
from lakeingest.side_by_side import side_by_side
from lakeingest.spool.halts import halts
from lakeingest.spool.thinning import join_neighbours, thin

FEW_ROWS = 20_000  # change rows that a thread merges
MERGES_TO_ONE_END = 3  # rounds of merges, if the spool goes on meanwhile, before a publish of all tables
PUBLISH_TRIES = 5  # for a table that someone compacts at the same time


def catch_up(run: OpenRun) -> None:
    """Spool to the written position; publish, as of that position, every table that can go on; trim the spool.

    Before the spool is trimmed, the companions of the tables are written.

    A table with missing chunks is left out.
    """
    # Step 1: spool to the written position
    spool_to_now(run.edges, run.binlog)
    # Step 2: before anything is published, stop the tables whose changes or DDL the spool may lack
    stop_hidden(run)
    look_for_unseen_ddl(run.edges, run.binlog, run.copied)
    # Step 3: merge and publish
    for table in parents_first(run.binlog, publish_together(run.edges, run.binlog, run.copied)):
        with working_on(run.edges, table):
            merge_and_publish(run.edges, run.binlog, table)
            clear_failure(run.edges, table)
    # Step 4: write the companions, then trim the spool, because the published tables need less of it
    run.companions.catch_up(run.requested)
    trim_spool(run)


def publish_together(
    edges: Edges, binlog: BinlogRun, tables: Iterable[TableRun], stopping: Callable[[], bool] = lambda: False
) -> list[TableRun]:
    """Merge and publish the tables, at once if the catalog can commit several tables at once. Returns what is left.

    Otherwise, and for a first publish, tables that need only the lake are merged and published side by side, and the
    other tables are left. After `stopping`, no further table is begun, and a publish of all at once is not made.

    Left are also tables that someone compacts at the same time. The tables that are left are in their order.
    """
    all_tables = list(tables)
    joint = edges.target.joint
    know_parents(edges, binlog)
    left, others = set[TableId](), all_tables
    shown = [table for table in all_tables if table.failure is None and table.staged.published is not None]
    if joint is not None and len(shown) > 1:
        others = [table for table in all_tables if table.failure is not None or table.staged.published is None]
        left = _publish_at_once(edges, binlog, joint, shown, stopping)
    left |= _publish_side_by_side(edges, binlog, others, stopping)
    return [table for table in all_tables if table.id in left]


def _publish_at_once(
    edges: Edges, binlog: BinlogRun, joint: Joint, tables: Sequence[TableRun], stopping: Callable[[], bool]
) -> set[TableId]:
    """Merge all tables to the end of the spool, then publish them at once. Returns those that someone compacts."""
    in_order = parents_first(binlog, tables)
    merges = _Merges(edges, binlog, stopping)
    merges.to_one_end(in_order)
    if stopping():
        return set()
    merged = [table for table in in_order if table.failure is None and table.id not in merges.moved]
    moved = publish_at_once(edges, binlog.spool, joint, merged, lambda table: table.id not in merges.alone)
    for table in merged:
        if table.id in merges.has_read and table.staged.visible:
            with working_on(edges, table):
                remove_merged_patches(edges, table)
    return merges.moved | moved


@dataclass(slots=True)
class _Merges:
    """The merges before a joint publish, all to one end of the spool.

    `alone`: tables that need more than the lake. `has_read`: tables with rows that were read again. `moved`: tables
    that someone compacts at the same time.
    """

    edges: Edges
    binlog: BinlogRun
    stopping: Callable[[], bool]
    alone: set[TableId] = field(default_factory=set)
    has_read: set[TableId] = field(default_factory=set)
    moved: set[TableId] = field(default_factory=set)

    def to_one_end(self, tables: Sequence[TableRun]) -> None:
        """Merge the tables: first those that need more than the lake, because their merges may spool on."""
        end = None
        for _ in range(MERGES_TO_ONE_END):
            end = self.binlog.spool.position
            self.alone |= {table.id for table in tables if not needs_only_lake(self.edges, self.binlog, table)}
            for table in tables:
                if table.id in self.alone:
                    self.merge(table)
            if self.binlog.spool.position == end:
                break
        is_at_end = self.binlog.spool.position == end  # else the spool may have new DDL, which no thread may follow
        at_once = self.edges.config.target.tables_at_once if is_at_end else 1
        side_by_side(self.merge, [table for table in tables if table.id not in self.alone], at_once)

    def merge(self, table: TableRun) -> None:
        """Merge one table, unless it has stopped or the run is to stop."""
        if self.stopping() or table.failure is not None or table.id in self.moved:
            return
        with working_on(self.edges, table):
            try:
                if read_cascades(self.edges, self.binlog, table):
                    self.has_read.add(table.id)
                merge_over_halts(self.edges, self.binlog, table)
            except MainMoved:  # before DDL that it does not get over, a table is published by itself
                self.moved.add(table.id)


def _publish_side_by_side(
    edges: Edges, binlog: BinlogRun, tables: Sequence[TableRun], stopping: Callable[[], bool]
) -> set[TableId]:
    """Merge and publish, each by itself, the tables that need only the lake. Returns the other tables.

    All are merged before the first one is published, so that readers see some as of the new place, and others as of the
    old one, for no longer than the publishes take. Parents are published before their children.
    """
    at_once = edges.config.target.tables_at_once
    if at_once == 1:
        return {table.id for table in tables}
    others = {table.id for table in tables if not needs_only_lake(edges, binlog, table)}
    merged = set[TableId]()

    def merge_alone(table: TableRun) -> None:
        if stopping():
            return
        with working_on(edges, table):
            try:
                merge_over_halts(edges, binlog, table)
                merged.add(table.id)
            except MainMoved:
                others.add(table.id)

    def publish_alone(table: TableRun) -> None:
        with working_on(edges, table):
            try:
                publish(edges, binlog.spool, table)
            except MainMoved:
                others.add(table.id)
                return
            clear_failure(edges, table)

    side_by_side(merge_alone, [table for table in tables if table.id not in others], at_once)
    in_order = parents_first(binlog, [table for table in tables if table.id in merged])
    for _, same in groupby(in_order, lambda table: generation(binlog, table)):
        side_by_side(publish_alone, same, at_once)
    return others


def needs_only_lake(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Whether the table can be merged and published by a thread, which must not ask the source or change the spool.

    The table must have few changes, so that they are merged in this process, and a gate that needs no Spark.
    """
    if table.failure is not None or table.watch is not Watch.WATCHED or table.trust is not Trust.IN_FORCE:
        return False
    progress = table.progress
    may_lack_cascades = bool(table.cascade_keys or progress.cascades)
    has_reread_rows = bool(progress.patches) or progress.uncounted
    gate_needs_spark = not table.sound or bool(user_suites(edges.config.quality, table.id))
    if may_lack_cascades or has_reread_rows or gate_needs_spark or halts(binlog.spool, table.id, progress.needed_from):
        return False
    return binlog.spool.backlog(table.id, max(progress.needed_from, binlog.spool.start)) <= FEW_ROWS


def merge_and_publish(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Merge the table to the spool's end, lift it over DDL on the way, and publish it.

    Before the merge, rows that an unlogged foreign key action may have changed are read again. If someone compacts the
    table before the publish, all steps are repeated on the compacted commit.

    Raises:
        MainMoved: someone has compacted the table before each of PUBLISH_TRIES publishes, or the spool begins after the
            commit that readers see. The next run opens a spool that reaches back to that commit.

    """
    was_compacted = False
    for tries_left in reversed(range(PUBLISH_TRIES)):
        has_read = read_cascades(edges, binlog, table)
        merge_over_halts(edges, binlog, table)
        try:
            publish(edges, binlog.spool, table, after_maintenance=was_compacted)
            if has_read:
                remove_merged_patches(edges, table)
            return
        except MainMoved:
            staged = edges.committing.recover(table.id)  # staging is built on the compacted commit now
            if not tries_left or staged is None:
                raise
            if staged.progress.needed_from < binlog.spool.start:  # the spool lacks changes after the compacted commit
                raise
            reload(edges, table, staged)
            was_compacted = True


def trim_spool(run: OpenRun) -> None:
    """Remove from the spool the changes that no watched table needs.

    A watched table needs changes even if it has stopped, or if the run is for other tables. If such a table holds back
    the start of the spool, the later segments keep only rows that some table needs, and are joined.
    """
    edges, spool = run.edges, run.binlog.spool
    # first make the noted positions of quiet tables durable. Otherwise, after a crash, the tables would continue from
    # their last commits, and would need changes that the spool forgets here
    edges.quiet.keep(edges.lease)
    watched = [
        Watched(table.id, table.needed_from, table.copy_places, is_idle=table.failure is not None or table.paused)
        for table in run.tables.values()
        if table.is_watched
    ]
    decision = trim(watched, run.binlog.foreign_keys)
    if decision is None:  # no table is watched, or it is not known what a table needs
        return
    keep = edges.config.changelog.keep
    run.companions.hold(spool)
    spool.forget(decision.forget_before, keep)
    if decision.needed is not None:
        thin(spool, decision.needed, keep)
        join_neighbours(spool, decision.copy_places)
