"""Following: what the source writes is spooled, merged and published as it comes.

A round reads the written position and, when it moved, spools the binlog up to it, which is the end of a transaction.
Tables with change rows are merged and published. The position of a quiet table advances every few minutes; otherwise
its lag, and the spool, would grow for ever. A table that failed its gate, or that another writer interfered with, is
tried again every few minutes. A table that needs a person waits for the next run. Signals are served between rounds.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed, NotOurTable, Retryable, SourceAway, SparkLost
from lakeingest.mysql.connection import reopen, written_position
from lakeingest.mysql.continuity import still_there
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.binlog_run import BinlogRun
from lakeingest.pipeline.bootstrap import bootstrap
from lakeingest.pipeline.boundaries import check_boundaries
from lakeingest.pipeline.catch_up import merge_and_publish, trim_spool
from lakeingest.pipeline.copying import copy_missing, incomplete
from lakeingest.pipeline.edge_errors import translate_errors
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.events import SourceLost
from lakeingest.pipeline.open_run import OpenRun
from lakeingest.pipeline.signals import drop, look, serve
from lakeingest.pipeline.stopping import resume, working_on
from lakeingest.pipeline.table_run import TableRun

POLL_SECONDS = 0.5
QUIET_SECONDS = 180.0  # a table without changes lags this much, and half a second more for each other such table
RETRY_SECONDS = 300.0  # between tries of a table that stopped with an error that may pass by itself
PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)  # between tries to reach a source that is away

Result = TypeVar("Result")


def follow(run: OpenRun, stopping: Callable[[], bool]) -> None:
    """Keep tables up to date that have caught up, until `stopping` says so; it is asked after each commit."""
    worked_at = {table.id: time.monotonic() for table in run.requested}
    run.signals.folder.trim()

    def work() -> bool:
        return _round(run, stopping, worked_at) | (not stopping() and serve(run, wait=False))

    try:
        while not stopping() and (run.going_on or run.paused or _worth_a_retry(run)):
            if not persistently(run, stopping, work):
                _wait(POLL_SECONDS, stopping)
    finally:
        drop(run)


def work_off(run: OpenRun, stopping: Callable[[], bool]) -> None:
    """Serve every signal that this run can serve, with a round after each wave, until `stopping` says so."""
    worked_at = {table.id: time.monotonic() for table in run.requested}
    run.signals.folder.trim()
    try:
        while not stopping() and serve(run, wait=True):
            _round(run, stopping, worked_at)
    finally:
        drop(run)


def persistently(run: OpenRun, stopping: Callable[[], bool], work: Callable[[], Result]) -> Result | None:
    """The result of `work`, repeated where the source was away or Spark ended; None when `stopping` came first.

    The source is connected to again after pauses, for about a minute in all; then SourceAway. BinlogGone when another
    server came back in its place. Spark is started again as often; SparkLost at once where the session is borrowed.
    """
    edges = run.edges
    pauses: Iterator[float] = iter(PAUSES_SECONDS)
    lost: Retryable | None = None
    while True:
        began = time.monotonic()
        try:
            with translate_errors(edges.config.source, edges.target):
                if isinstance(lost, SourceAway):
                    _reconnect(edges, run.binlog)
                elif isinstance(lost, SparkLost):
                    _start_spark_again(run)
                lost = None
                return work()
        except (SourceAway, SparkLost) as error:
            lost = error
            if isinstance(error, SparkLost) and edges.executors.borrowed:
                raise
            if time.monotonic() - began > sum(PAUSES_SECONDS):  # it worked for long: this is a new interruption
                pauses = iter(PAUSES_SECONDS)
            pause = next(pauses, None)
            if pause is None:
                raise
            edges.observe(SourceLost(str(error), pause))
            _wait(pause, stopping)
            if stopping():
                return None


def _reconnect(edges: Edges, binlog: BinlogRun) -> None:
    """Connect to the source again; BinlogGone unless it still has the binlog after the spool."""
    reopen(edges.connection)
    still_there(edges.config.source, edges.connection, binlog.spool.position)
    binlog.forget_boundaries()
    check_boundaries(edges.config.source, edges.connection, binlog.spool)


def _start_spark_again(run: OpenRun) -> None:
    """Spark has ended: a session is started when it is needed, and every table is loaded from the lake again."""
    run.edges.executors.forget()
    for table in run.tables.values():
        if table.copy is not None and table.stop is None:
            with working_on(run.edges, table):
                _load_again(run.edges, table)


def _load_again(edges: Edges, table: TableRun) -> None:
    """The lake says where the table stands; NotOurTable when it has no copy any more."""
    staged = edges.target.recover(table.id)
    if staged is None:
        raise NotOurTable(f"{table.id}: its copy was dropped; the next run copies it again")
    table.advance(staged)


def _round(run: OpenRun, stopping: Callable[[], bool], worked_at: dict[TableId, float]) -> bool:
    """Spool what is new, merge and publish the tables that are due; False when no table was due."""
    edges, binlog = run.edges, run.binlog
    look(run)
    if incomplete(run) and not copy_missing(run, stopping):  # tables that were paused while they were copied
        return True
    if written_position(edges.connection) != binlog.spool.position.at:
        spool_to_now(edges, binlog)
    due = _due(run, worked_at)
    retried = [table for table in _worth_a_retry(run) if worked_at[table.id] < time.monotonic() - RETRY_SECONDS]
    for table in (*due, *retried):
        with working_on(edges, table):
            if table.stop is None or _begin_again(edges, binlog, table, stopping):
                merge_and_publish(edges, binlog.spool, table)
                resume(edges, table)
        worked_at[table.id] = time.monotonic()
        if stopping():
            break
    if due or retried:
        trim_spool(run)
    return bool(due or retried)


def _worth_a_retry(run: OpenRun) -> list[TableRun]:
    """The stopped tables that may go on without a person: rows that fail a gate are corrected, other writers end."""
    stops = ((run.tables[table], stop.error) for table, stop in run.stops.items())
    return [table for table, error in stops if not table.paused and isinstance(error, GateFailed | Retryable)]


def _begin_again(edges: Edges, binlog: BinlogRun, table: TableRun, stopping: Callable[[], bool]) -> bool:
    """Load a stopped table as a new run does, and copy its missing chunks; False when `stopping` came first."""
    _load_again(edges, table)
    bootstrap(edges, binlog, table, stopping)
    return not table.has_missing_chunks


def _due(run: OpenRun, worked_at: dict[TableId, float]) -> list[TableRun]:
    """The tables with change rows that are not merged, and the quiet table that has waited longest for its position."""
    spool, late = run.binlog.spool, time.monotonic() - QUIET_SECONDS
    behind = [table for table in run.going_on if table.progress.needed_from < spool.position.place]
    busy = [table for table in behind if spool.backlog(table.id, table.progress.needed_from)]
    quiet = [table for table in behind if table not in busy and worked_at[table.id] < late]
    return busy + sorted(quiet, key=lambda table: worked_at[table.id])[:1]


def _wait(seconds: float, stopping: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not stopping() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
