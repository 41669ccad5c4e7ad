"""Beginning again: a table that DDL came into, and whose copy cannot follow it, is copied once more.

Its rows are read again by the definition of now, as `lakeingest resnapshot --gap` does it: readers see the old ones
until all are read and have passed their gates. What is still right after the DDL is not written again, as after a swap
of tables by a tool for schema changes. A first copy that has less than half of the rows is dropped instead.
"""

from lakeingest.core.position import Place
from lakeingest.errors import SchemaChanged, of_table
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.joining.starting_over import start_over
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import TRIES, clear_failure, fail, is_stopped_by_ddl, working_on
from lakeingest.pipeline.run.table_run import TableRun


def begin_altered_again(run: OpenRun, until: Place | None = None) -> bool:
    """Let the tables join again that stopped because of DDL; whether there is one.

    A table whose readers see it as of `until` or later is up to date instead: the DDL is left to the next run. Without
    it DDL that keeps coming would keep a run going.
    """
    has_begun = False
    for table in run.requested:
        if not is_altered(table) or not _goes_on(run, table):
            continue
        if until is not None and table.is_shown_as_of(until):
            clear_failure(run.edges, table)
        else:
            with working_on(run.edges, table):
                has_begun |= _begin_again(run, table)
    return has_begun


def _goes_on(run: OpenRun, table: TableRun) -> bool:
    """Whether it may be copied again now.

    If DDL is to be approved, a person decides about one whose rows were being read again when there was more DDL.
    """
    if not run.edges.config.evolves or table.paused or table.recopies >= TRIES:
        return False
    return not (run.edges.config.asks and table.staged.is_restarted)


def is_altered(table: TableRun) -> bool:
    """Whether the table has a copy, and stopped because it is not defined any more as it was copied.

    A definition that differs from that of a complete copy is not enough: `tables.options` may have changed it.
    """
    if table.failure is None or table.copy is None:
        return False
    is_complete = table.copy.published is not None and not table.copy.is_restarted
    return is_stopped_by_ddl(table) or (isinstance(table.failure.error, SchemaChanged) and not is_complete)


def _begin_again(run: OpenRun, table: TableRun) -> bool:
    """Copy it again; False where that cannot be done, and it stops for that reason."""
    tries = table.recopies + 1
    if table.staged.published is not None or not _is_dropped(run, table):
        if why := start_over(run, table, over_gap=True):
            fail(run.edges, table, why)
            return False
        if table.failure is None:
            clear_failure(run.edges, table)
    table.count_recopies(tries)
    return True


def _is_dropped(run: OpenRun, table: TableRun) -> bool:
    """Drop a first copy that has too few rows to be compared; whether it had."""
    edges = run.edges
    with of_table():
        schema = read_schema(edges.connection, table.id, table.options.choices)
        if is_worth_comparing(edges.connection, table.staged, schema):
            return False
    edges.lease.assert_held()
    edges.target.discard(table.id)
    table.drop_copy(schema)
    clear_failure(edges, table)
    return True
