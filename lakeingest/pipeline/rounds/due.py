"""Which tables of a run are due: for a merge, a publish, a new position, or another try."""

import time

from lakeingest.core.phases import Phase
from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed, Retryable
from lakeingest.pipeline.run.foreign_keys import is_changed_above
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch

QUIET_SECONDS = 180.0  # a table without changes lags this much


def due_tables(run: OpenRun, worked_at: dict[TableId, float]) -> list[TableRun]:
    """The tables that nobody sees yet as they were copied, or with change rows that are not merged, and quiet tables.

    Of the quiet tables that need a commit only the one that has waited longest. Tables with missing chunks are not due.
    """
    spool, late = run.binlog.spool, time.monotonic() - QUIET_SECONDS
    copied = [table for table in run.going_on if table.copy is not None and not table.has_missing_chunks]
    new = [table for table in copied if table.staged.published is None and not table.progress.gap]
    unseen = [table for table in copied if table in new or table.progress.phase is Phase.COPIED]
    behind = [table for table in copied if table not in unseen and table.progress.needed_from < spool.position.place]
    waiting_for_lift = [table for table in behind if table.watch is Watch.AT_DDL]
    busy = [
        table
        for table in behind
        if table in waiting_for_lift
        or spool.backlog(table.id, table.progress.needed_from)
        or is_changed_above(run.binlog, table)
    ]
    waiting = {table.id: worked_at.get(table.id, 0.0) for table in behind if table not in busy}
    quiet = [table for table in behind if waiting.get(table.id, late) < late]
    known, connection = run.edges.quiet, run.edges.connection
    dear = [table for table in quiet if known.needs_commit(table.id, table.staged, connection)]
    cheap = [table for table in quiet if table not in dear]
    return unseen + busy + cheap + sorted(dear, key=lambda table: waiting[table.id])[:1]


def worth_a_retry(run: OpenRun) -> list[TableRun]:
    """The stopped tables that may go on without a person: rows that fail a gate are corrected, other writers end."""
    failures = ((run.tables[table], failure.error) for table, failure in run.failures.items())
    return [table for table, error in failures if not table.paused and isinstance(error, GateFailed | Retryable)]
