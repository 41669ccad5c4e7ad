"""Going on after the source, the lake or Spark was away: reconnect or load the tables again, then repeat the work."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakeingest.errors import CatalogAway, NotOurTable, Retryable, SourceAway, SparkLost, StorageAway
from lakeingest.pipeline.binlog.boundaries import check_boundaries
from lakeingest.pipeline.events import SourceLost
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import reload

POLL_SECONDS = 0.5
AWAY = SourceAway, SparkLost, CatalogAway, StorageAway  # after one of these errors a run waits, and goes on
PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)  # between tries to reach a source that is away

Result = TypeVar("Result")


def persistently(run: OpenRun, stopping: Callable[[], bool], work: Callable[[], Result]) -> Result | None:
    """Do `work`, and repeat it while the source, the lake or Spark is away. Returns the result of `work`.

    Returns None if `stopping` says so during a pause. The pauses between attempts grow, and last about a minute in all.
    After a pause, the run connects to the source again if the source was away. If the lake or Spark was away, the run
    loads all tables from the lake again, and starts Spark again if necessary.

    Raises:
        SourceAway, CatalogAway, StorageAway, SparkLost: the service is away for longer than all pauses. SparkLost is
            raised at once if the session is borrowed.
        BinlogGone: the source no longer has the binlog after the spool.
        SourceReplaced: another server answers instead of the source.

    """
    edges = run.edges
    pauses: Iterator[float] = iter(PAUSES_SECONDS)
    lost: Retryable | None = None
    while True:
        began = time.monotonic()
        try:
            with translate_errors(edges.source.settings, edges.target):
                if isinstance(lost, SourceAway):
                    _reconnect(edges, run.binlog)
                elif lost is not None:
                    _load_all_again(run)
                lost = None
                return work()
        except AWAY as error:
            lost = error
            if isinstance(error, SparkLost) and edges.executors.borrowed:  # only the caller can start it again
                raise
            if isinstance(error, SparkLost):
                edges.executors.forget()
            if time.monotonic() - began > sum(PAUSES_SECONDS):  # the work went on for long: this is a new interruption
                pauses = iter(PAUSES_SECONDS)
            pause = next(pauses, None)
            if pause is None:
                raise
            edges.observe(SourceLost(str(error), pause))
            wait(pause, stopping)
            if stopping():
                return None


def _reconnect(edges: Edges, binlog: BinlogRun) -> None:
    """Connect to the source again.

    Raises BinlogGone if the source no longer has the binlog after the spool, SourceReplaced if it is another server.
    """
    edges.source.reopen()
    edges.source.assert_there(binlog.spool.position)
    # a crash of the source may have cut off the binlog's end, where segments were to be cut
    binlog.forget_boundaries()
    check_boundaries(edges.source, binlog.spool)


def _load_all_again(run: OpenRun) -> None:
    """Load every table from the lake, because it is not known which commits the interrupted work has made."""
    for table in run.tables.values():
        if table.copy is not None and table.failure is None:
            with working_on(run.edges, table):
                load_again(run.edges, table)


def load_again(edges: Edges, table: TableRun) -> None:
    """Load the table's staged state from the lake. Raises NotOurTable if its copy was dropped."""
    staged = edges.target.recover(table.id)
    if staged is None:
        raise NotOurTable(f"{table.id}: its copy was dropped; the next run copies it again")
    reload(edges, table, staged)


def wait(seconds: float, stopping: Callable[[], bool]) -> None:
    """Wait for so many seconds, or until `stopping` says so."""
    end = time.monotonic() + seconds
    while not stopping() and (rest := end - time.monotonic()) > 0:
        time.sleep(min(rest, POLL_SECONDS))
