"""The foreign keys of a run: those that change rows outside the log, and the order of tables that follows from them."""

from collections.abc import Iterable

from lakeingest.core.cascaded import Cascaded
from lakeingest.core.cascades import depth, family, signature
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.preflight.foreign_keys import unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.pipeline.binlog_run import BinlogRun
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.table_run import TableRun


def know_foreign_keys(edges: Edges, binlog: BinlogRun) -> None:
    """Ask the source for the foreign keys of all tables of the run.

    DDL that adds one is a barrier, after which the table joins again, and they are asked for anew. One that is dropped
    meanwhile does no harm: too many rows are read again. Where they are others now, nothing is known of before.
    """
    found = unlogged_keys(Server.of(edges.connection), binlog.tables)
    if found != binlog.foreign_keys:
        binlog.foreign_keys, binlog.cascaded = found, Cascaded()
    for table in binlog.tables.values():
        try:
            table.foreign_keys = signature(family(table.id, binlog.foreign_keys))
        except OperatorNeeded:  # the preflight refuses it, unless its changes may be missing
            table.foreign_keys = ""
        if table.options.cascades != "read":
            table.foreign_keys = ""


def parents_first(binlog: BinlogRun, tables: Iterable[TableRun]) -> list[TableRun]:
    """The tables in the same order, but each after those that foreign keys make its parents."""
    return sorted(tables, key=lambda table: depth(table.id, binlog.foreign_keys))


def is_changed_above(binlog: BinlogRun, table: TableRun) -> bool:
    """Whether the spool has changes of a parent that foreign keys may have made the table's, too."""
    if not table.foreign_keys:
        return False
    since = table.progress.needed_from
    return any(binlog.spool.backlog(key.parent, since) for key in family(table.id, binlog.foreign_keys))
