"""Changes by foreign keys that the source does not log: rows that they may have touched are read again by their keys.

    the spool's end S -> rows that may be touched up to S -> read in a view that has S, as patches -> the spool's end
    ... until no row may be touched since the last view; then the table is merged and published as of that end.

Why that is exact: take a row that is wrong in a copy which is merged to S. Its last change before S that the copy lacks
is by a foreign key. Let l be its last version that the copy has: in a logged change, in a patch or in the copy of
before. The first change by a foreign key after l touched it as it was in l. So it has, in l, the referenced values of
a row of the parent that was changed after l, and `core.cascades` finds it. Rows whose key is changed by ON UPDATE
CASCADE are found with both keys. A view may have more than S: what it lacks up to the next S is looked for again.

What a child needs of a parent that is itself changed by foreign keys is kept in memory, because the parent's own rows
no longer tell it once they were read again. Where that is lost - a run was killed in between, both are copied for the
first time, a row refers to its own table - and something was changed meanwhile, all rows of the child are compared with
the source (`core.progress`, `gap`).
"""

import time
from collections.abc import Iterable

from lakeingest.core.cascades import Affected, RowChange, Settled, values_of
from lakeingest.core.position import Low, Place, Position, latest
from lakeingest.core.schema import TableId
from lakeingest.errors import SplitUnstable, SpoolGap
from lakeingest.files.file import state_of
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.binlog_run import BinlogRun, Cascaded
from lakeingest.pipeline.bootstrap import read_up_to
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.events import RowsReread, StartedOver
from lakeingest.pipeline.key_rereads import cover_lows, patch_folder, patches_of, read_keys
from lakeingest.pipeline.lifting import merge_over_halts
from lakeingest.pipeline.merge import merge
from lakeingest.pipeline.row_versions import rows_with
from lakeingest.pipeline.table_run import TableRun, Watch
from lakeingest.spool.halts import halts
from lakeingest.spool.patch_files import BY_FOREIGN_KEYS
from lakeingest.spool.row_versions import removed_rows
from lakeingest.state.definition import begin_again

TRIES = 20  # reads, each of what was touched since the last one
COMPARED_MAX = 5  # comparisons of all rows in a run


def settle(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Let a merge to the spool's end have all changes by foreign keys; whether rows were read again for that.

    The table is complete. SplitUnstable where its parents are not read, or change all the time.
    """
    if table.options.cascades != "read" or not (table.foreign_keys or table.progress.cascades):
        return False
    known = table.progress.cascades
    if known is None or known.keys != table.foreign_keys:  # nobody looked after them, or they are others now
        _compare(edges, binlog, table)
        return False
    for tried in range(TRIES):
        if halts(binlog.spool, table.id, table.progress.needed_from) or table.watch is Watch.WAITING:
            merge_over_halts(edges, binlog, table)
        try:
            touched = {change for change in _changes(edges, binlog, table) if change.place > _settled(table).to}
        except SpoolGap:
            if not table.progress.gap:  # else it is looked at again once all rows are compared
                _compare(edges, binlog, table)
            return bool(tried)
        if not touched:
            table.settled = binlog.spool.position.place
            return bool(tried)
        _read_again(edges, binlog, table, touched)
        spool_to_now(edges, binlog)
    raise SplitUnstable(f"{table.id}: its parents change all the time; run the same command again")


def remove_read(edges: Edges, table: TableRun) -> None:
    """Remove the files of rows that were read again, once they are merged."""
    if not table.progress.patches:
        patch_folder(edges, table).remove(BY_FOREIGN_KEYS)


def _settled(table: TableRun) -> Settled:
    settled = table.progress.cascades
    if settled is None:
        raise SpoolGap(f"{table.id}: nobody looked after changes by its foreign keys")
    return settled


def _changes(edges: Edges, binlog: BinlogRun, table: TableRun) -> set[RowChange]:
    """All changes that foreign keys may have made to the table's rows since its copy, up to the spool's end.

    They are noted for the tables below it. SpoolGap where they cannot be known any more.
    """
    spool, progress, stop = binlog.spool, table.progress, binlog.spool.position.place
    log = binlog.cascaded.get(table.id)
    if log is not None and log.upto == stop and log.asked is progress:
        return log.changes
    _assert_copied(table)
    to, at = _settled(table).to, None if progress.position is None else progress.position.place
    start = to if at is None else min(at, to)
    # only rows that were exact tell what became of the tables below
    is_exact = progress.splits.stop == at and not progress.gap and at is not None
    if log is None:
        since = to if is_exact and at is not None and at <= to else stop
        log = binlog.cascaded[table.id] = Cascaded(since, stop, set(), progress)
    elif not is_exact or at is None or at > log.upto:
        log.since = stop
    columns, own = _columns(binlog, table), binlog.foreign_keys[table.id]
    affected = Affected(table.id, columns, own)
    for parent in dict.fromkeys(key.parent for key in own):
        above = _parent(binlog, table, parent)
        names = _columns(binlog, above)
        affected.add_changes(parent, names, _logged(binlog, above, start))
        if parent != table.id and parent in binlog.foreign_keys:
            changes = _changes(edges, binlog, above)
            if above.progress.gap:
                raise SpoolGap(f"{above.id}: its rows are being compared")
            _assert_known(binlog, above, start)
            affected.add_changes(parent, names, (change for change in changes if change.place > start))
    if any(key.parent == table.id for key in own):
        _assert_known(binlog, table, start)
    while sought := affected.sought():
        affected.add_rows(rows_with(edges, binlog, table, columns, sought))
    needed = _needed_from(binlog, table, start)
    log.changes = {change for change in log.changes | affected.changes if change.place > needed}
    log.upto, log.asked = spool.position.place, progress
    return log.changes


def _needed_from(binlog: BinlogRun, table: TableRun, start: Place) -> Place:
    """The place after which the table's changes are needed: for itself, and for the tables below it."""
    below = (key.table for keys in binlog.foreign_keys.values() for key in keys if key.parent == table.id)
    known = [binlog.tables[one].copy for one in below if one in binlog.tables]
    starts = [start]
    for copy in known:
        if copy is not None and copy.progress.cascades is not None:
            starts += [copy.progress.cascades.to, copy.progress.needed_from]
    return min(starts)


def _assert_known(binlog: BinlogRun, table: TableRun, start: Place) -> None:
    """SpoolGap unless all changes that foreign keys made to rows of this parent after `start` are known."""
    log = binlog.cascaded[table.id]
    if start < log.since and _may_be_changed(binlog, table, start, log.since):
        raise SpoolGap(f"{table.id}: what foreign keys changed of it after {start} is not known any more")


def _may_be_changed(binlog: BinlogRun, table: TableRun, after: Place, upto: Place) -> bool:
    """Whether foreign keys may have changed rows of the table between two places."""
    for key in binlog.foreign_keys[table.id]:
        parent = _parent(binlog, table, key.parent)
        names = _columns(binlog, parent)
        if any(key.effect(names, change) for change in _logged(binlog, parent, after) if change.place <= upto):
            return True
        is_below = key.parent != table.id and key.parent in binlog.foreign_keys
        if is_below and _may_be_changed(binlog, parent, after, upto):
            return True
    return False


def _parent(binlog: BinlogRun, table: TableRun, name: TableId) -> TableRun:
    """The parent, whose changes the spool has; SplitUnstable where it has not."""
    parent = binlog.tables.get(name)
    if parent is None or parent.watch is not Watch.WATCHED or parent.definition is None:
        raise SplitUnstable(
            f"{table.id}: foreign keys change its rows with those of {name}, whose changes are not read now; it goes on"
            " when that table does"
        )
    return parent


def _assert_copied(table: TableRun) -> None:
    """SplitUnstable unless the rows of a table that others depend on are copied, with changes by foreign keys."""
    known = None if table.copy is None or table.has_missing_chunks else table.progress.cascades
    if known is None or known.keys != table.foreign_keys:
        raise SplitUnstable(f"{table.id}: tables whose rows change with its rows wait until it is copied")


def _columns(binlog: BinlogRun, table: TableRun) -> tuple[str, ...]:
    """The columns of the table that its key and foreign keys need."""
    own = (name for key in binlog.foreign_keys.get(table.id, ()) for name in key.columns)
    below = (key for keys in binlog.foreign_keys.values() for key in keys if key.parent == table.id)
    return tuple(dict.fromkeys([*table.schema.key, *own, *(name for key in below for name in key.referenced)]))


def _logged(binlog: BinlogRun, table: TableRun, after: Place) -> list[RowChange]:
    """The rows of the table that the log takes away, or makes others, after this place."""
    stop = binlog.spool.position.place
    return removed_rows(binlog.spool.files(table.id, after, stop), _columns(binlog, table), after, stop)


def _read_again(edges: Edges, binlog: BinlogRun, table: TableRun, touched: Iterable[RowChange]) -> None:
    """Read these rows in a view that has all of the spool, and let a commit on staging name the patches."""
    if table.schema.keeps_deleted:  # deleted rows keep the values that the copy has of them
        merge(edges, binlog.spool, table)
    began, stop, since = time.monotonic(), binlog.spool.position, cover_lows(edges, binlog, table)
    columns = _columns(binlog, table)
    rows = {row for change in touched for row in (change.before, change.after) if row is not None}
    keys = {values_of(table.schema.key, columns, row) for row in rows}
    listed = [dict(zip(table.schema.key, key, strict=True)) for key in keys]
    patched = read_keys(edges, table, BY_FOREIGN_KEYS, listed, stop.epoch)
    for part in patched:
        _assert_contains(part.low, stop)
    patches = patches_of(edges, table, BY_FOREIGN_KEYS, patched, stop.epoch)
    progress = table.progress.cascades_read(
        patches,
        since,
        Settled(table.foreign_keys, stop.place),
        nulled=sum(part.nulled for part in patched),
        read_to=read_up_to(edges.config.source, binlog, latest(part.high for part in patched)),
    )
    binlog.add_boundaries(part.high for part in patched)
    edges.lease.assert_held()
    table.advance(edges.target.mark(table.staged, progress), sound=True)
    found, seconds = sum(part.cost.rows for part in patched), time.monotonic() - began
    edges.observe(RowsReread(table.id, len(patched), found, seconds, is_last=True))


def _assert_contains(low: Low, stop: Position) -> None:
    """SplitUnstable unless a view with this low watermark has every transaction up to the position."""
    has_all = stop.place <= low if isinstance(low, Place) else stop.gtids is not None and stop.gtids <= low
    if not has_all:
        raise SplitUnstable(f"rows were read as of {low}, which is before {stop.at}; run the same command again")


def _compare(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Have all rows compared with the source, because nobody can tell which of them foreign keys have changed."""
    table.compared += 1
    if table.compared > COMPARED_MAX:
        raise SplitUnstable(
            f"{table.id}: its rows were compared {COMPARED_MAX} times, and foreign keys have changed some each time;"
            " run the same command when its parents change less"
        )
    merge_over_halts(edges, binlog, table)
    progress, position = table.progress, table.progress.position
    assert position is not None  # noqa: S101 - it was merged right now
    if table.reading is not None:
        table.reading.job.cancel()
        table.reading = None
    if table.staged.published is not None:
        begin_again(state_of(edges.config), table.schema, table.staged.published)
    signals = () if progress.reread is None else progress.reread.signals
    cascades = Settled(table.foreign_keys, position.place) if table.foreign_keys else None
    begun = progress.over_gap(position, progress.fingerprint, progress.covered_from, signals=signals, cascades=cascades)
    edges.lease.assert_held()
    table.advance(edges.target.mark(table.staged, begun), sound=True)
    table.settled = position.place
    edges.observe(StartedOver(table.id, compared=True))
