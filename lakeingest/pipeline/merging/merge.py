"""Merge: changes go from the spool into staging, in commits that touch only the rows of changed keys.

A merge reads the table's changes in the spool from the least mark of its splits, keeps the changes that each split
still needs, and collapses them. Each executor does that for a slice of the keys, reads only the key columns, and
removes the rows that the changes replace. Then the new rows are written, in the order of the spool's files. Rows of
patches are also stored for readers of the changelog.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.wave import MergePlan, plan_merge
from lakeingest.files.file import File
from lakeingest.lake.target import Effects, Merger
from lakeingest.mysql.key_values import compared_keys
from lakeingest.pipeline.events import Merged
from lakeingest.pipeline.merging.reread_rows import store_rereads
from lakeingest.pipeline.merging.row_numbers import in_groups
from lakeingest.pipeline.merging.tasks import Replaced, ReplaceRows, WriteRows, WrittenRows
from lakeingest.pipeline.run.commit_progress import commit_progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spark.scatter import scatter
from lakeingest.spool.collapse import bounds_of, cut, row_bytes
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.spool.spool import Spool
from lakeingest.spool.transaction_files import log_of

SLICE_ROWS = 500_000  # change rows of a slice; an executor holds only their keys
# Change rows of a commit. Each slice reads the keys of all of them, and the driver has four bytes for each
MOST_ROWS = 10_000_000
LOOKED_AT_ROWS = 25_000_000  # rows of the table for each slice: an executor reads their keys in a third of a second


def merge(edges: Edges, spool: Spool, table: TableRun, stop: Position | None = None) -> None:
    """Bring every finished split of the table to `stop` (None: the end of the spool), in commits on staging.

    There is one commit for about MOST_ROWS changes. The table's definition must be in force up to `stop`: a merge never
    crosses a halt (`spool.halts`). If readers see the table and it is quiet, its noted position advances without a
    commit.
    """
    end = stop or spool.position
    for part_stop in (*_stops_before(end, spool, table), end):
        _merge_to(edges, spool, table, part_stop)


def slice_count(change_rows: int, looked_at: int, at_once: int) -> int:
    """The number of slices of a merge, of which executors read `at_once` at the same time.

    If there are more, it is a multiple of `at_once`: otherwise executors are idle while the last slices are read.
    `looked_at`: the rows of the table whose keys the slices read together.
    """
    wanted = max(1, change_rows // SLICE_ROWS, looked_at // LOOKED_AT_ROWS)
    return wanted if wanted <= at_once else -(-wanted // at_once) * at_once  # rounded up


def _stops_before(end: Position, spool: Spool, table: TableRun) -> list[Position]:
    """The ends of segments at which merges stop on the way to `end`: each has about MOST_ROWS changes to apply."""
    progress, stops, rows = table.progress, list[Position](), 0
    if spool.backlog(table.id, progress.needed_from) <= MOST_ROWS:
        return stops
    for _, _, segment, after in spool.parts():
        if progress.needed_from < after.place < end.place:
            rows += segment.rows_of(table.id)
            if rows >= MOST_ROWS and after.place >= progress.least_stop:  # no merge can stop before that place
                stops.append(after)
                rows = 0
    return stops


def _merge_to(edges: Edges, spool: Spool, table: TableRun, stop: Position) -> None:
    """Bring every finished split of the table to `stop`, in one commit on staging."""
    began = time.monotonic()
    staged, progress = table.staged, table.progress
    cascades = _cascades_at(table, stop.place)
    is_merged = progress.position is not None and progress.stop == stop.place
    if is_merged and (staged.visible or cascades == progress.cascades):
        return  # the rows are at `stop`, and readers see them; or a commit would not even change `cascades`
    # Step 1: plan the merge of the splits and patches that staging has now
    covered_from = max(progress.covered_from, spool.start)
    plan = plan_merge(progress.splits, stop.place, log_of(spool), covered_from, progress.patches)
    patches = PatchFolder.of(edges.state, table.schema)
    patched = [patches.file(patch.name) for patch, _ in plan.patches]
    files = [*patched, *spool.files(table.id, plan.start, plan.stop)]  # `ReplaceRows` wants the patches first
    # Step 2: without changes, only the position advances: noted if the table is quiet, else in a commit
    old_cascades = progress.cascades
    unchanged_cascades = None if old_cascades is None else replace(old_cascades, to=stop.place)
    may_be_quiet = staged.visible and cascades == unchanged_cascades
    if not files and may_be_quiet and not edges.quiet.needs_commit(table.id, staged, edges.source):
        table.advance(edges.quiet.note_unchanged(table.id, staged, stop))
        return
    if not files:
        commit_progress(edges, table, replace(progress.merged(plan, stop, 0, 0), cascades=cascades))
        return
    # Step 3: executors collapse the changes and remove old rows, then write new rows; nothing refers to their files yet
    merged_to = plan.start if progress.position is None else progress.position.place
    nulled = spool.nulled(table.id, merged_to, plan.stop)
    patch_rows = patches.count_rows(patch.name for patch, _ in plan.patches)
    change_rows = spool.backlog(table.id, plan.start, plan.stop) + patch_rows
    merger = edges.target.merger(staged, table.schema.key, bounds_of(files, table.schema.key[0]))
    slices = slice_count(change_rows, merger.looked_at, edges.executors.at_once)
    replaced = _replace_rows(edges, table, plan, files, slices, merger)
    written = _write_rows(edges, table.schema, replaced, plan.stop, merger)
    # Step 4: store the rows of patches before the commit: so readers of the changelog miss none (`reread_rows`)
    store_rereads(edges, spool, table.schema, [slice_.reread for slice_ in replaced], plan.stop)

    def progress_after(effects: Effects) -> Progress:
        """The progress that the commit carries. Called with the effects of the merge."""
        edges.lease.assert_held()  # just before the commit
        # a change of a key has its whole row, so the key leaves the quarantine, and the gate judges the row anew
        freed = [progress.quarantine[number] for slice_ in replaced for number in slice_.freed]
        merged = progress.merged(plan, stop, effects.inserted, effects.deleted, nulled, freed)
        return replace(merged, cascades=cascades)

    # Step 5: commit all files, with the progress after them
    parts = [*(slice_.written for slice_ in replaced), *(part.files for part in written)]
    with edges.profile.stage("merges: commit"):
        merged, effects = edges.target.commit_merge(staged, parts, progress_after)
    table.advance(merged, sound=all(part.sound for part in written))
    edges.tally.merged(table.id, effects, (part.counts for part in written))
    for profile in (*(slice_.profile for slice_ in replaced), *(part.profile for part in written)):
        edges.profile.add(profile)
    seconds = time.monotonic() - began
    edges.audit_costs[table.id] = edges.audit_costs[table.id].merged(seconds)
    counts = sum(slice_.read for slice_ in replaced), sum(slice_.applied for slice_ in replaced)
    repeats = progress.position is None and edges.source.reads_from_file_start(stop)  # the first merge of the copy
    keys = effects.inserted, effects.updated, effects.deleted
    edges.observe(Merged(table.id, *counts, *keys, seconds, repeats=repeats))


def _cascades_at(table: TableRun, stop: Place) -> CascadesRead | None:
    """The place up to which the rows have all changes by foreign keys, once the rows are merged to `stop`.

    It comes with the signature of the foreign keys. None if nobody looks for changes by foreign keys.
    """
    if table.options.cascades != "read":
        return None
    if table.cascade_keys and table.cascades_read_to == stop:
        return CascadesRead(table.cascade_keys, stop)
    return table.progress.cascades  # as before: nobody has looked for changes up to `stop`


def _replace_rows(
    edges: Edges, table: TableRun, plan: MergePlan, files: Sequence[File], slices: int, merger: Merger
) -> list[Replaced]:
    """Collapse the changes slice by slice, and remove the rows that they replace."""
    schema, listed = table.schema, table.progress.quarantine
    quarantine = compared_keys(schema, listed) if listed else None
    patches, merges_by = tuple(place for _, place in plan.patches), edges.target.capabilities.merges_by
    all_files = tuple(files)
    tasks = [
        ReplaceRows(
            all_files,
            schema.key,
            schema.keeps_deleted,
            plan.marks,
            plan.stop,
            slice=part,
            merger=merger,
            merges_by=merges_by,
            patches=patches,
            quarantine=quarantine,
        )
        for part in cut(files, schema.key[0], slices)
    ]
    executors = edges.executors
    return scatter(executors.for_tasks(small=len(tasks) == 1), ReplaceRows.run, tasks, executors.at_once)


def _write_rows(
    edges: Edges, schema: TableSchema, replaced: Sequence[Replaced], stop: Place, merger: Merger
) -> list[WrittenRows]:
    """Write the new rows of all slices."""
    executors, merges_by = edges.executors, edges.target.capabilities.merges_by
    groups = in_groups([slice_.new for slice_ in replaced], row_bytes)
    counts = edges.config.quality.unusual == "warn"
    tasks = [WriteRows(rows, schema, stop, merger, merges_by, counts) for rows in groups]
    return scatter(executors.for_tasks(small=len(tasks) <= 1), WriteRows.run, tasks, executors.at_once)
