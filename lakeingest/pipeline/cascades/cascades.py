"""Changes by foreign keys that the source does not log: rows that they may have touched are read again by their keys.

    the spool's end S -> rows that may be touched up to S -> read in a view that has S, as patches -> the spool's end
    ... until no row may be touched since the last view; then the table is merged and published as of that end.

Why that is exact: take a row that is wrong in a copy which is merged to S. Its last change before S that the copy lacks
is by a foreign key. Let l be its last version that the copy has: in a logged change, in a patch or in the first copy.
The first change by a foreign key after l touched it as it was in l. So it has, in l, the referenced values of a row of
the parent that was changed after l, or others that the server finds equal, and `core.cascades` finds it. Rows whose
key is changed by ON UPDATE CASCADE are found with both keys, and by the values that they got: a chunked copy may have
seen them under none. A view may have more than S: what it lacks up to the next S is looked for again.

A parent may itself be changed by foreign keys: `core.cascaded` has what its children need of that. All rows of the
child are compared with the source (`core.progress`, `gap`) where that is lost and something was changed meanwhile: a
run was killed in between, both are copied for the first time, or a row refers to its own table. The same is done when
a parent changed and its key values cannot be compared here (`core.comparison`).
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from lakeingest.core.cascaded import may_be_changed
from lakeingest.core.cascades import ForeignKey, Move, Row, RowChange, Settled, values_of
from lakeingest.core.keys import EVERY_KEY, quote
from lakeingest.core.position import Low, Place, Position
from lakeingest.errors import SplitUnstable, SpoolGap
from lakeingest.mysql.keyed_rows import value_of
from lakeingest.pipeline.binlog.coverage import cover_lows
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.cascades.copies import Copies
from lakeingest.pipeline.events import StartedOver
from lakeingest.pipeline.merging.merge import merge
from lakeingest.pipeline.rereads.committing import commit_reread
from lakeingest.pipeline.rereads.patches import patch_folder, patches_of, read_chunks, read_keys
from lakeingest.pipeline.rereads.tasks import Chunk
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.commit_progress import commit_progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.pipeline.schema.lifting import merge_over_halts
from lakeingest.spool.halts import halts
from lakeingest.spool.patch_files import BY_FOREIGN_KEYS
from lakeingest.state.definition import begin_again

TRIES = 20  # reads, each of the rows that were touched since the last one
VALUES_AT_ONCE = 1_000  # of a SELECT
COMPARED_MAX = 5  # comparisons of all rows, one after the other


def settle(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Let a merge to the spool's end have all changes by foreign keys; whether rows were read again for that.

    The table is complete. SplitUnstable where its parents are not read, or change all the time, and without GTIDs where
    they changed in the source's current binlog file.
    """
    if table.options.cascades != "read" or not (table.cascade_keys or table.progress.cascades):
        return False
    for tried in range(TRIES):
        if halts(binlog.spool, table.id, table.progress.needed_from) or table.watch is Watch.AT_DDL:
            merge_over_halts(edges, binlog, table)
        found = _touched(edges, binlog, table)
        if found is None:
            if not (table.progress.gap and _has_these_keys(table)):  # else it is looked at again after the comparison
                _compare(edges, binlog, table)
            return bool(tried)
        if not any(found):
            table.settle(binlog.spool.position.place)
            return bool(tried)
        _read_again(edges, binlog, table, *found)
        spool_to_now(edges, binlog)
    raise SplitUnstable(f"{table.id}: its parents change all the time; run the same command again")


def _has_these_keys(table: TableRun) -> bool:
    """Whether somebody has looked after changes by the foreign keys that the table has now."""
    known = table.progress.cascades
    return known is not None and known.keys == table.cascade_keys


def _touched(edges: Edges, binlog: BinlogRun, table: TableRun) -> tuple[list[RowChange], list[Move]] | None:
    """The changes of rows, and of keys, that the copy and its patches lack; None where they are not known."""
    known = table.progress.cascades
    if known is None or not _has_these_keys(table):
        return None
    try:
        changes = binlog.cascaded.changes(table.id, binlog.foreign_keys, Copies(edges, binlog, table))
    except SpoolGap:
        return None
    moves = [move for move in binlog.cascaded.moves(table.id) if set(move.key.columns) & set(table.schema.key)]
    found = (
        [change for change in changes if change.place > known.to],
        [move for move in moves if move.place > known.to],
    )
    _forget(binlog, table)
    return found


def remove_read(edges: Edges, table: TableRun) -> None:
    """Remove the files of rows that were read again, once they are merged."""
    if not table.progress.patches:
        patch_folder(edges, table).remove(BY_FOREIGN_KEYS)


def _forget(binlog: BinlogRun, table: TableRun) -> None:
    """Forget what neither the table nor one below it needs any more."""
    below = [one.table for keys in binlog.foreign_keys.values() for one in keys if one.parent == table.id]
    starts = []
    for run in (binlog.tables.get(one) for one in {table.id, *below}):
        if run is not None and run.copy is not None and run.progress.cascades is not None:
            starts += [run.progress.cascades.to, run.progress.needed_from]
    binlog.cascaded.forget(table.id, min(starts))


def _read_again(
    edges: Edges, binlog: BinlogRun, table: TableRun, touched: Iterable[RowChange], moved: Iterable[Move]
) -> None:
    """Read these rows in views that have all of the spool, and let a commit on staging name the patches."""
    if table.schema.keeps_deleted:  # deleted rows keep the values that the copy has of them
        merge(edges, binlog.spool, table)
    touched, moved = list(touched), list(moved)
    needed = max([one.place for one in touched] + [one.place for one in moved])
    if _view_has(edges, binlog) < needed:
        raise _before_rotation(binlog, table)
    began, stop, since = time.monotonic(), binlog.spool.position, cover_lows(edges, binlog, table)
    columns = Copies(edges, binlog, table).columns(table.id)
    rows = {row for change in touched for row in (change.before, change.after) if row is not None}
    keys = {values_of(table.schema.key, columns, row) for row in rows}
    listed = [dict(zip(table.schema.key, key, strict=True)) for key in keys]
    patched = read_keys(edges, binlog, table, BY_FOREIGN_KEYS, listed)
    patched += read_chunks(edges, binlog, table, BY_FOREIGN_KEYS, _chunks(table, moved))
    settled = min(_contained(part.low, stop, needed) for part in patched)
    patches = patches_of(edges, table, BY_FOREIGN_KEYS, patched, stop.epoch)
    reread = partial(table.progress.cascades_read, patches, since, Settled(table.cascade_keys, settled))
    commit_reread(edges, binlog, table, patched, reread, began, is_last=True)


def _chunks(table: TableRun, moved: Iterable[Move]) -> list[Chunk]:
    """The rows that have these values now."""
    given: dict[ForeignKey, set[Row]] = {}
    for move in moved:
        given.setdefault(move.key, set()).add(move.values)
    chunks = []
    for key, values in given.items():
        columns, names = [table.schema.column(name) for name in key.columns], ", ".join(map(quote, key.columns))
        listed = [f"({', '.join(map(value_of, columns, row))})" for row in values]
        groups = [listed[first : first + VALUES_AT_ONCE] for first in range(0, len(listed), VALUES_AT_ONCE)]
        chunks += [Chunk((f"({names}) IN ({', '.join(group)})",), EVERY_KEY) for group in groups]
    return chunks


def _view_has(edges: Edges, binlog: BinlogRun) -> Place:
    """A view that is opened now has every change up to there, as far as the spool goes."""
    position = binlog.spool.position
    return (position.start_of_file if edges.source.has_low_at_file_start(position) else position).place


def _may_lack_changes(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Whether a view that is opened now may lack changes of the table by foreign keys that the spool knows of."""
    since, copies = _view_has(edges, binlog), Copies(edges, binlog, table)
    if since == copies.stop or table.id not in binlog.foreign_keys:
        return False
    with suppress(SpoolGap):
        return may_be_changed(table.id, since, copies.stop, binlog.foreign_keys, copies)
    return False


def _before_rotation(binlog: BinlogRun, table: TableRun) -> SplitUnstable:
    return SplitUnstable(
        f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: foreign keys may have changed"
        f" its rows since the binlog file {binlog.spool.position.at.file} began, and without GTIDs no read is known to"
        " have that before the next file"
    )


def _contained(low: Low, stop: Position, needed: Place) -> Place:
    """Up to where a view with this low watermark has every change, but not after `stop`; SplitUnstable before `needed`.

    With GTIDs it has all up to `stop`.
    """
    has_all = needed <= low if isinstance(low, Place) else stop.gtids is not None and stop.gtids <= low
    if not has_all:
        raise SplitUnstable(f"rows were read as of {low}, which is before {stop.at}; run the same command again")
    return min(stop.place, low) if isinstance(low, Place) else stop.place


def _compare(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Have all rows compared with the source, because nobody can tell which of them foreign keys have changed."""
    cover_lows(edges, binlog, table)  # so that the spool has what its parents changed
    if _may_lack_changes(edges, binlog, table):
        raise _before_rotation(binlog, table)
    if table.count_comparison() > COMPARED_MAX:
        table.forget_comparisons()  # a run that follows tries again later
        raise SplitUnstable(
            f"{table.id}: its rows were compared {COMPARED_MAX} times, and foreign keys have changed some each time;"
            " run the same command when its parents change less"
        )
    merge_over_halts(edges, binlog, table)
    progress, position = table.progress, table.progress.position
    assert position is not None  # noqa: S101 - it was merged right now
    table.cancel_reading()
    if table.staged.published is not None:
        begin_again(edges.state, table.schema, table.staged.published)
    signals = () if progress.reread is None else progress.reread.signals
    to = min(position.place, _view_has(edges, binlog))
    cascades = Settled(table.cascade_keys, to) if table.cascade_keys else None
    begun = progress.over_gap(position, progress.fingerprint, progress.covered_from, signals=signals, cascades=cascades)
    commit_progress(edges, table, begun)
    table.settle(to)
    edges.observe(StartedOver(table.id, compared=True))
