"""Merge: changes go from the spool into staging, in one commit that touches only the rows of changed keys.

A merge reads the table's changes in the spool from the least mark of its splits, keeps the changes that each split
still needs, and collapses them. Each executor does that for a slice of the keys, reads only the key columns, and
removes the rows that the changes replace. Then the new rows are written, in the order of the spool's files; those of
patches also for readers of the changelog.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakeingest.core.cascades import Settled
from lakeingest.core.change import DELETED
from lakeingest.core.position import Place, Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableSchema
from lakeingest.core.wave import Mark, MergePlan, plan_merge
from lakeingest.files.file import File, state_of
from lakeingest.lake.target import Effects, Merger
from lakeingest.pipeline.events import Merged
from lakeingest.pipeline.merging.reread_rows import store_rereads
from lakeingest.pipeline.merging.row_numbers import RowNumbers, in_groups, row_numbers
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.executors import Executors
from lakeingest.pipeline.run.profile import Profile
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.spark.scatter import scatter
from lakeingest.spool.collapse import Slice, bounds_of, collapsed, cut, take
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.spool.spool import Spool
from lakeingest.spool.transaction_files import log_of

SLICE_ROWS = 500_000  # change rows of a slice; an executor holds only their keys


@dataclass(frozen=True, slots=True)
class Replaced:
    """The result of a slice: what was written to remove old rows, and the numbers of new rows in files of the spool.

    `reread` are rows of patches that no change comes after, also those of keys that are gone.
    """

    written: bytes
    new: RowNumbers
    reread: RowNumbers
    read: int
    applied: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """The task of one executor: collapse the changes of a slice, and remove the rows that they replace.

    With `keeps_deleted` a change that deletes its key replaces the row by its last values.
    """

    files: tuple[File, ...]
    key: tuple[str, ...]
    keeps_deleted: bool
    marks: tuple[Mark, ...]
    stop: Place
    slice: Slice
    merger: Merger
    patches: tuple[Place, ...] = ()

    def run(self) -> Replaced:
        """Nothing refers to the written files before the commit."""
        profile = Profile()
        with profile.stage("merges: collapse"):
            found = collapsed(self.files, self.key, self.marks, self.stop, self.slice, self.patches)
        changes = _without_deletes(found.changes) if self.keeps_deleted else found.changes
        stays = ~changes[DELETED].to_numpy() | self.merger.keeps_deletes
        new = row_numbers(self.files, found.files[stays], found.rows[stays])
        patched = found.files < len(self.patches)
        reread = row_numbers(self.files, found.files[patched], found.rows[patched])
        with profile.stage("merges: replace"):
            written = self.merger.replace(changes)
        return Replaced(written, new, reread, found.read, found.applied, profile)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The files of new rows, and whether these rows were checked and are as the table's definition says."""

    files: bytes
    sound: bool
    profile: Profile


@dataclass(frozen=True, slots=True)
class WriteRows:
    """The task of one executor: read rows from files of the spool, write them to a file of the target."""

    rows: "Sequence[tuple[File, np.ndarray]]"
    schema: TableSchema
    stop: Place
    merger: Merger

    def run(self) -> WrittenRows:
        """Nothing refers to the written files before the commit."""
        profile = Profile()
        with profile.stage("merges: take"):
            names = [column.name for column in self.schema.metadata]
            deleted = self.merger.keeps_deletes and not self.schema.keeps_deleted  # else it is a metadata column
            rows = pa.concat_tables(
                take(file, numbers, self.stop, deleted=deleted, metadata=names) for file, numbers in self.rows
            )
        with profile.stage("merges: look"):
            sound = is_sound(default_suite(self.schema, len(rows)), rows)
        with profile.stage("merges: write"):
            files = self.merger.write(rows)
        return WrittenRows(files, sound, profile)


def merge(edges: Edges, spool: Spool, table: TableRun, stop: Position | None = None) -> None:
    """Bring every finished split of the table to the spool's stop, or to an earlier one, in one commit on staging.

    The definition of the table is in force up to there: a merge never crosses a halt (`spool.halts`).
    What readers see of a quiet table takes no commit; only its position advances.
    """
    began = time.monotonic()
    staged, progress, stop = table.staged, table.progress, stop or spool.position
    cascades = _cascades(table, stop.place)
    is_merged = progress.position is not None and progress.stop == stop.place
    if is_merged and (staged.visible or cascades == progress.cascades):
        return
    covered_from = max(progress.covered_from, spool.start)
    plan = plan_merge(progress.splits, stop.place, log_of(spool), covered_from, progress.patches)
    patches = PatchFolder.of(state_of(edges.config), table.schema)
    patched = [patches.file(patch.name) for patch, _ in plan.patches]
    files = [*patched, *spool.files(table.id, plan.start, plan.stop)]
    may_be_quiet = staged.visible and cascades == (progress.cascades and replace(progress.cascades, to=stop.place))
    if not files and may_be_quiet and not edges.quiet.needs_commit(table.id, staged, edges.connection):
        table.advance(edges.quiet.state_unchanged(table.id, staged, stop))
        return
    if not files:
        edges.lease.assert_held()
        after_nothing = replace(progress.merged(plan, stop, 0, 0), cascades=cascades)
        table.advance(edges.target.mark(staged, after_nothing), sound=True)
        return
    since = plan.start if progress.position is None else progress.position.place
    nulled = spool.nulled(table.id, since, plan.stop)
    changes = spool.backlog(table.id, plan.start) + patches.rows(patch.name for patch, _ in plan.patches)
    slices = max(1, changes // SLICE_ROWS)
    merger = edges.target.merger(staged, table.schema.key, bounds_of(files, table.schema.key[0]))
    replaced = _replace_rows(edges.executors, table.schema, plan, files, slices, merger)
    written = _write_rows(edges.executors, table.schema, replaced, plan.stop, merger)
    store_rereads(edges, spool, table.schema, [slice_.reread for slice_ in replaced], plan.stop)

    def after(effects: Effects) -> Progress:
        edges.lease.assert_held()
        merged = progress.merged(plan, stop, effects.inserted, effects.deleted, nulled)
        return replace(merged, cascades=cascades)

    parts = [*(slice_.written for slice_ in replaced), *(part.files for part in written)]
    with edges.profile.stage("merges: commit"):
        merged, effects = edges.target.commit_merge(staged, edges.executors.open, parts, after)
    table.advance(merged, sound=all(part.sound for part in written))
    for profile in (*(slice_.profile for slice_ in replaced), *(part.profile for part in written)):
        edges.profile.add(profile)
    counts = sum(slice_.read for slice_ in replaced), sum(slice_.applied for slice_ in replaced)
    edges.observe(
        Merged(table.id, *counts, effects.inserted, effects.updated, effects.deleted, time.monotonic() - began)
    )


def _cascades(table: TableRun, stop: Place) -> Settled | None:
    """Up to where the rows have changes by foreign keys after a merge to `stop`; None where nobody looks after them."""
    if table.options.cascades != "read":
        return None
    if table.foreign_keys and table.settled == stop:
        return Settled(table.foreign_keys, stop)
    return table.progress.cascades


def _replace_rows(
    executors: Executors, schema: TableSchema, plan: MergePlan, files: Sequence[File], slices: int, merger: Merger
) -> list[Replaced]:
    """Collapse the changes slice by slice, and remove the rows that they replace."""
    patches = tuple(place for _, place in plan.patches)
    tasks = [
        ReplaceRows(tuple(files), schema.key, schema.keeps_deleted, plan.marks, plan.stop, one, merger, patches)
        for one in cut(files, schema.key[0], slices)
    ]
    return scatter(executors.for_tasks(small=len(tasks) == 1), ReplaceRows.run, tasks, executors.at_once)


def _write_rows(
    executors: Executors, schema: TableSchema, replaced: Sequence[Replaced], stop: Place, merger: Merger
) -> list[WrittenRows]:
    """Write the new rows of all slices."""
    tasks = [WriteRows(rows, schema, stop, merger) for rows in in_groups([slice_.new for slice_ in replaced])]
    return scatter(executors.for_tasks(small=len(tasks) <= 1), WriteRows.run, tasks, executors.at_once)


def _without_deletes(changes: pa.Table) -> pa.Table:
    """The changes where deleted rows stay: no key is gone."""
    return changes.drop_columns(DELETED).append_column(DELETED, pa.repeat(pa.scalar(value=False), changes.num_rows))
