"""Recopying: a table that DDL came into, and whose copy cannot follow it, is copied once more.

Its rows are read again by the definition in force, as `lakeingest resnapshot --gap` does it: readers see the old ones
until all are read and have passed their gates. What is still right after the DDL is not written again, as after a swap
of tables by a tool for schema changes. A first copy that has less than half of the rows is dropped instead.
"""

from lakeingest.core.position import Place
from lakeingest.core.recopying import Altered, Recopy, recopy
from lakeingest.errors import SchemaChanged, of_table
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.joining.starting_over import start_over
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail, is_stopped_by_ddl, working_on
from lakeingest.pipeline.run.table_run import TableRun


def recopy_altered(run: OpenRun, until: Place | None = None) -> bool:
    """Let the tables join again that stopped because of DDL; whether there is one.

    A table whose readers see it as of `until` or later is up to date instead.
    """
    config, has_begun = run.edges.config, False
    for table in run.requested:
        if table.failure is None or table.copy is None:
            continue
        decided = recopy(_altered(table, until), follows=config.evolves, asks=config.asks)
        if decided is Recopy.SHOWN:
            clear_failure(run.edges, table)
        elif decided is Recopy.YES:
            with working_on(run.edges, table):
                has_begun |= _recopy(run, table)
    return has_begun


def _altered(table: TableRun, until: Place | None) -> Altered:
    """The facts about a table that has stopped and has a copy."""
    assert table.failure is not None  # noqa: S101 - whoever asks has looked
    restarted = table.staged.is_restarted
    return Altered(
        by_ddl=is_stopped_by_ddl(table),
        by_definition=isinstance(table.failure.error, SchemaChanged),
        complete=table.staged.published is not None and not restarted,
        restarted=restarted,
        paused=table.paused,
        recopies=table.recopies,
        shown=until is not None and table.is_shown_as_of(until),
    )


def _recopy(run: OpenRun, table: TableRun) -> bool:
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
        schema = edges.source.schema(table.id, table.options.choices)
        if is_worth_comparing(edges.source, table.staged, schema):
            return False
    edges.committing.discard(table.id)
    table.drop_copy(schema)
    clear_failure(edges, table)
    return True
