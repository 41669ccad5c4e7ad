"""Recopying: a table is copied once more if its copy cannot follow DDL.

All rows are read again by the current definition, as `lakeingest resnapshot --gap` reads them. Readers see the old rows
until all rows are read and have passed their gates. Rows that are still right after the DDL are not written again:
these are most rows after a tool for schema changes has swapped two tables. A first copy that has less than half of the
source's rows is dropped, and the table is copied from its first chunk.
"""

from lakeingest.core.binlog.position import Place
from lakeingest.core.ddl.recopying import Altered, Recopy, recopy
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import SchemaChanged, of_table
from lakeingest.pipeline.joining.known_names import assert_names_known
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.joining.starting_over import start_over
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail, is_stopped_by_ddl, working_on
from lakeingest.pipeline.run.table_run import TableRun


def recopy_altered(run: OpenRun, until: Place | None = None) -> bool:
    """Let tables that stopped because of DDL join again. True if a table joins again.

    `until`: the place that the run is to reach. If readers see a table as of `until` or later, the table goes on and
    does not join: the next run handles the DDL.
    """
    config, has_begun = run.edges.config, False
    for table in run.requested:
        if table.failure is None or table.copy is None:
            continue
        decision = recopy(_altered(table, until), follows=config.evolves, asks=config.asks)  # NO: it stays stopped
        if decision is Recopy.SHOWN:
            clear_failure(run.edges, table)
        elif decision is Recopy.YES:
            with working_on(run.edges, table):
                has_begun |= _recopy(run, table)
    return has_begun


def _altered(table: TableRun, until: Place | None) -> Altered:
    """The facts about a table that has stopped and has a copy."""
    assert table.failure is not None  # noqa: S101 - the caller has looked
    restarted = table.staged.is_restarted
    return Altered(
        by_ddl=is_stopped_by_ddl(table),
        by_definition=isinstance(table.failure.error, SchemaChanged),
        complete=table.staged.published is not None and not restarted,
        restarted=restarted,
        paused=table.paused,
        recopies=table.recopies,
        shown=until is not None and table.is_shown_as_of(until),
        began_empty=table.progress.began_empty is not None,
    )


def _recopy(run: OpenRun, table: TableRun) -> bool:
    """Let the table join again. False if that is not possible: then the reason is the new error of the table."""
    with of_table():
        current = run.edges.source.schema(table.id, table.options.choices)
    try:
        assert_names_known(table, current)
    except SchemaChanged as error:
        fail(run.edges, table, error)
        return False
    recopies = table.recopies + 1  # counted before `start_over`, which may reset the count
    # by the definition that was checked: the source may have another one by now, with new names
    is_dropped = table.staged.published is None and _drop_small_copy(run, table, current)  # then it joins later
    hindrance = None if is_dropped else start_over(run, table, over_gap=True, schema=current)
    if hindrance is not None:
        fail(run.edges, table, hindrance)
        return False
    has_joined = not is_dropped and table.failure is None  # else it has stopped again, or joins later
    if has_joined:
        clear_failure(run.edges, table)  # removes its stored failure
    table.note_recopies(recopies)
    return True


def _drop_small_copy(run: OpenRun, table: TableRun, schema: TableSchema) -> bool:
    """Drop a first copy that has too few rows to be compared; the next copy has `schema`. True if it was dropped."""
    edges = run.edges
    with of_table():
        if is_worth_comparing(edges.source, table.staged, schema):
            return False
    edges.committing.discard(table.id)
    table.drop_copy(schema)
    clear_failure(edges, table)
    return True
