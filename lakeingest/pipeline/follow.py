"""On and on: what the source writes is spooled, merged and published as it comes.

A round looks at the written position and, when it moved, spools a batch: up to there, so to a transaction's end. Tables
with change rows are merged and published. A quiet table costs nothing but an advance of its position every few minutes,
without which the spool would grow, and its lag, for ever.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakeingest.core.schema import TableId
from lakeingest.errors import SourceAway
from lakeingest.mysql.connection import named_errors, reopen, written_position
from lakeingest.mysql.continuity import still_there
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.boundaries import check_boundaries
from lakeingest.pipeline.catch_up import forget, show
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import SourceLost

POLL_SECONDS = 0.5
QUIET_SECONDS = 180.0  # a table without changes is this far behind, and half a second for each other such table
PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)  # between tries to reach a source that is away

Result = TypeVar("Result")


def follow(context: Context, stopping: Callable[[], bool]) -> None:
    """Go on with tables that are caught up until `stopping` says so, which is asked after each commit."""
    shown = dict.fromkeys(context.chosen, time.monotonic())
    while not stopping():
        if not persistently(context, stopping, lambda: _round(context, stopping, shown)):
            _wait(POLL_SECONDS, stopping)


def persistently(context: Context, stopping: Callable[[], bool], work: Callable[[], Result]) -> Result | None:
    """What `work` comes to, done again where the source was away; None when `stopping` came first.

    The source is connected to again with pauses, for about a minute in all; then SourceAway. BinlogGone when it came
    back as another one.
    """
    pauses: Iterator[float] = iter(PAUSES_SECONDS)
    lost = False
    while True:
        began = time.monotonic()
        try:
            with named_errors(context.config.source):
                if lost:
                    reopen(context.connection)
                    still_there(context.config.source, context.connection, context.spool.position)
                    context.boundaries.clear()
                    check_boundaries(context.config.source, context.connection, context.spool)
                return work()
        except SourceAway as error:
            lost = True
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
    for table in due:
        show(context, table)
        shown[table] = time.monotonic()
        if stopping():
            break
    if due:
        forget(context)
    return bool(due)


def _due(context: Context, shown: dict[TableId, float]) -> list[TableId]:
    """The tables with change rows that are not merged, and of those that are merely behind the one that is longest."""
    spool, late = context.spool, time.monotonic() - QUIET_SECONDS
    behind = {
        table: place
        for table in context.chosen
        if (place := context.tables[table].progress.needed_from) < spool.position.place
    }
    busy = [table for table, place in behind.items() if spool.backlog(table, place)]
    quiet = [table for table in behind if table not in busy and shown[table] < late]
    return busy + sorted(quiet, key=lambda table: shown[table])[:1]


def _wait(seconds: float, stopping: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not stopping() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
