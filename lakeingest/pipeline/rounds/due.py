"""Which tables of a run are due, and which are worth a retry. `core.copies.due` decides, with facts from here."""

import time
from collections.abc import Mapping
from dataclasses import replace

from lakeingest.core.copies.due import Standing, due
from lakeingest.core.copies.phases import Phase
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, Retryable
from lakeingest.pipeline.run.current import has_changes
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun


def due_tables(run: OpenRun, worked_at: Mapping[TableId, float]) -> list[TableRun]:
    """The tables that a round works on. Tables with missing chunks are not due.

    `worked_at`: by table, the time of the monotonic clock at which the run last worked on the table.
    """
    return [run.tables[name] for name in due([_standing(run, table, worked_at) for table in run.copied])]


def has_new_copy(run: OpenRun) -> bool:
    """Whether there is a first copy whose chunks are all read, and of which readers see no rows yet."""
    return any(map(_is_never_published, run.copied))


def _is_never_published(table: TableRun) -> bool:
    """Whether readers have never seen the table. False for a copy with a gap, which cannot be published yet."""
    return table.staged.published is None and not table.progress.gap


def _standing(run: OpenRun, table: TableRun, worked_at: Mapping[TableId, float]) -> Standing:
    """The facts about a complete copy. `needs_commit` is False unless the table is quiet."""
    progress, edges = table.progress, run.edges
    is_new = _is_never_published(table)
    unseen = is_new or progress.phase is Phase.COPIED  # COPIED: a copy that was started over has all its chunks again
    behind = progress.needed_from < run.binlog.spool.position.place
    changed = not unseen and behind and has_changes(run, table)
    standing = Standing(table.id, unseen, behind, changed, time.monotonic() - worked_at.get(table.id, 0.0))
    if not standing.is_quiet:
        return standing
    return replace(standing, needs_commit=edges.quiet.needs_commit(table.id, table.staged, edges.source))


def worth_a_retry(run: OpenRun) -> list[TableRun]:
    """The stopped tables that may be able to go on without a person, except paused ones.

    Rows that failed a gate may have been corrected since, and retryable errors may have passed.
    """
    failures = ((run.tables[name], failure.error) for name, failure in run.failures.items())
    return [table for table, error in failures if isinstance(error, GateFailed | Retryable) and not table.paused]
