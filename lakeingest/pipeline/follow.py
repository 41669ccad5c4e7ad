"""On and on: what the source writes is spooled, merged and published as it comes.

A round looks at the written position and, when it moved, spools a batch: up to there, so to a transaction's end. Tables
with change rows are merged and published. A quiet table costs nothing but an advance of its position every few minutes,
without which the spool would grow, and its lag, for ever. A table that failed its gate, or that was in another writer's
way, is tried again every few minutes; one that needs a person waits for the next run.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed, NotOurTable, Retryable, SourceAway, SparkLost
from lakeingest.mysql.connection import reopen, written_position
from lakeingest.mysql.continuity import still_there
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.bootstrap import bootstrap
from lakeingest.pipeline.boundaries import check_boundaries
from lakeingest.pipeline.catch_up import forget, show
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.edges import named
from lakeingest.pipeline.events import SourceLost

POLL_SECONDS = 0.5
QUIET_SECONDS = 180.0  # a table without changes is this far behind, and half a second for each other such table
RETRY_SECONDS = 300.0  # between tries of a table that stopped with an error that may pass by itself
PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)  # between tries to reach a source that is away

Result = TypeVar("Result")


def follow(context: Context, stopping: Callable[[], bool]) -> None:
    """Go on with tables that are caught up until `stopping` says so, which is asked after each commit."""
    shown = dict.fromkeys(context.chosen, time.monotonic())
    while not stopping() and (context.going_on or _may_pass(context)):
        if not persistently(context, stopping, lambda: _round(context, stopping, shown)):
            _wait(POLL_SECONDS, stopping)


def persistently(context: Context, stopping: Callable[[], bool], work: Callable[[], Result]) -> Result | None:
    """What `work` comes to, done again where the source was away or Spark ended; None when `stopping` came first.

    The source is connected to again with pauses, for about a minute in all; then SourceAway. BinlogGone when it came
    back as another one. Spark is started again as often; SparkLost at once where the session is not ours.
    """
    pauses: Iterator[float] = iter(PAUSES_SECONDS)
    lost: Retryable | None = None
    while True:
        began = time.monotonic()
        try:
            with named(context.config.source, context.target):
                if isinstance(lost, SourceAway):
                    reopen(context.connection)
                    still_there(context.config.source, context.connection, context.spool.position)
                    context.boundaries.clear()
                    check_boundaries(context.config.source, context.connection, context.spool)
                elif isinstance(lost, SparkLost):
                    context.renew_spark()
                lost = None
                return work()
        except (SourceAway, SparkLost) as error:
            lost = error
            if isinstance(error, SparkLost) and context.borrowed:
                raise
            if time.monotonic() - began > sum(PAUSES_SECONDS):  # it was there for long
                pauses = iter(PAUSES_SECONDS)
            pause = next(pauses, None)
            if pause is None:
                raise
            context.observe(SourceLost(str(error), pause))
            _wait(pause, stopping)
            if stopping():
                return None


def _round(context: Context, stopping: Callable[[], bool], shown: dict[TableId, float]) -> bool:
    """Spool what is new, show the tables that are due; False when none was."""
    if written_position(context.connection) != context.spool.position.at:
        spool_to_now(context)
    due = _due(context, shown)
    retried = [table for table in _may_pass(context) if shown[table] < time.monotonic() - RETRY_SECONDS]
    for table in (*due, *retried):
        with context.working_on(table):
            if table not in retried or _begun_again(context, table, stopping):
                show(context, table)
                context.go_on(table)
        shown[table] = time.monotonic()
        if stopping():
            break
    if due or retried:
        forget(context)
    return bool(due or retried)


def _may_pass(context: Context) -> list[TableId]:
    """The stopped tables that may go on without a person: rows that fail a gate are corrected, writers end."""
    return [table for table, error in context.errors.items() if isinstance(error, GateFailed | Retryable)]


def _begun_again(context: Context, table: TableId, stopping: Callable[[], bool]) -> bool:
    """Load a stopped table as a run does that begins, and copy what is missing of it; False when `stopping` came."""
    staged = context.target.recover(table)
    if staged is None:
        raise NotOurTable(f"{table}: its copy was dropped; the next run copies it again")
    context.advance(staged)
    bootstrap(context, table, stopping)
    return context.tables[table].progress.splits.complete


def _due(context: Context, shown: dict[TableId, float]) -> list[TableId]:
    """The tables with change rows that are not merged, and of those that are merely behind the one that is longest."""
    spool, late = context.spool, time.monotonic() - QUIET_SECONDS
    behind = {
        table: place
        for table in context.going_on
        if (place := context.tables[table].progress.needed_from) < spool.position.place
    }
    busy = [table for table, place in behind.items() if spool.backlog(table, place)]
    quiet = [table for table in behind if table not in busy and shown[table] < late]
    return busy + sorted(quiet, key=lambda table: shown[table])[:1]


def _wait(seconds: float, stopping: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not stopping() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
