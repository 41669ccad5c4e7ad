"""Starting over: all rows of a table that has stopped are read again.

A copy that cannot be continued is started over: after DDL that it cannot follow, by the run itself; if changes in the
binlog are lost or cannot be replayed, when a person asks for it. The copy begins again from its first chunk, or goes on
`over_gap`: its rows are compared. Readers see the old rows and columns until all rows are read and have passed the
gates. In a format that does not follow DDL, the table must still have the definition of its copy.
"""

from lakeingest.errors import (
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
)
from lakeingest.pipeline.joining.joining import join
from lakeingest.pipeline.joining.over_gap import lift_over_gap
from lakeingest.pipeline.preconditions import refusal
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import is_stopped_by_ddl
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.definitions import assert_unchanged
from lakeingest.pipeline.schema.unseen_ddl import assert_read_by

MENDED = (BinlogGone, SourceDiverged, SpoolGap, UnsupportedValue, UnsupportedEvent, SchemaChanged, StateUnreadable)


def hindrance(table: TableRun, *, whole: bool) -> str:
    """Why a request does not start a stopped table over; '' if it does. `whole`: it is for all rows of the table."""
    assert table.failure is not None  # noqa: S101 - the caller has looked
    stopped = f"{table.id} has stopped: {table.failure.record.error}: {table.failure.record.message}"
    if not isinstance(table.failure.error, MENDED):
        return f"{stopped}; this waits until that is mended (lakeingest explain {table.failure.record.error})"
    if not whole:
        return f"{stopped}; `lakeingest resnapshot {table.id}`, of the whole table, starts its copy over"
    return ""


def start_over(run: OpenRun, table: TableRun, *, over_gap: bool) -> LakeIngestError | None:
    """Start the copy of a stopped table over, for the waiting signals; None, or the reason why that cannot be done.

    With `over_gap` its rows stay and are compared, if possible. If it is not possible and deleted rows are to stay, the
    copy is not started over, because they would be lost. The table may have stopped again when this returns.
    """
    edges = run.edges
    try:
        with translate_errors(edges.source.settings, edges.target):
            staged = table.copy or edges.target.recover(table.id)
            schema = edges.source.schema(table.id, table.options.choices)
            if staged is None:
                return Retryable(f"{table.id}: its copy was dropped; the next run copies it again")
            if not edges.config.evolves:
                assert_unchanged(staged, schema)
            if refused := refusal(edges.config, edges.source, table.id):
                return refused
            if not is_stopped_by_ddl(table):  # after DDL, the new copy begins behind it
                assert_read_by(edges, run.binlog, table, schema)
    except LakeIngestError as error:
        if isinstance(error, Retryable) and error.scope is not Scope.TABLE:
            raise
        return error
    if staged.published is None and not over_gap:
        return Retryable(f"{table.id}: the next run goes on with its first copy")
    if (
        over_gap
        and schema.keeps_deleted
        and lift_over_gap(edges.config, edges.source, run.binlog.spool, staged, schema) is None
    ):
        return SchemaChanged(
            f"{table.id}: its rows cannot be compared with the source's; `lakeingest resnapshot {table.id}` copies it"
            " again, which takes out the rows that are marked as deleted"
        )
    run.signals.begun.pop(table.id, None)
    table.recopy(schema, compares=over_gap)
    table.advance(staged)
    join(run)
    return None
