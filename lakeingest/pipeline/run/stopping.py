"""A table that must stop while the other tables go on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.core.recopying import TRIES_MAX
from lakeingest.errors import LakeIngestError, SchemaChanged, Scope, StorageFailed, UnsupportedEvent
from lakeingest.pipeline.events import TableStopped
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import Failure, TableRun
from lakeingest.state.stopped import Stopped, record_stopped, remove_stopped


@contextmanager
def working_on(edges: Edges, table: TableRun) -> Iterator[None]:
    """An error of the block that concerns only this table stops the table, and the run goes on after the block."""
    try:
        with translate_errors(edges.source.settings, edges.target):
            yield
    except LakeIngestError as error:
        if error.scope is not Scope.TABLE:
            raise
        fail(edges, table, error)


def fail(edges: Edges, table: TableRun, error: LakeIngestError, *, asked: bool = False) -> None:
    """The table stays at its last commit. The reason is stored for `status`.

    `asked`: someone has asked to read its rows again, which this run does.
    """
    known, record = table.failure, Stopped.of(table.id, error)
    table.fail(Failure(error, record, time.monotonic()))
    _record(edges, record)
    if known is None or known.error.line != error.line:  # else it was said
        again = is_stopped_by_ddl(table) and edges.config.evolves and not (table.paused or edges.config.asks)
        edges.observe(TableStopped(table.id, error, again=asked or (again and table.recopies < TRIES_MAX)))


def is_stopped_by_ddl(table: TableRun) -> bool:
    """Whether the table has stopped at DDL in the binlog."""
    error = None if table.failure is None else table.failure.error
    if isinstance(error, UnsupportedEvent):
        return error.alterations is not None
    return isinstance(error, SchemaChanged) and error.by_ddl


def unwatch(edges: Edges, table: TableRun, error: LakeIngestError) -> None:
    """The binlog holds a change of the table that cannot be replayed: from now on it is read for the other tables."""
    if not table.is_watched:
        return
    table.lost_change()
    if table.requested:
        fail(edges, table, error)
    else:
        _record(edges, Stopped.of(table.id, error))


def _record(edges: Edges, stopped: Stopped) -> None:
    """Store the reason, unless only this table's document cannot be written: the run says it at its end, too."""
    try:
        record_stopped(edges.state, stopped)
    except StorageFailed as error:
        if error.scope is not Scope.TABLE:
            raise


def clear_failure(edges: Edges, table: TableRun) -> None:
    """The table is up to date: it has not stopped any more, and the stored reason of an earlier stop is removed."""
    table.clear_failure()
    remove_stopped(edges.state, table.id)
