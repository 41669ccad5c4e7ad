"""Copying: tables without a copy join, and every missing chunk is read."""

from collections.abc import Callable

from lakeingest.pipeline.copying.waves import bootstrap
from lakeingest.pipeline.joining.joining import join
from lakeingest.pipeline.joining.recopying import recopy_altered
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun, Trust
from lakeingest.pipeline.signals.documents import poll_paused


def copy_missing(run: OpenRun, ends: Callable[[], bool], leaves: Callable[[], bool]) -> bool:
    """Copy the missing chunks of every table that goes on. False if `ends` said so before all chunks were copied.

    `leaves`: whether chunks that are missing now are left to a later time. If someone pauses a table while it is
    copied, its copy waits after the wave that is being read, until the table is resumed.
    """
    join(run)
    for table in run.going_on:
        _bootstrap(run, table, ends, leaves)
    recopy_altered(run)
    # the tables that join again after DDL, or that someone has resumed during the copying above
    while not ends():
        tables = tables_to_copy(run)
        if not tables or leaves():
            return True
        join(run)
        for table in tables:
            _bootstrap(run, table, ends, leaves)
        recopy_altered(run)
    return False


def tables_to_copy(run: OpenRun) -> list[TableRun]:
    """The tables that go on and have no complete copy: they join, or chunks are missing."""
    going_on = run.going_on
    return [table for table in going_on if table.is_joining or table.copy is None or table.has_missing_chunks]


def _bootstrap(run: OpenRun, table: TableRun, ends: Callable[[], bool], leaves: Callable[[], bool]) -> None:
    """Copy the missing chunks of a table that can go on, until `ends` or `leaves` says so or the table is paused."""
    if table.failure is not None or table.is_joining or table.paused:  # maybe since the list of tables was made
        return
    # a table that was altered unseen has all its chunks, and may have other columns in the source now
    if table.trust is not Trust.ALTERED_UNSEEN:
        with working_on(run.edges, table):
            bootstrap(run.edges, run.binlog, table, lambda: ends() or leaves() or poll_paused(run, table))
