"""Following: what the source writes is spooled, merged and published as it comes.

A round reads the written position and, when it moved, spools the binlog up to it, which is the end of a transaction.
Tables with change rows are merged and published. The positions of quiet tables advance every few minutes; otherwise
their lag, and the spool, would grow for ever. A table that failed its gate, or that another writer interfered with, is
tried again every few minutes. A table that needs a person waits for the next run. Tables that appear in the source join
the run, and are copied beside the rounds. Signals are served between rounds.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from lakeingest.core.phases import Phase
from lakeingest.core.schema import TableId
from lakeingest.errors import CatalogAway, GateFailed, NotOurTable, Retryable, SourceAway, SparkLost, StorageAway
from lakeingest.mysql.connection import reopen, written_position
from lakeingest.mysql.continuity import still_there
from lakeingest.pipeline.binlog.boundaries import check_boundaries
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.catch_up import merge_and_publish, trim_spool
from lakeingest.pipeline.copying.beside import CopyingBeside
from lakeingest.pipeline.events import SourceLost
from lakeingest.pipeline.joining.beginning_again import begin_altered_again
from lakeingest.pipeline.rounds.discovery import Discovery
from lakeingest.pipeline.rounds.missing_chunks import copy_missing, incomplete
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import is_changed_above, parents_first
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import resume, working_on
from lakeingest.pipeline.run.table_run import TableRun, Watch
from lakeingest.pipeline.schema.lifting import reload
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.pipeline.signals.documents import look
from lakeingest.pipeline.signals.serving import drop, serve

POLL_SECONDS = 0.5
QUIET_SECONDS = 180.0  # a table without changes lags this much
RETRY_SECONDS = 300.0  # between tries of a table that stopped with an error that may pass by itself
_AWAY = SourceAway, SparkLost, CatalogAway, StorageAway  # what a run waits for
PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)  # between tries to reach a source that is away

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Beside:
    """What goes on beside the tables that have caught up: new tables are found, and missing chunks are copied."""

    discovery: Discovery
    copying: CopyingBeside


def follow(run: OpenRun, stopping: Callable[[], bool]) -> None:
    """Keep tables up to date that have caught up, until `stopping` says so; it is asked after each commit."""
    beside = Beside(Discovery(run), CopyingBeside(run.edges, run.binlog))
    worked_at = {table.id: time.monotonic() for table in run.requested}
    run.signals.folder.trim()

    def work() -> bool:
        return _round(run, stopping, worked_at, beside) | (not stopping() and serve(run, wait=False))

    try:
        while not stopping() and (run.going_on or run.paused or _worth_a_retry(run)):
            if not persistently(run, stopping, work):
                _wait(POLL_SECONDS, stopping)
    finally:
        beside.copying.cancel()
        drop(run)


def work_off(run: OpenRun, stopping: Callable[[], bool]) -> None:
    """Serve every signal that this run can serve, with a round after each wave, until `stopping` says so."""
    worked_at = {table.id: time.monotonic() for table in run.requested}
    run.signals.folder.trim()
    try:
        while not stopping() and serve(run, wait=True):
            _round(run, stopping, worked_at, None)
    finally:
        drop(run)


def persistently(run: OpenRun, stopping: Callable[[], bool], work: Callable[[], Result]) -> Result | None:
    """The result of `work`, repeated where source or catalog was away or Spark ended; None when `stopping` came first.

    The source is connected to again after pauses, for about a minute in all; then SourceAway. BinlogGone when another
    server came back in its place. The catalog is asked again as often, and Spark is started again as often; SparkLost
    at once where the session is borrowed.
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
                elif lost is not None:
                    _load_all_again(run)
                lost = None
                return work()
        except _AWAY as error:
            lost = error
            if isinstance(error, SparkLost) and edges.executors.borrowed:
                raise
            if isinstance(error, SparkLost):
                edges.executors.forget()
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


def _load_all_again(run: OpenRun) -> None:
    """Load every table from the lake: it is not known how far the work on it came."""
    for table in run.tables.values():
        if table.copy is not None and table.stop is None:
            with working_on(run.edges, table):
                _load_again(run.edges, table)


def _load_again(edges: Edges, table: TableRun) -> None:
    """The lake says where the table stands; NotOurTable when it has no copy any more."""
    staged = edges.target.recover(table.id)
    if staged is None:
        raise NotOurTable(f"{table.id}: its copy was dropped; the next run copies it again")
    reload(edges, table, staged)


def _round(run: OpenRun, stopping: Callable[[], bool], worked_at: dict[TableId, float], beside: Beside | None) -> bool:
    """One round; what is read beside it is dropped where the source, the lake or Spark is lost.

    Without `beside` the round itself copies the missing chunks of tables that were paused, and no new table is found.
    """
    try:
        return _spool_and_publish(run, stopping, worked_at, beside)
    except _AWAY:
        if beside is not None:
            beside.copying.cancel()
        raise


def _spool_and_publish(
    run: OpenRun, stopping: Callable[[], bool], worked_at: dict[TableId, float], beside: Beside | None
) -> bool:
    """Spool what is new, merge and publish the tables that are due; False when no table was due.

    At the end a wave of a table that is copied is committed. Its high watermarks are behind the spool until the next
    round, which may merge and publish it.
    """
    edges, binlog = run.edges, run.binlog
    look(run)
    begin_altered_again(run)
    if beside is not None:
        beside.discovery.look()
    elif incomplete(run) and not copy_missing(run, stopping):
        return True
    if written_position(edges.connection) != binlog.spool.position.at:
        spool_to_now(edges, binlog)
        stop_hidden(run)
    due = _due(run, worked_at)
    look_for_unseen_ddl(edges, binlog, due)
    due = [table for table in due if table.stop is None]
    now = time.monotonic()
    retried = [
        table for table in _worth_a_retry(run) if worked_at.setdefault(table.id, now) < now - RETRY_SECONDS
    ]  # a new table may have stopped before it was due
    for table in parents_first(binlog, [*due, *retried]):
        with working_on(edges, table):
            if table.stop is None or _begin_again(edges, table):
                merge_and_publish(edges, binlog, table)
                resume(edges, table)
        worked_at[table.id] = time.monotonic()
        if stopping():
            break
    committed = beside is not None and not stopping() and beside.copying.step(run.going_on)
    if due or retried or committed:
        trim_spool(run)
    return bool(due or retried or committed)


def _worth_a_retry(run: OpenRun) -> list[TableRun]:
    """The stopped tables that may go on without a person: rows that fail a gate are corrected, other writers end."""
    stops = ((run.tables[table], stop.error) for table, stop in run.stops.items())
    return [table for table, error in stops if not table.paused and isinstance(error, GateFailed | Retryable)]


def _begin_again(edges: Edges, table: TableRun) -> bool:
    """Load a stopped table as a new run does; False when it has missing chunks, which are copied beside the rounds."""
    _load_again(edges, table)
    if table.has_missing_chunks:
        resume(edges, table)
    return not table.has_missing_chunks


def _due(run: OpenRun, worked_at: dict[TableId, float]) -> list[TableRun]:
    """The tables that nobody sees yet as they were copied, or with change rows that are not merged, and quiet tables.

    Of the quiet tables that need a commit only the one that has waited longest. Tables with missing chunks are not due.
    """
    spool, late = run.binlog.spool, time.monotonic() - QUIET_SECONDS
    copied = [table for table in run.going_on if table.copy is not None and not table.has_missing_chunks]
    new = [table for table in copied if table.staged.published is None and not table.progress.gap]
    unseen = [table for table in copied if table in new or table.progress.phase is Phase.COPIED]
    behind = [table for table in copied if table not in unseen and table.progress.needed_from < spool.position.place]
    waiting_for_lift = [table for table in behind if table.watch is Watch.WAITING]
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


def _wait(seconds: float, stopping: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not stopping() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
