"""Starting over: all rows of a table that has stopped are read again.

A copy is started over if it cannot be continued. After DDL that the copy cannot follow, the run decides this without a
person. If changes in the binlog are lost or cannot be replayed, a person has to ask for it. The copy begins again from
its first chunk, or keeps its rows, which are compared with the source (`over_gap`). Readers see the old rows and
columns until all rows are read and have passed the gates. If the configuration does not follow DDL, the table must
still have the definition of its copy.
"""

from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import (
    AuditFailed,
    BinlogGone,
    LakeIngestError,
    Retryable,
    SchemaChanged,
    Scope,
    SourceDiverged,
    SpoolGap,
    StateUnreadable,
    UnsupportedEvent,
    UnsupportedValue,
    VerificationFailed,
)
from lakeingest.pipeline.joining.joining import join
from lakeingest.pipeline.joining.over_gap import lift_over_gap
from lakeingest.pipeline.preconditions import refusal
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import is_stopped_by_ddl
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.definitions import assert_unchanged
from lakeingest.pipeline.schema.unseen_ddl import assert_file_has_definition

# The errors of a stopped table that a new copy mends
MENDED = (
    *(BinlogGone, SourceDiverged, SpoolGap, UnsupportedValue, UnsupportedEvent, SchemaChanged, StateUnreadable),
    *(AuditFailed, VerificationFailed),
)


def hindrance(table: TableRun, *, whole: bool) -> str:
    """The reason why a signal cannot start the copy of a stopped table over; '' if it can.

    A signal can start the copy over only after one of the errors in MENDED, and only if the signal is for all rows of
    the table (`whole`).
    """
    assert table.failure is not None  # noqa: S101 - the caller has looked
    stopped = f"{table.id} has stopped: {table.failure.record.error}: {table.failure.record.message}"
    if not isinstance(table.failure.error, MENDED):
        return f"{stopped}; the signal waits until it is mended (lakeingest explain {table.failure.record.error})"
    if not whole:
        return f"{stopped}; `lakeingest resnapshot {table.id}`, of the whole table, starts its copy over"
    return ""


def start_over(
    run: OpenRun, table: TableRun, *, over_gap: bool, schema: TableSchema | None = None
) -> LakeIngestError | None:
    """Start the copy of a stopped table over, for the signals that wait for it. Returns the reason if that fails.

    A retryable error that concerns more than the table is raised.

    With `over_gap` the copy's rows stay and are compared, if that is possible. If it is not possible, and the copy
    keeps deleted rows, the copy is not started over, because the deleted rows would be lost. When this returns None,
    the table may have stopped with a new error. `schema`: the definition to begin with, if the caller has checked one;
    None: the source's present one.
    """
    edges = run.edges
    try:
        with translate_errors(edges.source.settings, edges.target):
            staged = table.copy or edges.target.recover(table.id)
            schema = schema or edges.source.schema(table.id, table.options.choices)
            if staged is None:
                return Retryable(f"{table.id}: its copy was dropped; the next run copies it again")
            if not edges.config.evolves:
                assert_unchanged(staged, schema)
            if refused := refusal(edges.config, edges.source, table.id):
                return refused
            if not is_stopped_by_ddl(table):  # else the new copy begins after the DDL, with the current definition
                assert_file_has_definition(edges, run.binlog, table, schema)
    except LakeIngestError as error:
        if isinstance(error, Retryable) and error.scope is not Scope.TABLE:
            raise
        return error
    if staged.published is None and not over_gap:
        return Retryable(f"{table.id}: the next run goes on with its first copy")
    must_compare = over_gap and schema.keeps_deleted  # else the rows that are marked as deleted would be lost
    if must_compare and lift_over_gap(edges.config, edges.source, run.binlog.spool, staged, schema) is None:
        return SchemaChanged(
            f"{table.id}: its rows cannot be compared with the source's; `lakeingest resnapshot {table.id}` copies it"
            " again, which takes out the rows that are marked as deleted"
        )
    run.signals.begun.pop(table.id, None)  # its re-snapshot, in whose place all rows are read again
    table.recopy(schema, compares=over_gap)
    table.advance(staged)  # the table may have been without its copy, if it could not be loaded
    join(run)
    return None
