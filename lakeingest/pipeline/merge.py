"""From the spool into staging: one commit, and only the rows that it touches.

A merge reads a table's part of the spool from the least mark of its splits, keeps what each split still needs and
collapses it. Executors do that for a slice of the keys each, by the keys alone, and take away the rows which the
changes replace; then they write the new rows, file by file of the spool.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeingest.core.change import DELETED
from lakeingest.core.position import Place
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableSchema
from lakeingest.core.wave import Mark, MergePlan, plan_merge
from lakeingest.lake.target import Effects, Merger
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.events import Merged
from lakeingest.pipeline.executors import Executors
from lakeingest.pipeline.profile import Profile
from lakeingest.pipeline.table_run import TableRun
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.spark.scatter import scatter
from lakeingest.spool.collapse import Slice, bounds_of, collapsed, cut, take
from lakeingest.spool.spool import Spool

SLICE_ROWS = 500_000  # change rows of a slice: what an executor holds of them are keys
FILE_ROWS = 250_000  # new rows of a task, whole, and of a file


@dataclass(frozen=True, slots=True)
class Replaced:
    """What came of a slice: what was written of old rows, and by file of the spool the new rows that are to be."""

    written: bytes
    new: "dict[str, np.ndarray]"
    read: int
    applied: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """The task of one executor: collapse the changes of a slice, take away what they replace.

    With `keeps_deleted` a change that deletes its key replaces the row by its last values.
    """

    files: tuple[str, ...]
    key: tuple[str, ...]
    keeps_deleted: bool
    marks: tuple[Mark, ...]
    stop: Place
    slice: Slice
    merger: Merger

    def run(self) -> Replaced:
        """Nothing refers to what is written before the commit."""
        profile = Profile()
        with profile.stage("merges: collapse"):
            found = collapsed(self.files, self.key, self.marks, self.stop, self.slice)
        changes = _without_deletes(found.changes) if self.keeps_deleted else found.changes
        stays = ~changes[DELETED].to_numpy() | self.merger.keeps_deletes
        numbers, starts = np.unique(found.files[stays], return_index=True)  # they ascend
        parts = np.split(found.rows[stays], starts[1:])
        new = dict(zip((self.files[number] for number in numbers), parts, strict=False))
        with profile.stage("merges: replace"):
            written = self.merger.replace(changes)
        return Replaced(written, new, found.read, found.applied, profile)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What was written of new rows, and whether they are sound: looked at, and as the table's definition says."""

    files: bytes
    sound: bool
    profile: Profile


@dataclass(frozen=True, slots=True)
class WriteRows:
    """The task of one executor: take rows out of files of the spool, write them to one of the target."""

    rows: "Sequence[tuple[str, np.ndarray]]"
    schema: TableSchema
    stop: Place
    merger: Merger

    def run(self) -> WrittenRows:
        """Nothing refers to what is written before the commit."""
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


def merge(edges: Edges, spool: Spool, table: TableRun) -> None:
    """Bring every finished split of the table to the spool's stop, in one commit on staging."""
    began = time.monotonic()
    staged, progress, stop = table.staged, table.progress, spool.position
    if progress.position is not None and progress.splits.stop == stop.place:
        return
    plan = plan_merge(progress.splits, stop.place, spool.log(), max(progress.covered_from, spool.start))
    files = spool.files(table.id, plan.start, plan.stop)
    if not files:
        edges.lease.assert_held()
        table.advance(edges.target.mark(staged, progress.merged(plan, stop, 0, 0)), sound=True)
        return
    since = plan.start if progress.position is None else progress.position.place
    nulled = spool.nulled(table.id, since, plan.stop)
    slices = max(1, spool.backlog(table.id, plan.start) // SLICE_ROWS)
    merger = edges.target.merger(staged, table.schema.key, bounds_of(files, table.schema.key[0]))
    replaced = _replace_rows(edges.executors, table.schema, plan, files, slices, merger)
    written = _write_rows(edges.executors, table.schema, replaced, plan.stop, merger)

    def after(effects: Effects) -> Progress:
        edges.lease.assert_held()
        return progress.merged(plan, stop, effects.inserted, effects.deleted, nulled)

    parts = [*(one.written for one in replaced), *(one.files for one in written)]
    with edges.profile.stage("merges: commit"):
        merged, effects = edges.target.commit_merge(staged, edges.executors.open, parts, after)
    table.advance(merged, sound=all(one.sound for one in written))
    for profile in (*(one.profile for one in replaced), *(one.profile for one in written)):
        edges.profile.add(profile)
    counts = sum(one.read for one in replaced), sum(one.applied for one in replaced)
    edges.observe(
        Merged(table.id, *counts, effects.inserted, effects.updated, effects.deleted, time.monotonic() - began)
    )


def _replace_rows(
    executors: Executors, schema: TableSchema, plan: MergePlan, files: Sequence[str], slices: int, merger: Merger
) -> list[Replaced]:
    """Collapse the changes slice by slice, and remove the rows that they replace."""
    tasks = [
        ReplaceRows(tuple(files), schema.key, schema.keeps_deleted, plan.marks, plan.stop, one, merger)
        for one in cut(files, schema.key[0], slices)
    ]
    return scatter(executors.for_tasks(small=len(tasks) == 1), ReplaceRows.run, tasks, executors.at_once)


def _write_rows(
    executors: Executors, schema: TableSchema, replaced: Sequence[Replaced], stop: Place, merger: Merger
) -> list[WrittenRows]:
    """Write the new rows of all slices."""
    tasks = [WriteRows(rows, schema, stop, merger) for rows in _in_groups(replaced)]
    return scatter(executors.for_tasks(small=len(tasks) <= 1), WriteRows.run, tasks, executors.at_once)


def _without_deletes(changes: pa.Table) -> pa.Table:
    """The changes where deleted rows stay: no key is gone."""
    return changes.drop_columns(DELETED).append_column(DELETED, pa.repeat(pa.scalar(value=False), changes.num_rows))


def _in_groups(replaced: Sequence[Replaced]) -> list[list[tuple[str, np.ndarray]]]:
    """The new rows of all slices in the order of the spool, in groups of about FILE_ROWS rows."""
    groups: list[list[tuple[str, np.ndarray]]] = [[]]
    left = FILE_ROWS
    for file in dict.fromkeys(file for one in replaced for file in one.new):
        rows = np.sort(np.concatenate([one.new[file] for one in replaced if file in one.new]))
        for part in np.array_split(rows, -(-len(rows) // FILE_ROWS)):
            if len(part) > left:
                groups.append([])
                left = FILE_ROWS
            groups[-1].append((file, part))
            left -= len(part)
    return [group for group in groups if group]
