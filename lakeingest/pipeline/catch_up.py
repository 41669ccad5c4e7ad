"""Catching up: spool the binlog up to the written position, then merge and publish the tables as of that position."""

from collections.abc import Callable, Iterable, Sequence

from lakeingest.core.copies.trimming import Watched, trim
from lakeingest.errors import KeyDoubled, MainMoved
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.cascades.cascades import read_cascades, remove_merged_patches
from lakeingest.pipeline.publishing.publish import publish
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import parents_first
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.lake_only import needs_only_lake
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import merge_over_halts, reload
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.side_by_side import side_by_side
from lakeingest.spool.thinning import join_neighbours, thin

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
    publish_each(run, publish_together(run, parents_first(run.binlog, run.copied)))
    # Step 4: write the companions, then trim the spool, because the published tables need less of it
    run.companions.catch_up(run.requested)
    trim_spool(run)


def publish_together(
    run: OpenRun, tables: Sequence[TableRun], stopping: Callable[[], bool] = lambda: False
) -> list[TableRun]:
    """Merge and publish tables in a joint publish, if pipeline.yml says so (`target.publish_together`).

    Without joint publishes, and for tables that are new to readers or have failed, this is done side by side. Returns
    the tables that are not done: the caller merges and publishes each of them by itself, in this order.
    """
    edges, binlog = run.edges, run.binlog
    joint = edges.target.joint if edges.config.target.publish_together and not edges.joint.limit.ends_joint else None
    if joint is None:
        return publish_side_by_side(edges, binlog, tables, stopping)
    from lakeingest.pipeline.joint_round import publish_at_one_place  # here, because few pipelines ask for it

    shown = [table for table in tables if table.failure is None and table.staged.published is not None]
    left = publish_at_one_place(run, joint, shown, stopping)
    handled = {table.id for table in shown}
    others = [table for table in tables if table.id not in handled]
    return parents_first(binlog, [*left, *publish_side_by_side(edges, binlog, others, stopping)])


def publish_each(
    run: OpenRun,
    tables: Iterable[TableRun],
    may_begin: Callable[[TableRun], bool] = lambda _: True,
    stopping: Callable[[TableRun], bool] = lambda _: False,
) -> None:
    """Merge and publish tables one after the other, and clear their failures.

    A shard is tried once more after all other tables if another shard has one of its keys: the row with this key may
    have left the other shard by then. `may_begin` is asked at the start of each try. After a table for which `stopping`
    is true, no further table gets its first try.
    """
    waiting = list[TableRun]()

    def work(table: TableRun, *, waits: bool) -> None:
        """Try one table. With `waits`, a shard that fails with KeyDoubled is kept in `waiting` for a second try."""
        with working_on(run.edges, table):
            try:
                if may_begin(table):
                    merge_and_publish(run.edges, run.binlog, table)
                    clear_failure(run.edges, table)
            except KeyDoubled:
                if not waits:
                    raise
                waiting.append(table)

    for table in tables:
        work(table, waits=True)
        if stopping(table):
            break
    for table in waiting:
        work(table, waits=False)


def publish_side_by_side(
    edges: Edges, binlog: BinlogRun, tables: Iterable[TableRun], stopping: Callable[[], bool]
) -> list[TableRun]:
    """Merge and publish side by side the tables that need only the lake. Returns the other tables, in their order.

    A table that someone compacts at the same time is returned, too, and so is a shard with a key of another shard. Once
    `stopping` returns True, no further table is begun. The order of the tables does not matter here: only tables whose
    rows are read again after changes by foreign keys need their parents first, and these are among the returned tables.
    """
    all_tables, at_once = list(tables), edges.config.target.tables_at_once
    if at_once == 1:
        return all_tables
    others = {table.id for table in all_tables if not needs_only_lake(edges, binlog, table)}
    together = [table for table in all_tables if table.id not in others]

    def merge_alone(table: TableRun) -> None:
        """Merge and publish one table. Add it to `others` if someone has compacted it, or for KeyDoubled."""
        if stopping():
            return
        with working_on(edges, table):
            try:
                merge_over_halts(edges, binlog, table)
                publish(edges, binlog.spool, table)
            except (MainMoved, KeyDoubled):
                others.add(table.id)
                return
            clear_failure(edges, table)

    side_by_side(merge_alone, together, at_once)
    return [table for table in all_tables if table.id in others]


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
    run.companions.hold(spool)  # first, so that the archive keeps the changes that companions have still to read
    spool.forget(decision.forget_before, keep)
    if decision.needed is not None:
        thin(spool, decision.needed, keep)
        join_neighbours(spool, decision.copy_places)
