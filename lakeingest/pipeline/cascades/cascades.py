"""Changes by foreign keys that the source does not log: rows that they may have touched are read again by their keys.

1. The spool ends at S. Find the rows that changes up to S may have touched.
2. Read these rows again, as patches, in a read view that contains S.
3. Spool on to a new end S, and begin again with 1, until no row may have been touched since the last read view.
4. Merge and publish the table as of S.

Why that is exact: a copy that is merged to S has every logged change up to S. So if the copy has a row in a wrong
version v, foreign keys have changed the row since v. The first of these changes came from a change of the parent's row
to which v refers, by the same values or by values that the server takes for equal. `core.cascades` finds each row that
refers to a changed row of the parent, so it finds this row.

If ON UPDATE CASCADE changed the row's key, the row is read by its old key, by its new key and by the values that it
got: a row that moved from an unread chunk into a chunk that was read is in the copy under neither key. A read view of
step 2 may contain some changes after S, and lack other changes up to the next S: the next search finds these.

A parent may itself be changed by foreign keys: `core.cascades.cascaded` keeps these changes of the parent in memory,
for its children. The changes are not known if a run was killed before it had used them, if both tables are copied for
the first time, or if a row refers to its own table. If changes may have been lost, all rows of the child are compared
with the source (`core.copies.progress`, `gap`). All rows are also compared if a parent changed and its key values
cannot be compared here (`core.cascades.comparison`).
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from lakeingest.core.binlog.position import Low, Place, Position
from lakeingest.core.cascades.cascaded import may_be_changed
from lakeingest.core.cascades.cascades import CascadesRead, ForeignKey, Move, Row, RowChange, values_of
from lakeingest.core.tables.keys import EVERY_KEY, quote
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
from lakeingest.state.definition import keep_restart

TRIES = 20  # reads of touched rows, until no row was touched since the last read
VALUES_AT_ONCE = 1_000  # in the IN list of one SELECT
COMPARED_MAX = 5  # comparisons of all rows, without a publish in between


def read_cascades(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Read rows again until a merge to the spool's end gets all changes by foreign keys. True if rows were read.

    The table's copy must be complete. If it is not known which rows were touched, a comparison of all rows begins if
    none is running. Raises SplitUnstable if changes of the parents are not spooled, or if the parents change all the
    time. Without GTIDs, it is also raised if the parents changed in the source's current binlog file.
    """
    has_foreign_keys = bool(table.cascade_keys or table.progress.cascades)  # now, or when its rows were read
    if table.options.cascades != "read" or not has_foreign_keys:
        return False
    for reads in range(TRIES):  # the number of reads so far
        if halts(binlog.spool, table.id, table.progress.needed_from) or table.watch is Watch.AT_DDL:
            merge_over_halts(edges, binlog, table)  # rows are read by the definition after the last DDL
        missing = _missing_changes(edges, binlog, table)
        if missing is None:  # only a comparison of all rows can find the changes
            is_being_compared = table.progress.gap and _has_current_keys(table)
            if not is_being_compared:
                _begin_comparison(edges, binlog, table)
            return reads > 0
        touched, moved = missing
        if not touched and not moved:
            table.record_cascades(binlog.spool.position.place)
            return reads > 0
        _read_again(edges, binlog, table, touched, moved)
        # the read views may contain changes after the spool's end, but not all of them: spool these, and look again
        spool_to_now(edges, binlog)
    raise SplitUnstable(f"{table.id}: its parents change all the time; run the same command again")


def _has_current_keys(table: TableRun) -> bool:
    """Whether the copy's `cascades` are for the foreign keys that the table has now."""
    cascades = table.progress.cascades
    return cascades is not None and cascades.keys == table.cascade_keys


def _missing_changes(edges: Edges, binlog: BinlogRun, table: TableRun) -> tuple[list[RowChange], list[Move]] | None:
    """The changes by foreign keys that neither the copy nor its patches have; None if these changes are not known.

    The first list has the changes whose rows are known. The second list has moves: a move gives a parent's key another
    value, and all child rows with the old value take it over. The list has only moves that changed the keys of rows of
    this table: the keys that these rows have now are not known.
    """
    cascades = table.progress.cascades
    if cascades is None or not _has_current_keys(table):
        return None
    try:
        changes = binlog.cascaded.changes(table.id, binlog.foreign_keys, Copies(edges, binlog, table))
    except SpoolGap:
        return None
    touched = [change for change in changes if change.place > cascades.to]
    key_columns = set(table.schema.key)  # `move.key` is a foreign key
    new_moves = [move for move in binlog.cascaded.moves(table.id) if move.place > cascades.to]
    moved = [move for move in new_moves if not key_columns.isdisjoint(move.key.columns)]
    _forget_unneeded(binlog, table)  # after the search above, which may need what is forgotten here
    return touched, moved


def remove_merged_patches(edges: Edges, table: TableRun) -> None:
    """Remove the files of patches that foreign keys made necessary, unless patches still wait for a merge."""
    if not table.progress.patches:
        patch_folder(edges, table).remove(BY_FOREIGN_KEYS)


def _forget_unneeded(binlog: BinlogRun, table: TableRun) -> None:
    """Remove from `binlog.cascaded` the changes of the table that neither the table nor a child of it needs."""
    all_keys = (key for keys in binlog.foreign_keys.values() for key in keys)
    children = [key.table for key in all_keys if key.parent == table.id]
    needed_from: list[Place] = []  # the places after which the table and its children need the changes
    for name in {table.id, *children}:
        run = binlog.tables.get(name)
        if run is not None and run.copy is not None and run.progress.cascades is not None:
            needed_from += [run.progress.cascades.to, run.progress.needed_from]
    binlog.cascaded.forget(table.id, min(needed_from))  # not empty: the table itself has such places


def _read_again(
    edges: Edges, binlog: BinlogRun, table: TableRun, touched: Iterable[RowChange], moved: Iterable[Move]
) -> None:
    """Read the rows of these changes and moves again, in views that contain them, and commit patches on staging."""
    if table.schema.keeps_deleted:  # deleted rows stay with the values that the copy has: bring these up to date first
        merge(edges, binlog.spool, table)
    touched, moved = list(touched), list(moved)
    needed = max([change.place for change in touched] + [move.place for move in moved])  # the place of the last change
    if _last_place_in_views(edges, binlog) < needed:  # the views may lack the last change
        raise _rotation_error(binlog, table)
    # Step 1: before the views are opened, extend the spool back: after `since` it has all changes that they may lack
    began, stop = time.monotonic(), binlog.spool.position
    since = cover_lows(edges, binlog, table)
    # Step 2: read the rows by their keys, old and new, and by the values that they got
    columns = Copies(edges, binlog, table).columns(table.id)
    versions = [row for change in touched for row in (change.before, change.after)]  # None after a delete
    keys = {values_of(table.schema.key, columns, row) for row in versions if row is not None}
    listed = [dict(zip(table.schema.key, key, strict=True)) for key in keys]
    patched = read_keys(edges, binlog, table, BY_FOREIGN_KEYS, listed)
    patched += read_chunks(edges, binlog, table, BY_FOREIGN_KEYS, _chunks_of_moves(table, moved))
    # Step 3: commit; the copy has the changes by foreign keys up to the least place that a read view reaches
    read_to = min(_place_read_to(part.low, stop, needed) for part in patched)
    patches = patches_of(edges, table, BY_FOREIGN_KEYS, patched, stop.epoch)
    reread = partial(table.progress.cascades_read, patches, since, CascadesRead(table.cascade_keys, read_to))
    commit_reread(edges, binlog, table, patched, reread, began, is_last=True)


def _chunks_of_moves(table: TableRun, moved: Iterable[Move]) -> list[Chunk]:
    """The chunks that select the rows with the values of these moves, with at most VALUES_AT_ONCE values in each."""
    values_of_key: dict[ForeignKey, set[Row]] = {}
    for move in moved:
        values_of_key.setdefault(move.key, set()).add(move.values)
    chunks = []
    for key, rows in values_of_key.items():
        columns, names = [table.schema.column(name) for name in key.columns], ", ".join(map(quote, key.columns))
        literals = [f"({', '.join(map(value_of, columns, row))})" for row in rows]
        groups = [literals[first : first + VALUES_AT_ONCE] for first in range(0, len(literals), VALUES_AT_ONCE)]
        chunks += [Chunk((f"({names}) IN ({', '.join(group)})",), EVERY_KEY) for group in groups]
    return chunks


def _last_place_in_views(edges: Edges, binlog: BinlogRun) -> Place:
    """The place up to which a read view that is opened now certainly contains every spooled change.

    It is the end of the spool; but without GTIDs, while that end is in the source's current binlog file, it is the
    start of the file.
    """
    position = binlog.spool.position
    return (position.start_of_file if edges.source.has_low_at_file_start(position) else position).place


def _view_may_lack_changes(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Whether a read view that is opened now may lack changes by foreign keys that the spool's changes have caused.

    False also if the spool does not have all changes of the parents.
    """
    last_in_views, copies = _last_place_in_views(edges, binlog), Copies(edges, binlog, table)
    if last_in_views == copies.stop or table.id not in binlog.foreign_keys:
        return False
    with suppress(SpoolGap):
        return may_be_changed(table.id, last_in_views, copies.stop, binlog.foreign_keys, copies)
    return False


def _rotation_error(binlog: BinlogRun, table: TableRun) -> SplitUnstable:
    """The error for a read that may lack changes by foreign keys until the source has begun its next binlog file."""
    return SplitUnstable(
        f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: foreign keys may have changed"
        f" its rows since the binlog file {binlog.spool.position.at.file} began: without GTIDs, a read certainly"
        " contains these changes only after the source has begun its next file"
    )


def _place_read_to(low: Low, stop: Position, needed: Place) -> Place:
    """The place up to which a read view with this low watermark contains every change, but at most `stop`.

    Raises SplitUnstable if the view may lack a change up to `needed` or, with GTIDs, a change up to `stop`.
    """
    if isinstance(low, Place):  # without GTIDs
        has_all, read_to = needed <= low, min(stop.place, low)
    else:  # a GTID set
        has_all, read_to = stop.gtids is not None and stop.gtids <= low, stop.place
    if not has_all:
        raise SplitUnstable(f"rows were read as of {low}, which is before {stop.at}; run the same command again")
    return read_to


def _begin_comparison(edges: Edges, binlog: BinlogRun, table: TableRun) -> None:
    """Begin to compare all rows with the source, because nobody knows which rows foreign keys have changed.

    Here a commit only marks that the rows may lack changes (a gap). A re-snapshot compares them later.
    """
    # Step 1: the spool has every change of the parents that the read views may lack
    cover_lows(edges, binlog, table)
    if _view_may_lack_changes(edges, binlog, table):
        raise _rotation_error(binlog, table)  # until the source begins its next binlog file
    if table.count_comparison() > COMPARED_MAX:
        table.forget_comparisons()  # so that a run with `--follow` can try again later
        raise SplitUnstable(
            f"{table.id}: its rows were compared {COMPARED_MAX} times, and foreign keys have changed some each time;"
            " run the same command when its parents change less"
        )
    # Step 2: merge to the spool's end, so that all rows have one position
    merge_over_halts(edges, binlog, table)
    progress, position = table.progress, table.progress.position
    assert position is not None  # noqa: S101 - it was merged right now
    # Step 3: before the commit with the gap, store for the changelog which commit readers see while rows are compared
    table.cancel_reading()
    if table.staged.published is not None:
        keep_restart(edges.writing, table.schema, table.staged.published)
    # signals whose read was cancelled above: the comparison answers them
    signals = () if progress.reread is None else progress.reread.signals
    to = min(position.place, _last_place_in_views(edges, binlog))
    cascades = CascadesRead(table.cascade_keys, to) if table.cascade_keys else None
    begun = progress.over_gap(position, progress.fingerprint, progress.covered_from, signals=signals, cascades=cascades)
    commit_progress(edges, table, begun)
    table.record_cascades(to)
    edges.observe(StartedOver(table.id, compared=True))
