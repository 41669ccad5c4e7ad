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
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.wave import Mark, plan_merge
from lakeingest.lake.target import Effects, Merger
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Merged
from lakeingest.pipeline.profile import Profile
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.spark.scatter import scatter
from lakeingest.spool.collapse import Slice, bounds_of, collapsed, cut, take

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
    """The task of one executor: collapse the changes of a slice, take away what they replace."""

    files: tuple[str, ...]
    key: tuple[str, ...]
    marks: tuple[Mark, ...]
    stop: Place
    slice: Slice
    merger: Merger

    def run(self) -> Replaced:
        """Nothing refers to what is written before the commit."""
        profile = Profile()
        with profile.stage("merges: collapse"):
            found = collapsed(self.files, self.key, self.marks, self.stop, self.slice)
        stays = ~found.changes[DELETED].to_numpy() | self.merger.keeps_deletes
        numbers, starts = np.unique(found.files[stays], return_index=True)  # they ascend
        parts = np.split(found.rows[stays], starts[1:])
        new = dict(zip((self.files[number] for number in numbers), parts, strict=False))
        with profile.stage("merges: replace"):
            written = self.merger.replace(found.changes)
        return Replaced(written, new, found.read, found.applied, profile)


@dataclass(frozen=True, slots=True)
class Written:
    """What was written of new rows, and whether they are sound: looked at, and as the table's definition says."""

    files: bytes
    sound: bool
    profile: Profile


@dataclass(frozen=True, slots=True)
class WriteRows:
    """The task of one executor: take rows out of files of the spool, write them to one of the target."""

    rows: "Sequence[tuple[str, np.ndarray]]"
    schema: TableSchema
    merger: Merger

    def run(self) -> Written:
        """Nothing refers to what is written before the commit."""
        profile = Profile()
        with profile.stage("merges: take"):
            deleted = self.merger.keeps_deletes
            rows = pa.concat_tables(take(file, numbers, deleted=deleted) for file, numbers in self.rows)
        with profile.stage("merges: look"):
            sound = is_sound(default_suite(self.schema, len(rows)), rows)
        with profile.stage("merges: write"):
            files = self.merger.write(rows)
        return Written(files, sound, profile)


def merge(context: Context, table: TableId) -> None:
    """Bring every finished split of the table to the spool's stop, in one commit on staging."""
    began = time.monotonic()
    staged, stop = context.tables[table], context.spool.position
    progress, key = staged.progress, context.schemas[table].key
    if progress.position is not None and progress.splits.stop == stop.place:
        return
    covered_from = max(progress.covered_from, context.spool.start)
    plan = plan_merge(progress.splits, stop.place, context.spool.log(), covered_from)
    files = context.spool.files(table, plan.start, plan.stop)
    if not files:
        context.lease.assert_held()
        context.advance(context.target.mark(staged, progress.merged(plan, stop, 0, 0)), sound=True)
        return
    since = plan.start if progress.position is None else progress.position.place
    nulled = context.spool.nulled(table, since, plan.stop)
    merger = context.target.merger(staged, key, bounds_of(files, key[0]))
    slices = cut(files, key[0], max(1, context.spool.backlog(table, plan.start) // SLICE_ROWS))
    replacements = [ReplaceRows(tuple(files), key, plan.marks, plan.stop, one, merger) for one in slices]
    replaced = scatter(context.workers(small=len(replacements) == 1), ReplaceRows.run, replacements, context.at_once)
    writes = _writes(context.schemas[table], replaced, merger)
    written = scatter(context.workers(small=len(writes) <= 1), WriteRows.run, writes, context.at_once)

    def after(effects: Effects) -> Progress:
        context.lease.assert_held()
        return progress.merged(plan, stop, effects.inserted, effects.deleted, nulled)

    parts = [*(one.written for one in replaced), *(one.files for one in written)]
    with context.profile.stage("merges: commit"):
        merged, effects = context.target.commit_merge(staged, context.open_spark, parts, after)
    context.advance(merged, sound=all(one.sound for one in written))
    for profile in (*(one.profile for one in replaced), *(one.profile for one in written)):
        context.profile += profile
    counts = sum(one.read for one in replaced), sum(one.applied for one in replaced)
    context.observe(
        Merged(table, *counts, effects.inserted, effects.updated, effects.deleted, time.monotonic() - began)
    )


def _writes(schema: TableSchema, replaced: Sequence[Replaced], merger: Merger) -> list[WriteRows]:
    """The new rows of all slices, in their order, about as many a task."""
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
    return [WriteRows(group, schema, merger) for group in groups if group]
