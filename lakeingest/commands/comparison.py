"""Comparison: the source's rows and the copy's rows of one table, by checksums that each side computes itself.

Rows are compared by ranges of keys, if we can order the keys. If only the server can order them, we cannot tell
which keys are in a range. Then rows are compared by buckets: a hash of the key's bytes is the number of the key's
bucket. The source still reads its rows range by range.

The ranges or buckets are the chunks of a comparison. If only some of them are compared, both sides look at the rows of
these chunks alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from lakeingest.commands.copy_files import CopyFiles, add
from lakeingest.commands.extent import Extent
from lakeingest.config import Source as Settings
from lakeingest.core.checksum import Checksum, Difference, differences
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.schema import TableSchema
from lakeingest.mysql import checksum as source_side
from lakeingest.mysql.source import Source
from lakeingest.side_by_side import side_by_side
from lakeingest.spark import checksum as target_side
from lakeingest.spark.ranges import ranges, within
from lakeingest.spark.row_hashes import Widths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK_ROWS = 50_000
FINEST_ROWS = 2_000  # a chunk that differs is cut into ranges of so many rows; only then are single rows compared
KEYS_NAMED = 10_000  # the most rows that are compared one by one at a time, because the driver holds their checksums
BUCKETS_AT_ONCE = 2  # that are compared row by row at a time: so that they have fewer rows than KEYS_NAMED
SCANS = 8  # of a table by buckets in limited time: each scan reads the whole table, and hashes its share of the buckets
BATCH_BYTES, BATCH_ROWS = 32 << 20, 10_000  # the most that Spark's Python workers get at once
RANGES_SOUGHT = 64  # the most ranges for which Spark gets a condition that lets it skip files

Pair = tuple[Checksum, Checksum]  # of the source, and of the target
Part = TypeVar("Part")  # names a part of the rows: a range of keys, or the number of a bucket


@dataclass(frozen=True)
class Sides:
    """The two sides of a comparison: a table in the source, and the rows of its copy.

    `files`: the files of the copy, where they can be read without Spark. `rows` are the rows by Spark: the first use
    starts it.
    """

    source: Source
    schema: TableSchema
    open_rows: Callable[[], "DataFrame"]
    files: CopyFiles | None

    @cached_property
    def rows(self) -> "DataFrame":
        """The rows of the copy."""
        return self.open_rows()

    def in_batches(self) -> AbstractContextManager[None]:
        """Inside the block, Spark's Python workers get at most `batch_rows` rows at once."""
        return target_side.batches_of(self.rows.sparkSession, self.batch_rows)

    @property
    def widths(self) -> Widths:
        """How long a DOUBLE can be when the source writes it as text, see `Source.double_widths`."""
        return self.source.double_widths

    @property
    def batch_rows(self) -> int:
        """How many rows Spark's Python workers get at once: about BATCH_BYTES, by the source's estimates.

        If the source does not know the size of the table, BATCH_ROWS, which is Spark's own default.
        """
        size = max(1, self.source.estimated_bytes(self.schema))
        fitting = BATCH_BYTES * self.source.estimated_rows(self.schema) // size
        return min(max(1, fitting), BATCH_ROWS)


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The chunks of a table, and those that are compared.

    `ranges`: the ranges in which the source reads the table; together they have all keys. `buckets`: the number of all
    buckets, if the chunks are buckets; 0 if the chunks are the ranges. `chosen`: the numbers of the chunks that are
    compared, in this order. `at_once`: so many chunks are begun before the time is looked at; None: all of them.
    `fingerprint`: that of the table's definition.
    """

    ranges: tuple[KeyRange, ...]
    buckets: int
    chosen: tuple[int, ...]
    at_once: int | None
    fingerprint: str

    @property
    def count(self) -> int:
        """The number of all chunks."""
        return self.buckets or len(self.ranges)

    @property
    def is_whole(self) -> bool:
        """Whether all chunks are compared at once."""
        return self.at_once is None and len(self.chosen) == self.count

    def waves(self, may_begin: Callable[[], bool]) -> Iterator[Sequence[int]]:
        """The chosen chunks, in groups that are begun together, as long as `may_begin` returns True."""
        size = self.at_once or len(self.chosen)
        for first in range(0, len(self.chosen), size):
            if not may_begin():
                return
            yield self.chosen[first : first + size]


@dataclass(frozen=True, slots=True)
class Compared:
    """The result: each side's checksum of the compared rows, the keys that differ, and how much was compared.

    `chunks`: the number of ranges that the source read. `compared`: the numbers of the chunks of the plan that were
    compared. `complete`: the differences have all keys that differ in these chunks. `quarantined`: keys in quarantine
    whose rows are, as they must be, in the source alone. They are not among the differences.
    """

    source: Checksum
    target: Checksum
    chunks: int
    differences: tuple[Difference, ...]
    complete: bool
    compared: tuple[int, ...]
    quarantined: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class ChecksumRange:
    """A task: let the source compute the checksum of each bucket of a range.

    `numbers`: the buckets; None: all of them.
    """

    source: Settings
    schema: TableSchema
    keys: KeyRange
    buckets: int
    numbers: Sequence[int] | None

    def run(self) -> dict[int, Checksum]:
        """The checksums that the source computes, by the number of the bucket."""
        return source_side.range_checksums(self.source, self.schema, self.keys, self.buckets, self.numbers)


def plan_chunks(source: Source, schema: TableSchema, extent: Extent) -> ChunkPlan:
    """Cut the table into chunks, and choose those that are compared."""
    ranges = tuple(_cut_range(source, schema, KeyRange(), CHUNK_ROWS))
    # so many buckets that each has about FINEST_ROWS rows
    buckets = 0 if schema.ordered else len(ranges) * CHUNK_ROWS // FINEST_ROWS
    chosen = extent.drawn(schema.table, buckets or len(ranges))
    at_once: int | None = None
    if extent.max_seconds is not None:
        at_once = math.ceil(len(chosen) / SCANS) if buckets else source.settings.max_connections - 1
    return ChunkPlan(ranges, buckets, chosen, at_once, schema.fingerprint)


def compare(sides: Sides, plan: ChunkPlan, may_begin: Callable[[], bool]) -> Compared:
    """Compare all rows of the chosen chunks, and name keys of rows that differ, but not always all such keys.

    When `may_begin` returns False, no new chunk is begun. Only the first KEYS_NAMED rows of each range that differs are
    compared one by one, or of a few buckets.
    """
    waves = plan.waves(may_begin)
    return _by_bucket(sides, plan, waves) if plan.buckets else _by_range(sides, plan, waves)


def _by_range(sides: Sides, plan: ChunkPlan, waves: Iterator[Sequence[int]]) -> Compared:
    """Compare chunks, then smaller ranges of the chunks that differ, then single rows of the ranges that differ."""
    compared: list[int] = []
    sums: dict[KeyRange, Pair] = {}
    for wave in waves:
        files = sides.files if plan.is_whole else None
        sums |= _range_sums(sides, [plan.ranges[number] for number in wave], files)
        compared += wave
    finer_ranges = [
        keys for chunk in _differing_parts(sums) for keys in _cut_range(sides.source, sides.schema, chunk, FINEST_ROWS)
    ]
    differing_ranges = _differing_parts(_range_sums(sides, finer_ranges)) if finer_ranges else []
    rows_compared = _RowsCompared(sides)
    for keys in differing_ranges:
        rows_compared.compare(keys, sides.rows.where(keys.predicate(sides.schema.key)))
    return _result(sums, len(compared), rows_compared, compared)


def _by_bucket(sides: Sides, plan: ChunkPlan, waves: Iterator[Sequence[int]]) -> Compared:
    """Compare buckets of the keys' bytes, then single rows of the buckets that differ."""
    # Step 1: the checksums of each bucket. In the source, each range has rows of all buckets.
    compared: list[int] = []
    sums: dict[int, Pair] = {}
    for wave in waves:
        numbers = None if len(wave) == plan.buckets else wave
        files = sides.files if plan.is_whole else None
        sums_of_ranges, in_target = _both_sums(sides, plan.ranges, plan.buckets, numbers, files)
        in_source: dict[int, Checksum] = {}
        for sums_of_range in sums_of_ranges:
            add(in_source, sums_of_range)
        if in_target is None:
            all_rows = target_side.in_buckets(sides.rows, sides.schema, plan.buckets)
            numbered_rows = all_rows if numbers is None else _of_buckets(all_rows, numbers)
            with sides.in_batches():
                in_target = target_side.checksums(numbered_rows, sides.schema, sides.widths)
        sums |= {
            bucket: (in_source.get(bucket, Checksum()), in_target.get(bucket, Checksum()))
            for bucket in in_source.keys() | in_target.keys()
        }
        compared += wave
    # Step 2: the rows of buckets that differ
    rows_compared, differing = _RowsCompared(sides), sorted(_differing_parts(sums))
    for first in range(0, len(differing), BUCKETS_AT_ONCE):
        buckets = differing[first : first + BUCKETS_AT_ONCE]
        all_rows = target_side.in_buckets(sides.rows, sides.schema, plan.buckets)
        rows_compared.compare(KeyRange(), _of_buckets(all_rows, buckets), (plan.buckets, buckets))
    return _result(sums, len(plan.ranges) if compared else 0, rows_compared, compared)


def _of_buckets(numbered_rows: "DataFrame", buckets: Sequence[int]) -> "DataFrame":
    return numbered_rows.where(numbered_rows[target_side.NUMBER].isin(list(buckets)))


class _RowsCompared:
    """The differences of rows that are compared one by one. `complete`: no row of the parts was left out."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.differences: list[Difference] = []
        self.complete = True

    def compare(self, keys: KeyRange, rows: "DataFrame", buckets: tuple[int, Sequence[int]] | None = None) -> None:
        """Compare the first rows of the source in this range, and in these buckets, with those of `rows`.

        Each side returns at most KEYS_NAMED rows, in key order. Keys after the last key of a side that has more rows
        are left out, because it is not known whether that side has them.
        """
        sides = self._sides
        source_rows = source_side.row_checksums(sides.source.settings, sides.schema, keys, KEYS_NAMED, buckets)
        with sides.in_batches():
            target_rows = target_side.row_checksums(rows, sides.schema, KEYS_NAMED, sides.widths)
        found = differences(source_rows, target_rows)
        target_keys = [key for key, _ in target_rows]
        cut_at = [max(side) for side in (list(source_rows), target_keys) if len(side) >= KEYS_NAMED]
        self.differences += [each for each in found if not cut_at or each.key <= min(cut_at)]
        self.complete &= not cut_at


def _range_sums(sides: Sides, chunks: Sequence[KeyRange], files: CopyFiles | None = None) -> dict[KeyRange, Pair]:
    """For each of the ranges `chunks`, the checksum of its rows in the source, and that in the target.

    `files`: those of the target, if the ranges together have all keys.
    """
    in_source, in_target = _both_sums(sides, chunks, 0, None, files)  # all rows of a range are in bucket 0
    if in_target is None:
        in_target = _target_sums(sides, chunks)
    empty = Checksum()
    return {keys: (in_source[number].get(0, empty), in_target.get(number, empty)) for number, keys in enumerate(chunks)}


def _target_sums(sides: Sides, chunks: Sequence[KeyRange]) -> dict[int, Checksum]:
    """The target's checksum of each of the ranges `chunks`, by the number of the range, as Spark reads the rows."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    key = sides.schema.key
    rows = sides.rows
    are_all = chunks[0].lower is None and chunks[-1].upper is None
    if len(chunks) <= RANGES_SOUGHT and not are_all:  # changes no result; Spark skips files by it, but not by a join
        rows = rows.where(" OR ".join(f"({keys.predicate(key)})" for keys in chunks))
    tagged = [(keys, (number,)) for number, keys in enumerate(chunks)]
    numbered_ranges = ranges(rows, key, tagged, f"{target_side.NUMBER} int")
    numbered_rows = rows.join(F.broadcast(numbered_ranges), on=within(key), how="inner")
    with sides.in_batches():
        return target_side.checksums(numbered_rows, sides.schema, sides.widths)


def _both_sums(
    sides: Sides,
    chunks: Sequence[KeyRange],
    buckets: int,
    numbers: Sequence[int] | None,
    files: CopyFiles | None,
) -> tuple[list[dict[int, Checksum]], dict[int, Checksum] | None]:
    """For each of the ranges `chunks`, the source's checksum of each bucket; and the target's as by `sums_beside`.

    The target's are None without `files`, and if only Spark can read them. `numbers`: the buckets; None: all of them.
    """
    tasks = [ChecksumRange(sides.source.settings, sides.schema, keys, max(1, buckets), numbers) for keys in chunks]

    def in_source() -> list[dict[int, Checksum]]:
        # in threads, which wait for the server. One connection less than allowed, because `sides.source` holds one
        return side_by_side(ChecksumRange.run, tasks, max(1, sides.source.settings.max_connections - 1))

    if files is None:
        return in_source(), None
    return files.sums_beside(chunks, buckets, in_source)


def _cut_range(source: Source, schema: TableSchema, keys: KeyRange, rows: int) -> list[KeyRange]:
    """Cut the range `keys` into ranges of `rows` rows each, counted in the source; the last range may have fewer."""
    bounds: list[Key | None] = [keys.lower]
    while (following := source.next_boundary(schema, bounds[-1], rows)) is not None:
        if keys.upper is not None and following >= keys.upper:  # the boundary is outside of the range
            break
        bounds.append(following)
    return [KeyRange(lower, upper) for lower, upper in pairwise([*bounds, keys.upper])]


def _differing_parts(sums: dict[Part, Pair]) -> list[Part]:
    return [part for part, (in_source, in_target) in sums.items() if in_source != in_target]


def _result(sums: dict[Part, Pair], chunks: int, rows: _RowsCompared, compared: Sequence[int]) -> Compared:
    """The result: the checksums of all parts, added up for each side, and the differences."""
    source, target = (sum((pair[side] for pair in sums.values()), Checksum()) for side in (0, 1))
    return Compared(source, target, chunks, tuple(rows.differences), rows.complete, tuple(compared))
