"""Stopping one table while the other tables go on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.core.ddl.recopying import TRIES_MAX
from lakeingest.errors import DecodersDisagree, LakeIngestError, SchemaChanged, Scope, StorageFailed, UnsupportedEvent
from lakeingest.pipeline.events import TableStopped
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import Failure, TableRun
from lakeingest.state.stopped import Stopped
from lakeingest.state.witness import store_difference
from lakeingest.version import VERSION


@contextmanager
def working_on(edges: Edges, table: TableRun) -> Iterator[None]:
    """If an error of the block concerns only this table, stop the table; the run goes on after the block."""
    try:
        with translate_errors(edges.source.settings, edges.target):
            yield
    except LakeIngestError as error:
        if error.scope is not Scope.TABLE:
            raise
        fail(edges, table, error)


def fail(edges: Edges, table: TableRun, error: LakeIngestError, *, asked: bool = False) -> None:
    """Stop the table at its last commit, and store the reason for `status`.

    The observer gets an event, unless the table had stopped for the same reason before. `asked`: someone has asked to
    read the table's rows again, and this run reads them.
    """
    earlier = table.failure
    record = Stopped.of(table.id, error)
    table.fail(Failure(error, record, time.monotonic()))
    _record(edges, record, error)
    if earlier is not None and earlier.error.line == error.line:
        return  # the observer knows this reason
    waits_for_person = table.paused or edges.config.asks  # `asks`: a person has to approve DDL
    may_recopy = edges.config.evolves and not waits_for_person and table.recopies < TRIES_MAX
    is_recopied = may_recopy and is_stopped_by_ddl(table)
    edges.observe(TableStopped(table.id, error, again=asked or is_recopied))


def is_stopped_by_ddl(table: TableRun) -> bool:
    """Whether the table has stopped at DDL in the binlog."""
    error = None if table.failure is None else table.failure.error
    if isinstance(error, UnsupportedEvent):
        return error.alterations is not None
    return isinstance(error, SchemaChanged) and error.by_ddl


def unwatch(edges: Edges, table: TableRun, error: LakeIngestError) -> None:
    """Stop a watched table that has a change in the binlog which cannot be replayed.

    From now on, the binlog is read without this table. For a table that is not watched, nothing is done.
    """
    if not table.is_watched:
        return
    table.lost_change()
    if table.requested:
        fail(edges, table, error)
    else:  # the run is for other tables: only `status` shows the error
        _record(edges, Stopped.of(table.id, error), error)


def _record(edges: Edges, stopped: Stopped, error: LakeIngestError) -> None:
    """Store why the table stopped. If it stopped because two decoders disagree, also store their difference.

    If only these documents cannot be written, the run goes on, and reports the reason at its end.
    """
    try:
        edges.stopped.record(stopped)
        if isinstance(error, DecodersDisagree) and error.difference is not None:
            edges.witness.suspect(error.difference.table)
            server, masked = edges.source.greeting, edges.witness.masked
            store_difference(edges.writing, error.difference, VERSION, server, masked=masked)
    except StorageFailed as failed:
        if failed.scope is not Scope.TABLE:
            raise


def clear_failure(edges: Edges, table: TableRun) -> None:
    """Let the table go on, because it is up to date or is copied again. Remove the stored reason of its stop."""
    table.clear_failure()
    edges.stopped.remove(table.id)
