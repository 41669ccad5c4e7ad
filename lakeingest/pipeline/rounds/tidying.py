"""Tidying worn copies: their small files and deleted rows are taken away, without being asked, when a run has time.

The run that merges the table does it, between two rounds and under its lease. So it never races a merge.
"""

from collections.abc import Callable
from dataclasses import replace

from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun


def tidy_worn(run: OpenRun, stopping: Callable[[], bool], at_most: int | None = None) -> None:
    """Tidy the worn copies of the run, at most so many. Ends early if `stopping` says so."""
    worn = [table for table in run.requested if _is_worn(table)]
    for table in worn[:at_most]:
        if stopping():
            return
        with working_on(run.edges, table):
            _tidy(run, table)


def _is_worn(table: TableRun) -> bool:
    """Whether readers see the newest commit of the copy, and it is time to look at its files."""
    goes_on = table.copy is not None and table.failure is None and not table.paused
    return goes_on and table.staged.worn and table.staged.visible


def _tidy(run: OpenRun, table: TableRun) -> None:
    """Make a commit with the same rows in fewer files, if the earlier commits have given the credit, and publish it."""
    edges = run.edges
    with edges.profile.stage("maintenance"):
        # only on the commit that this run has published: a commit of others, or a noted position, waits for a merge
        found = edges.committing.recover(table.id)
        known = table.staged.version, table.progress.position
        tidied = table.staged
        if found is not None and (found.version, found.progress.position) == known:
            tidied = edges.committing.maintain(found, unasked=True)
    table.advance(replace(tidied, worn=False), sound=True)
    if not tidied.visible:
        merge_and_publish(edges, run.binlog, table)
