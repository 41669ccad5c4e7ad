"""Going on after the source, the lake or Spark was away: reconnect, load the tables again, and repeat the work."""

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
AWAY = SourceAway, SparkLost, CatalogAway, StorageAway  # what a run waits for
PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)  # between tries to reach a source that is away

Result = TypeVar("Result")


def persistently(run: OpenRun, stopping: Callable[[], bool], work: Callable[[], Result]) -> Result | None:
    """The result of `work`, repeated where source or catalog was away or Spark ended; None when `stopping` came first.

    The source is connected to again after pauses, for about a minute in all. The catalog is asked again as often, and
    Spark is started again as often.

    Raises:
        SourceAway, CatalogAway, StorageAway, SparkLost: it is away for longer. SparkLost is raised at once where the
            session is borrowed.
        BinlogGone: another server came back in the source's place.

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
            wait(pause, stopping)
            if stopping():
                return None


def _reconnect(edges: Edges, binlog: BinlogRun) -> None:
    """Connect to the source again; BinlogGone unless it still has the binlog after the spool."""
    edges.source.reopen()
    edges.source.assert_there(binlog.spool.position)
    binlog.forget_boundaries()
    check_boundaries(edges.source, binlog.spool)


def _load_all_again(run: OpenRun) -> None:
    """Load every table from the lake: it is not known how far the work on it came."""
    for table in run.tables.values():
        if table.copy is not None and table.failure is None:
            with working_on(run.edges, table):
                load_again(run.edges, table)


def load_again(edges: Edges, table: TableRun) -> None:
    """The lake says where the table stands; NotOurTable when it has no copy any more."""
    staged = edges.target.recover(table.id)
    if staged is None:
        raise NotOurTable(f"{table.id}: its copy was dropped; the next run copies it again")
    reload(edges, table, staged)


def wait(seconds: float, stopping: Callable[[], bool]) -> None:
    """Wait for so long, but no longer than until `stopping` says so."""
    end = time.monotonic() + seconds
    while not stopping() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
