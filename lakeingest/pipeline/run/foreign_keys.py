"""The foreign keys that change rows outside the binlog, and the order of tables that follows from them."""

from collections.abc import Callable, Collection, Iterable
from functools import partial

from lakeingest.core.cascades.cascaded import Cascaded
from lakeingest.core.cascades.cascades import depth, depth_by, family, signature
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded, PreflightFailed
from lakeingest.mysql.preflight.foreign_keys import CASCADES_FIX, Unlogged, refusals
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.stopping import fail
from lakeingest.pipeline.run.table_run import TableRun


def know_foreign_keys(edges: Edges, binlog: BinlogRun) -> None:
    """For all tables of the run, ask the source for the foreign keys whose changes it does not log.

    If the source's settings say that it logs the changes of foreign keys, there are no such keys. But the settings are
    ignored while a table needs a part of the binlog that lacks these changes. If the run has known other keys before,
    it forgets the changes that it knows (`Cascaded`). A table stops if the user has no right to see its foreign keys,
    or if its rows cannot be read again.

    DDL that adds a foreign key is a barrier: the table joins again, and the foreign keys are asked for again. If a
    foreign key is dropped during the run, only more rows than necessary are read again.
    """
    binlog.parents = None  # they may have changed, too: `know_parents` asks for them again
    places = [table.needed_from for table in binlog.tables.values()]
    needed = [place for place in places if place is not None]
    lacks_needed_changes = bool(needed) and binlog.spool.lacks_cascades(min(needed))
    binlog.logs_cascades = not lacks_needed_changes
    unlogged = edges.source.unlogged_keys(binlog.tables, are_logged=binlog.logs_cascades)
    if unlogged.keys != binlog.foreign_keys:
        binlog.foreign_keys, binlog.cascaded = unlogged.keys, Cascaded()
    # whether the user may not see some foreign keys, or the settings are ignored
    is_unproven = bool(unlogged.unknown) or lacks_needed_changes
    for table in binlog.tables.values():
        table.know_cascade_keys(_signature_to_read(binlog, table))
        may_lack_changes = is_unproven and _has_any(table, unlogged)
        reasons = refusals(edges.config.tables, table.id, unlogged) if may_lack_changes else []
        if reasons and table.requested and table.failure is None:
            why = f"foreign keys change its rows outside the binlog: {'; '.join(reasons)}"
            fail(edges, table, PreflightFailed(f"{table.id} is not ready: {why}; {CASCADES_FIX}"))


def _signature_to_read(binlog: BinlogRun, table: TableRun) -> str:
    """The signature of the foreign keys whose changes of the table are read again; '' if no changes are read again."""
    try:
        keys = signature(family(table.id, binlog.foreign_keys))
    except OperatorNeeded:  # the keys form a ring: preflight refuses the table, except with `cascades: missing`
        return ""
    return keys if table.options.cascades == "read" else ""


def _has_any(table: TableRun, unlogged: Unlogged) -> bool:
    """True if foreign keys change rows of the table, or if nobody knows."""
    return table.id in unlogged.keys or table.id in unlogged.unknown


def know_parents(edges: Edges, binlog: BinlogRun) -> None:
    """Ask the source for the parents of all tables, unless these are known. Only `publish_together` needs them."""
    if binlog.parents is None:
        binlog.parents = edges.source.parents(list(binlog.tables))


def parents_of(binlog: BinlogRun) -> Callable[[TableId], Collection[TableId]]:
    """A function that returns the parents of a table, as far as they are known."""
    known = binlog.parents or {}
    return lambda table: known.get(table, ())


def parents_first(binlog: BinlogRun, tables: Iterable[TableRun]) -> list[TableRun]:
    """The tables, sorted so that each comes after its parents by foreign keys. Tables of one depth keep their order.

    If the parents are not known (`know_parents`), only foreign keys count that change rows outside the binlog. If they
    are known, all foreign keys count, except within a ring.
    """
    if binlog.parents is None:
        return sorted(tables, key=lambda table: depth(table.id, binlog.foreign_keys))
    depth_of = partial(depth_by, parents_of=parents_of(binlog))
    # of tables with the same depth, such as those of a ring, the keys decide that change rows outside the binlog
    return sorted(tables, key=lambda table: (depth_of(table.id), depth(table.id, binlog.foreign_keys)))


def has_changed_parent(binlog: BinlogRun, table: TableRun) -> bool:
    """Whether the spool has changes of a parent that foreign keys may have carried to the table."""
    if not table.cascade_keys:
        return False
    since = table.progress.needed_from
    return any(binlog.spool.backlog(key.parent, since) for key in family(table.id, binlog.foreign_keys))
