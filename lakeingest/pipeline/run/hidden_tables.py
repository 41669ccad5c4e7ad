"""Tables that the user has no right to read: each stops with the missing GRANT in its error, and the others go on."""

from collections.abc import Collection

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import PreflightFailed
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import fail
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch


def stop_hidden(run: OpenRun, listed: Collection[TableId] | None = None) -> None:
    """Stop the tables that the user has no right to read; the other tables go on.

    `listed`: the tables that the source lists; None if the source was not asked. Two kinds of tables may be hidden:

    - A table of the run that has a copy and is not listed.
    - If the run is for all included tables: a table that is unknown to the run and has rows in the binlog. It becomes a
      stopped table of the run.
    """
    edges = run.edges
    met = run.binlog.met
    run.binlog.met = set()  # because each table is looked up only once
    unlisted = [] if listed is None else [table for table in run.going_on if table.copy and table.id not in listed]
    for table in unlisted:
        if edges.source.is_hidden(table.id):
            stop_as_hidden(edges, table)
    unknown = edges.config.tables.select(met - run.tables.keys()) if run.takes_new else []
    for name in unknown:
        if not edges.source.is_system(name) and edges.source.is_hidden(name):
            table = TableRun(name, edges.config.tables.of(name), None, requested=True, watch=Watch.UNWATCHED)
            run.tables[name] = table
            stop_as_hidden(edges, table, "the binlog has rows of it; ")


def stop_as_hidden(edges: Edges, table: TableRun, why: str = "") -> None:
    """Stop a table that the user has no right to read."""
    account, grant = edges.source.missing_right(table.id)
    reason = f"{account} may not read it: {grant}, or leave it out with tables.exclude"
    fail(edges, table, PreflightFailed(f"{table.id} is not ready: {why}{reason}"))
