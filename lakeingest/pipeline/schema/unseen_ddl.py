"""Unseen DDL: a table stops before its next publish if the server defines it otherwise than its logged DDL gives.

The binlog lacks DDL that ran with sql_log_bin = 0. Rows show such DDL if they name their columns. If they do not
(binlog_row_metadata=MINIMAL, NO_LOG), rows may have been read by the wrong definition. So at the end of the spool the
server's definitions are compared with those that the spool leads to. A table whose definition differs stops for good:
to undo the DDL does not mend the rows.
"""

from collections.abc import Iterable
from typing import NoReturn

from lakeingest.core.position import in_same_file
from lakeingest.core.schema import TableSchema
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
    """Compare the definitions of watched tables at the end of the spool; those that differ are altered unseen.

    DDL that was written after the spool is no difference: then the spool is read on, and has it. Nor is it one that the
    user may no longer see the table, or a part of it: then the table stops.
    """
    differing = _differing(edges, tables)
    for table in differing:
        if edges.source.is_hidden(table.id):
            stop_as_hidden(edges, table)
    differing = [table for table in differing if table.failure is None]
    if differing:
        spool_to_now(edges, binlog)
    for table in differing:
        if table.watch is Watch.WATCHED:
            table.found_altered()


def stop_at_unseen_ddl(edges: Edges, table: TableRun) -> NoReturn:
    """Raise SchemaChanged; the copy is suspect where rows in the binlog do not name their columns."""
    suspect_unnamed(edges, table)
    raise SchemaChanged(
        f"{table.id}: DDL or tables.options changed its definition since it was copied; it must be copied again"
    )


def suspect_unnamed(edges: Edges, table: TableRun) -> None:
    """Where rows in the binlog do not name their columns, the copy is suspect from now on."""
    if not edges.source.names_columns():
        keep_suspect(edges.state, table.schema)
        table.doubt_rows()
        now = edges.source.schemas({table.id: table.schema.choices})[table.id]
        if isinstance(now, TableSchema):
            keep_found(edges.state, now, edges.source.written())


def assert_not_suspect(table: TableRun) -> None:
    """SchemaChanged where rows may have been read by a wrong definition."""
    if table.trust is Trust.SUSPECT:
        raise SchemaChanged(
            f"{table.id}: DDL that the binlog lacks changed its definition, and its rows may have been read by a wrong"
            " one; copy the table again"
        )


def assert_read_by(edges: Edges, binlog: BinlogRun, table: TableRun, schema: TableSchema) -> None:
    """SplitUnstable where changes of a suspect table that are read beside its rows may be of another definition.

    Without GTIDs they begin with the source's binlog file. It has to be one that was begun after a run has found this
    definition.
    """
    if table.trust is not Trust.SUSPECT or not edges.source.reads_from_file_start(binlog.spool.position):
        return
    at = edges.source.written()
    if in_same_file(at, keep_found(edges.state, schema, at)):
        raise SplitUnstable(
            f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: the binlog file {at.file}"
            " may have rows of another definition, which without GTIDs would be read by the current one"
        )


def _differing(edges: Edges, tables: Iterable[TableRun]) -> list[TableRun]:
    """The watched tables that the server defines in another way; of the others the whole layout is known then."""
    trusted = (table for table in tables if table.trust is not Trust.ALTERED_UNSEEN)
    watched = {table.id: table for table in trusted if table.watch is Watch.WATCHED}
    now = edges.source.schemas({table.id: table.schema.choices for table in watched.values()})
    differing = []
    for table in watched.values():
        found = now[table.id]
        if not isinstance(found, TableSchema) or not table.schema.reads_as(found):
            differing.append(table)
        elif table.schema.layout != found.layout:
            table.know_layout(table.schema.laid_out(found))
            with working_on(edges, table):
                keep_layout(edges.state, table.schema)
    return differing
