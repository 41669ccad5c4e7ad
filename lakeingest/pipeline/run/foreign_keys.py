"""The foreign keys that change rows outside the binlog, and the order of tables that follows from them."""

from collections.abc import Iterable

from lakeingest.core.cascaded import Cascaded
from lakeingest.core.cascades import depth, family, signature
from lakeingest.errors import OperatorNeeded, PreflightFailed
from lakeingest.mysql.preflight.foreign_keys import CASCADES_FIX, Unlogged, refusals
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.stopping import fail
from lakeingest.pipeline.run.table_run import TableRun


def know_foreign_keys(edges: Edges, binlog: BinlogRun) -> None:
    """Ask the source for the foreign keys, of all tables of the run, whose changes it does not log.

    They are also asked for if the source logs such changes now, but did not for a part of the binlog that a table still
    needs. If the foreign keys have changed, earlier known changes are forgotten. DDL that adds a foreign key is a
    barrier: its table joins again, and then the keys are asked for anew. A foreign key that is dropped meanwhile does
    no harm: more rows than needed are read again. A table stops if the user may not see its foreign keys, or if its
    rows cannot be read again.
    """
    needed = [place for table in binlog.tables.values() if (place := table.needed_from) is not None]
    binlog.logs_cascades = not (needed and binlog.spool.lacks_cascades(min(needed)))
    unlogged = edges.source.unlogged_keys(binlog.tables, are_logged=binlog.logs_cascades)
    if unlogged.keys != binlog.foreign_keys:
        binlog.foreign_keys, binlog.cascaded = unlogged.keys, Cascaded()
    for table in binlog.tables.values():
        try:
            keys = signature(family(table.id, binlog.foreign_keys))
        except OperatorNeeded:  # a ring: the preflight refuses the table, unless its changes may be missing
            keys = ""
        table.know_cascade_keys(keys if table.options.cascades == "read" else "")
        is_unproven = unlogged.unknown or not binlog.logs_cascades
        reasons = refusals(edges.config.tables, table.id, unlogged) if is_unproven and _has_any(table, unlogged) else []
        if reasons and table.requested and table.failure is None:
            why = f"foreign keys change its rows outside the binlog: {'; '.join(reasons)}"
            fail(edges, table, PreflightFailed(f"{table.id} is not ready: {why}; {CASCADES_FIX}"))


def _has_any(table: TableRun, unlogged: Unlogged) -> bool:
    """Whether foreign keys change rows of the table, or may do so."""
    return table.id in unlogged.keys or table.id in unlogged.unknown


def parents_first(binlog: BinlogRun, tables: Iterable[TableRun]) -> list[TableRun]:
    """The tables in an order in which each comes after its parents by foreign keys; else in the same order."""
    return sorted(tables, key=lambda table: depth(table.id, binlog.foreign_keys))


def is_changed_above(binlog: BinlogRun, table: TableRun) -> bool:
    """Whether the spool has changes of a parent by which foreign keys may have changed the table."""
    if not table.cascade_keys:
        return False
    since = table.progress.needed_from
    return any(binlog.spool.backlog(key.parent, since) for key in family(table.id, binlog.foreign_keys))
