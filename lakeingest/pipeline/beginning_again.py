"""Beginning again: a first copy that DDL came into before readers saw it is dropped, and the table joins once more."""

from lakeingest.errors import LakeIngestError, SchemaChanged, UnsupportedEvent, of_table
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.pipeline.open_run import OpenRun
from lakeingest.pipeline.stopping import resume, working_on
from lakeingest.pipeline.table_run import TableRun, Watch

TRIES = 5  # for each table of a run; a table that is altered more often stops


def begin_altered_again(run: OpenRun) -> bool:
    """Let the tables join again that stopped because of DDL, and were never published; whether there is one."""
    has_begun = False
    for table in run.requested:
        if table.follows and table.begun_again < TRIES and _is_begun_in_vain(table):
            with working_on(run.edges, table):
                _begin_again(run, table)
                has_begun = True
    return has_begun


def _is_begun_in_vain(table: TableRun) -> bool:
    if table.stop is None or table.paused or table.copy is None or table.copy.published is not None:
        return False
    return is_of_ddl(table.stop.error)


def is_of_ddl(error: LakeIngestError) -> bool:
    """Whether a table stopped because it is not defined any more as it was copied."""
    is_statement = isinstance(error, UnsupportedEvent) and error.alterations is not None
    return is_statement or isinstance(error, SchemaChanged)


def _begin_again(run: OpenRun, table: TableRun) -> None:
    edges = run.edges
    with of_table():
        schema = read_schema(edges.connection, table.id, table.options.choices)
    edges.lease.assert_held()
    edges.target.discard(table.id)
    table.begun_again += 1
    table.copy, table.definition, table.watch, table.altered_unseen = None, schema, Watch.JOINING, False
    resume(edges, table)
