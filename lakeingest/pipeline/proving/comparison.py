"""Comparison: the source's rows and the copy's rows of one table, by checksums that each side computes itself.

Rows are compared by ranges of keys, if we can order the keys. If only the server can order them, we cannot tell
which keys are in a range. Then rows are compared by buckets: a hash of the key's bytes is the number of the key's
bucket. The source still reads its rows range by range.

The ranges or buckets are the chunks of a comparison. If only some of them are compared, both sides look at the rows of
these chunks alone.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

import pyarrow as pa

from lakeingest.config import Source as Settings
from lakeingest.core.proofs.checksum import Checksum, Difference, differences
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql import checksum as source_side
from lakeingest.mysql.source import Source
from lakeingest.pipeline.proving.copy_files import CopyFiles, add
from lakeingest.pipeline.proving.source_rows import SourceRows, hides_values
from lakeingest.side_by_side import side_by_side
from lakeingest.spark.row_hashes import Widths

CHUNK_ROWS = 50_000
FINEST_ROWS = 2_000  # a chunk that differs is cut into ranges of so many rows; only then are single rows compared
KEYS_NAMED = 10_000  # the most rows that are compared one by one at a time, because the driver holds their checksums
BUCKETS_AT_ONCE = 2  # that are compared row by row at a time: so that they have fewer rows than KEYS_NAMED

Pair = tuple[Checksum, Checksum]  # of the source, and of the target
Part = TypeVar("Part")  # names a part of the rows: a range of keys, or the number of a bucket


class CopySide(Protocol):
    """Reads the rows of a copy. Rows that are marked as deleted (`deletes: soft`) are left out.

    Raises StateUnreadable or ForeignWrite if a file of the copy is damaged, or has a form that this reader cannot read.
    """

    def sums(self, ranges: Sequence[KeyRange], buckets: int, numbers: Sequence[int] | None) -> dict[int, Checksum]:
        """The checksum of the rows of each chunk, by the chunk's number. Chunks without rows may be left out.

        The chunks are those of `buckets` buckets that have these `numbers` (None: all of them). If `buckets` is 0, the
        chunks are the `ranges`.
        """

    def row_checksums(
        self, keys: KeyRange, buckets: tuple[int, Sequence[int]] | None, limit: int
    ) -> list[tuple[Key, Checksum]]:
        """The key and the checksum of each of the first `limit` rows in key order, of the range or of the buckets.

        `buckets`: the number of all buckets, and the numbers of the buckets to read; None: the rows of the range.
        Keys have integers if the schema is `ordered`, otherwise canonical texts.
        """

    def with_keys(self, keys: Sequence[Key]) -> pa.Table | None:
        """The rows that have one of these keys; None if there is no such row. Keys are as in `row_checksums`."""


@dataclass(slots=True)
class SourceTime:
    """How long the source has worked for comparisons, in seconds. Queries that run side by side count as one."""

    seconds: float = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the time of the block, in which the source works."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began


def _uncounted(_rows: int) -> None:
    """Do nothing, because nobody wants to know how far a comparison is."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a comparison: a table in the source, and the rows of its copy.

    `copy`: reads the rows. `files`: reads the checksums of all chunks while the source computes its own; None: `copy`
    reads them afterwards. `connections`: so many queries of the source run at a time. `spent`: the time of the source.
    `on_range`: called with the number of rows of each range that the source has read, from several threads.
    """

    source: Source
    schema: TableSchema
    copy: CopySide
    files: CopyFiles | None
    connections: int
    spent: SourceTime = field(default_factory=SourceTime)
    on_range: Callable[[int], None] = _uncounted


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The chunks of a table, and those that are compared.

    `ranges`: the ranges in which the source reads the table; together they have all keys. `buckets`: the number of all
    buckets, if the chunks are buckets; 0 if the chunks are the ranges. `chosen`: the numbers of the chunks that are
    compared, in this order; at least one. `at_once`: so many chunks are begun before the time is looked at; None: all
    of them. `fingerprint`: that of the table's definition.
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
        """Whether all chunks are compared, and all are begun together."""
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
    """A task: compute the checksum of the source's rows in each bucket of a range.

    `buckets`: how many buckets there are. `numbers`: the numbers of the wanted buckets; None: all of them. The source
    computes the checksums. But if the copy hides values, the task reads the rows and computes the checksums itself.
    For this it needs `widths`, the `double_widths` of the source.
    """

    source: Settings
    schema: TableSchema
    keys: KeyRange
    buckets: int
    numbers: Sequence[int] | None
    widths: Widths

    def run(self) -> dict[int, Checksum]:
        """The checksums of the source's rows, by the number of the bucket."""
        if hides_values(self.schema):
            return SourceRows(self.source, self.schema, self.keys, self.widths).sums(self.buckets, self.numbers)
        return source_side.range_checksums(self.source, self.schema, self.keys, self.buckets, self.numbers)


def compare(sides: Sides, plan: ChunkPlan, may_begin: Callable[[], bool]) -> Compared:
    """Compare all rows of the chosen chunks, and name keys of rows that differ.

    When `may_begin` returns False, no new chunk is begun. Some keys that differ may be left out: each side returns at
    most KEYS_NAMED rows of a small range that differs, or of a group of BUCKETS_AT_ONCE buckets that differ.
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
    finer_ranges = [keys for chunk in _differing_parts(sums) for keys in _cut_finest(sides, chunk)]
    differing_ranges = _differing_parts(_range_sums(sides, finer_ranges)) if finer_ranges else []
    rows_compared = _RowsCompared(sides)
    for keys in differing_ranges:
        rows_compared.compare(keys)
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
            in_target = sides.copy.sums((), plan.buckets, numbers)
        sums |= {
            bucket: (in_source.get(bucket, Checksum()), in_target.get(bucket, Checksum()))
            for bucket in in_source.keys() | in_target.keys()
        }
        compared += wave
    # Step 2: the rows of buckets that differ
    rows_compared, differing = _RowsCompared(sides), sorted(_differing_parts(sums))
    for first in range(0, len(differing), BUCKETS_AT_ONCE):
        rows_compared.compare(KeyRange(), (plan.buckets, differing[first : first + BUCKETS_AT_ONCE]))
    return _result(sums, len(plan.ranges) if compared else 0, rows_compared, compared)


class _RowsCompared:
    """The differences of rows that are compared one by one. `complete`: no row of the parts was left out."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.differences: list[Difference] = []
        self.complete = True

    def compare(self, keys: KeyRange, buckets: tuple[int, Sequence[int]] | None = None) -> None:
        """Compare the first rows of both sides in this range, or in these buckets.

        Each side returns at most KEYS_NAMED rows, in key order. If a side has returned so many, keys after its last one
        are left out, because nobody knows whether this side has them.
        """
        sides = self._sides
        settings, widths = sides.source.settings, sides.source.double_widths
        with sides.spent.counted():
            if hides_values(sides.schema):
                source_rows = SourceRows(settings, sides.schema, keys, widths).row_checksums(KEYS_NAMED, buckets)
            else:
                source_rows = source_side.row_checksums(settings, sides.schema, keys, KEYS_NAMED, buckets)
        target_rows = sides.copy.row_checksums(keys, buckets, KEYS_NAMED)
        found = differences(source_rows, target_rows)
        target_keys = [key for key, _ in target_rows]
        # the last key of each side that has returned as many rows as it may
        cut_at = [max(side) for side in (list(source_rows), target_keys) if len(side) >= KEYS_NAMED]
        self.differences += [each for each in found if not cut_at or each.key <= min(cut_at)]
        self.complete &= not cut_at


def _range_sums(sides: Sides, chunks: Sequence[KeyRange], files: CopyFiles | None = None) -> dict[KeyRange, Pair]:
    """For each of the ranges `chunks`, the checksum of its rows in the source, and that in the target.

    `files`: read the target's checksums while the source computes its own.
    """
    in_source, in_target = _both_sums(sides, chunks, 0, None, files)  # all rows of a range are in bucket 0
    if in_target is None:
        in_target = sides.copy.sums(chunks, 0, None)
    empty = Checksum()
    return {keys: (in_source[number].get(0, empty), in_target.get(number, empty)) for number, keys in enumerate(chunks)}


def _both_sums(
    sides: Sides,
    chunks: Sequence[KeyRange],
    buckets: int,
    numbers: Sequence[int] | None,
    files: CopyFiles | None,
) -> tuple[list[dict[int, Checksum]], dict[int, Checksum] | None]:
    """For each of the ranges `chunks`, the source's checksum of each bucket; and the checksums of the target.

    The target's are by the number of the bucket or, if `buckets` is 0, of the range. They are None without `files`, or
    if only Spark can read them. `numbers`: the buckets; None: all of them.
    """
    settings, widths = sides.source.settings, sides.source.double_widths
    # without buckets, all rows of a range are in one bucket
    tasks = [ChecksumRange(settings, sides.schema, keys, max(1, buckets), numbers, widths) for keys in chunks]

    def read_range(task: ChecksumRange) -> dict[int, Checksum]:
        """Do the task, then tell `on_range` how many rows the range has."""
        found = task.run()
        sides.on_range(sum(checksum.rows for checksum in found.values()))
        return found

    def sum_source() -> list[dict[int, Checksum]]:
        """Do all tasks, and count the time."""
        with sides.spent.counted():
            return side_by_side(read_range, tasks, sides.connections)  # in threads, which wait for the server

    if files is None:
        return sum_source(), None
    return files.sums_beside(chunks, buckets, sum_source)


def _cut_finest(sides: Sides, chunk: KeyRange) -> list[KeyRange]:
    """Cut a chunk into ranges of FINEST_ROWS rows. The source's time for this counts."""
    with sides.spent.counted():
        return cut_range(sides.source, sides.schema, chunk, FINEST_ROWS)


def cut_range(source: Source, schema: TableSchema, keys: KeyRange, rows: int) -> list[KeyRange]:
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
    source = sum((in_source for in_source, _ in sums.values()), Checksum())
    target = sum((in_target for _, in_target in sums.values()), Checksum())
    return Compared(source, target, chunks, tuple(rows.differences), rows.complete, tuple(compared))
