"""Unseen DDL: a table stops before its next publish if the DDL in the spool does not explain its definition.

The binlog does not have DDL that ran with sql_log_bin = 0. Rows that name their columns show such DDL. Rows that do not
(binlog_row_metadata=MINIMAL, NO_LOG) may have been read by the wrong definition. So at the end of the spool, the
server's definitions are compared with the definitions that result from the DDL in the spool. A table whose definition
differs stops until its rows are read again: to undo the DDL does not correct rows that were read wrongly.
"""

from collections.abc import Iterable
from typing import NoReturn

from lakeingest.core.binlog.position import in_same_file
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import SchemaChanged, SplitUnstable
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.hidden_tables import stop_as_hidden
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun, Trust
from lakeingest.pipeline.run.watch import Watch
from lakeingest.state.definition import keep_found, keep_layout, keep_suspect


def look_for_unseen_ddl(edges: Edges, binlog: BinlogRun, tables: Iterable[TableRun]) -> None:
    """Compare the definitions of watched tables with the server's. A table that differs was altered unseen.

    DDL after the spool's end is no unseen DDL. So if a table differs, the binlog is first spooled up to the written
    position: if that shows DDL of the table, the table was not altered unseen. A table that the user has no right to
    see any more, even in part, stops.
    """
    differing = _find_differing(edges, tables)
    for table in differing:
        if edges.source.is_hidden(table.id):
            stop_as_hidden(edges, table)
    going_on = [table for table in differing if table.failure is None]
    if going_on:
        spool_to_now(edges, binlog)
    for table in going_on:
        is_unexplained = table.watch is Watch.WATCHED  # else the spool has DDL of the table, or the table has stopped
        if is_unexplained:
            table.found_altered()


def stop_at_unseen_ddl(edges: Edges, table: TableRun) -> NoReturn:
    """Raise SchemaChanged. If rows in the binlog do not name their columns, the copy is suspect from now on."""
    suspect_unnamed(edges, table)
    raise SchemaChanged(
        f"{table.id}: DDL or tables.options changed its definition since it was copied; it must be copied again"
    )


def suspect_unnamed(edges: Edges, table: TableRun) -> None:
    """If rows in the binlog do not name their columns, let the copy be suspect from now on."""
    if not edges.source.names_columns():
        keep_suspect(edges.writing, table.schema)
        table.doubt_rows()
        # for `assert_file_has_definition`, when all rows are read again
        current = edges.source.schemas({table.id: table.schema.choices})[table.id]
        if isinstance(current, TableSchema):  # else the source refuses the definition
            keep_found(edges.writing, current, edges.source.written())


def assert_not_suspect(table: TableRun) -> None:
    """Raise SchemaChanged if rows may have been read by a wrong definition."""
    if table.trust is Trust.SUSPECT:
        raise SchemaChanged(
            f"{table.id}: DDL that the binlog lacks changed its definition, and its rows may have been read by a wrong"
            " one; copy the table again"
        )


def assert_file_has_definition(edges: Edges, binlog: BinlogRun, table: TableRun, schema: TableSchema) -> None:
    """Raise SplitUnstable if the current binlog file may have changes of a suspect table in another definition.

    Without GTIDs, a new copy of the table needs the changes from the start of that file on. So the source must have
    begun the file after a run has found the definition `schema`.
    """
    if table.trust is not Trust.SUSPECT or not edges.source.reads_from_file_start(binlog.spool.position):
        return
    at = edges.source.written()
    found_at = keep_found(edges.writing, schema, at)  # `at`, or where the binlog ended when an earlier run found it
    if in_same_file(at, found_at):
        raise SplitUnstable(
            f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: the binlog file {at.file}"
            " may have rows of another definition, which without GTIDs would be read by the current one"
        )


def _find_differing(edges: Edges, tables: Iterable[TableRun]) -> list[TableRun]:
    """The watched tables whose definition on the server differs, except those known to be altered unseen.

    A watched table whose definition does not differ takes over the server's layout.
    """
    not_known = (table for table in tables if table.trust is not Trust.ALTERED_UNSEEN)
    watched = {table.id: table for table in not_known if table.watch is Watch.WATCHED}
    schemas = edges.source.schemas({table.id: table.schema.choices for table in watched.values()})
    differing = []
    for table in watched.values():
        current = schemas[table.id]
        # without a definition, the source refuses it, or the table is gone or hidden
        if not isinstance(current, TableSchema) or not table.schema.reads_as(current):
            differing.append(table)
        elif table.schema.layout != current.layout:
            table.know_layout(table.schema.laid_out(current))
            with working_on(edges, table):
                keep_layout(edges.writing, table.schema)
    return differing
