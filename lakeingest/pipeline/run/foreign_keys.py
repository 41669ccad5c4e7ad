"""The foreign keys of a run: those that change rows outside the log, and the order of tables that follows from them."""

from collections.abc import Iterable

from lakeingest.core.cascaded import Cascaded
from lakeingest.core.cascades import depth, family, signature
from lakeingest.errors import OperatorNeeded, PreflightFailed
from lakeingest.mysql.preflight.foreign_keys import CASCADES_FIX, Unlogged, lacks
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.stopping import fail
from lakeingest.pipeline.run.table_run import TableRun


def know_foreign_keys(edges: Edges, binlog: BinlogRun) -> None:
    """Ask the source for the foreign keys of all tables of the run.

    DDL that adds one is a barrier, after which the table joins again, and they are asked for anew. One that is dropped
    meanwhile does no harm: too many rows are read again. Where they are others now, the earlier ones tell nothing.
    Also of a source that logs their changes now, where it did not for a part of the binlog that a table still needs. A
    table stops where the user may not see them, or where they cannot be read again.
    """
    needed = [place for table in binlog.tables.values() if (place := table.needed_from) is not None]
    binlog.logs_cascades = not (needed and binlog.spool.lacks_cascades(min(needed)))
    found = edges.source.unlogged_keys(binlog.tables, are_logged=binlog.logs_cascades)
    if found.keys != binlog.foreign_keys:
        binlog.foreign_keys, binlog.cascaded = found.keys, Cascaded()
    for table in binlog.tables.values():
        try:
            keys = signature(family(table.id, binlog.foreign_keys))
        except OperatorNeeded:  # the preflight refuses it, unless its changes may be missing
            keys = ""
        table.know_cascade_keys(keys if table.options.cascades == "read" else "")
        is_asked = found.unknown or not binlog.logs_cascades
        reasons = lacks(edges.config.tables, table.id, found) if is_asked and _has_any(table, found) else []
        if reasons and table.requested and table.failure is None:
            why = f"foreign keys change its rows outside the binlog: {'; '.join(reasons)}"
            fail(edges, table, PreflightFailed(f"{table.id} is not ready: {why}; {CASCADES_FIX}"))


def _has_any(table: TableRun, found: Unlogged) -> bool:
    """Whether foreign keys change rows of the table, or may do so."""
    return table.id in found.keys or table.id in found.unknown


def parents_first(binlog: BinlogRun, tables: Iterable[TableRun]) -> list[TableRun]:
    """The tables in the same order, but each after those that foreign keys make its parents."""
    return sorted(tables, key=lambda table: depth(table.id, binlog.foreign_keys))


def is_changed_above(binlog: BinlogRun, table: TableRun) -> bool:
    """Whether the spool has changes of a parent that foreign keys may have made the table's, too."""
    if not table.cascade_keys:
        return False
    since = table.progress.needed_from
    return any(binlog.spool.backlog(key.parent, since) for key in family(table.id, binlog.foreign_keys))
