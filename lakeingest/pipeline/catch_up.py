"""Catching up: spool the binlog up to the written position, then merge and publish the tables as of that position."""

from lakeingest.core.trimming import Watched, trim
from lakeingest.errors import MainMoved
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.cascades.cascades import read_cascades, remove_merged_patches
from lakeingest.pipeline.publishing.publish import publish
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import parents_first
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import merge_over_halts, reload
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.spool.thinning import join_neighbours, thin

PUBLISH_TRIES = 5  # for a table that someone compacts at the same time


def catch_up(run: OpenRun) -> None:
    """Spool to the written position; publish, as of that position, every table that can go on; trim the spool.

    A table with missing chunks is left out.
    """
    # Step 1: spool to the written position
    spool_to_now(run.edges, run.binlog)
    # Step 2: before anything is published, stop the tables whose changes or DDL the spool may lack
    stop_hidden(run)
    look_for_unseen_ddl(run.edges, run.binlog, run.copied)
    # Step 3: merge and publish, parents first: a child needs the changes that foreign keys made to its parents
    for table in parents_first(run.binlog, run.copied):
        with working_on(run.edges, table):
            merge_and_publish(run.edges, run.binlog, table)
            clear_failure(run.edges, table)
    # Step 4: trim the spool, because the published tables need less of it
    trim_spool(run)


def merge_and_publish(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Merge the table to the spool's end, lift it over DDL on the way, and publish it.

    Before the merge, rows that an unlogged foreign key action may have changed are read again. If someone compacts the
    table before the publish, all steps are repeated on the compacted commit.

    Raises:
        MainMoved: someone has compacted the table before each of PUBLISH_TRIES publishes, or the spool begins after the
            commit that readers see. The next run opens a spool that reaches back to that commit.

    """
    for tries_left in reversed(range(PUBLISH_TRIES)):
        has_read = read_cascades(edges, binlog, table)
        merge_over_halts(edges, binlog, table)
        try:
            publish(edges, table)
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
    spool.forget(decision.forget_before, keep)
    if decision.needed is not None:
        thin(spool, decision.needed, keep)
        join_neighbours(spool, decision.copy_places)
