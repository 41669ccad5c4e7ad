"""One round of a run: the binlog that the source has written is spooled, and due tables are merged and published.

A round reads the written position. If the source has written more, the round spools the binlog up to that position,
which is the end of a transaction. Tables with change rows are merged and published. The positions of quiet tables
advance every few minutes, so that neither their lag nor the spool grows for ever. A table that failed its gate, or that
stopped with a retryable error, is tried again every few minutes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.catch_up import publish_each, publish_together, trim_spool
from lakeingest.pipeline.copying.beside import CopyingBeside
from lakeingest.pipeline.joining.recopying import recopy_altered
from lakeingest.pipeline.rounds.away import AWAY, load_again
from lakeingest.pipeline.rounds.discovery import Discovery
from lakeingest.pipeline.rounds.due import due_tables, has_new_copy, worth_a_retry
from lakeingest.pipeline.rounds.missing_chunks import copy_missing, tables_to_copy
from lakeingest.pipeline.rounds.pace import Pace
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import parents_first
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.pipeline.signals.documents import process_signals

TIDIED_AT_ONCE = 4  # companions in a round: publishes wait for them
RETRY_SECONDS = 300.0  # between two tries of a stopped table (`worth_a_retry`)


@dataclass(frozen=True, slots=True)
class Beside:
    """The work beside the tables that have caught up: new tables are found, and missing chunks are copied."""

    discovery: Discovery
    copying: CopyingBeside


def take_round(
    run: OpenRun, stopping: Callable[[], bool], worked_at: dict[TableId, float], pace: Pace, beside: Beside | None
) -> bool:
    """Take one round. True if the round had work.

    The round merges and publishes only if the `pace` lets it; everything else is done in each round.

    If the source, the lake or Spark is lost, the wave that is being read beside the rounds is dropped. If `beside` is
    None, the round itself copies the missing chunks of tables that were paused, and does not look for new tables.
    """
    try:
        return _work(run, stopping, worked_at, pace, beside)
    except AWAY:
        if beside is not None:
            beside.copying.cancel()
        raise


def _work(
    run: OpenRun, stopping: Callable[[], bool], worked_at: dict[TableId, float], pace: Pace, beside: Beside | None
) -> bool:
    """Do the work of a round. False if there was none."""
    # Step 1: signals, and copies that begin or begin again
    process_signals(run)
    recopy_altered(run)
    if beside is not None:
        beside.discovery.look()
    elif tables_to_copy(run) and not copy_missing(run, stopping, lambda: run.edges.throttle.is_window_closed):
        return True  # `stopping` has ended the copying
    # Step 2: merge and publish, if it is time
    pace.begin()
    has_published = not pace.seconds_left and _publish_due(run, stopping, worked_at)
    if has_published:
        pace.worked()
    # Step 3: write the companions of what is published now, and those that could not be written before. Once a day they
    # are tidied, too, by a run that follows; a bounded run does that at its end
    has_written = run.companions.catch_up(run.requested)
    has_tidied = beside is not None and not stopping() and run.companions.tidy(run.requested, stopping, TIDIED_AT_ONCE)
    # Step 4: commit a wave of a copy. This step is the last, because only the next round spools up to the wave's high
    # watermarks, and may then merge the wave
    committed = beside is not None and not stopping() and beside.copying.step(run.going_on)
    if committed and has_new_copy(run):
        pace.hurry()  # readers wait for the table
    if has_published or has_written or has_tidied or committed:
        trim_spool(run)
    return has_published or committed  # after work on companions alone, the next round need not begin at once


def _publish_due(run: OpenRun, stopping: Callable[[], bool], worked_at: dict[TableId, float]) -> bool:
    """Spool the new binlog, then merge and publish tables that are due or worth a retry. False if there are none."""
    edges, binlog = run.edges, run.binlog
    # Step 1: spool, before it is decided which tables are due
    asked_at = time.time()
    if edges.source.written() == binlog.spool.position.at:
        binlog.saw_end(asked_at)
    else:
        spool_to_now(edges, binlog)
        stop_hidden(run)
    due = due_tables(run, worked_at)
    look_for_unseen_ddl(edges, binlog, due)
    due = [table for table in due if table.failure is None]  # the look may have stopped some
    # Step 2: merge and publish. A stopped table waits from when the run last worked on it; if it never did, from now
    now = time.monotonic()
    retried = [table for table in worth_a_retry(run) if worked_at.setdefault(table.id, now) < now - RETRY_SECONDS]
    alone = publish_together(run, due, stopping)
    worked_at |= dict.fromkeys((table.id for table in due), time.monotonic())

    def has_worked(table: TableRun) -> bool:
        """Note that the run has worked on the table. True if no further table is to be begun."""
        worked_at[table.id] = time.monotonic()
        return stopping()

    def may_begin(table: TableRun) -> bool:
        """Whether the table can be merged; a stopped table is loaded again first."""
        return table.failure is None or _reload_stopped(edges, table)

    publish_each(run, parents_first(binlog, [*alone, *retried]), may_begin, has_worked)
    return bool(due or retried)


def _reload_stopped(edges: Edges, table: TableRun) -> bool:
    """Load a stopped table from the lake. False if chunks are missing: then the table goes on with its chunks."""
    load_again(edges, table)
    if table.has_missing_chunks:
        clear_failure(edges, table)
    return not table.has_missing_chunks
