"""Comparison: the source's rows and the copy's rows of one table, by checksums that each side computes itself.

Rows are compared by ranges of keys. If only the server knows the order of the keys, Spark cannot tell which keys are
in a range. Then the source still reads range by range, but the compared sets are buckets of the keys' bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from lakeingest.config import Source as Settings
from lakeingest.core.checksum import Checksum, Difference, differences
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.schema import TableSchema
from lakeingest.mysql import checksum as source_side
from lakeingest.mysql.source import Source
from lakeingest.spark import checksum as target_side
from lakeingest.spark.ranges import ranges, within
from lakeingest.spark.scatter import scatter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK_ROWS = 50_000
FINEST_ROWS = 2_000  # a differing chunk is cut down to this before its rows are compared one by one
KEYS_NAMED = 10_000  # at most, of one chunk: the driver holds them

Pair = tuple[Checksum, Checksum]
Unit = TypeVar("Unit")  # a range of keys, or the number of a bucket


@dataclass(frozen=True, slots=True)
class Sides:
    """A table in the source, and the rows of its copy."""

    source: Source
    spark: "SparkSession"
    schema: TableSchema
    rows: "DataFrame"

    @property
    def widths(self) -> target_side.Widths:
        """The greatest lengths of a double's text in the source: `Source.double_widths`."""
        return self.source.double_widths


@dataclass(frozen=True, slots=True)
class Compared:
    """The checksums of both sides, the number of chunks of the source's checksum, and the keys that differ."""

    source: Checksum
    target: Checksum
    chunks: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class ChecksumRange:
    """The task of one executor: the source computes the checksums of a range, bucket by bucket."""

    source: Settings
    schema: TableSchema
    keys: KeyRange
    buckets: int

    def run(self) -> dict[int, Checksum]:
        """Ask the source."""
        return source_side.range_checksums(self.source, self.schema, self.keys, self.buckets)


def compare(sides: Sides) -> Compared:
    """Compare all rows. The keys of differing rows are named, up to KEYS_NAMED in each differing chunk."""
    chunks = _cut(sides, KeyRange(), CHUNK_ROWS)
    return _by_range(sides, chunks) if sides.schema.ordered else _by_bucket(sides, chunks)


def _by_range(sides: Sides, chunks: Sequence[KeyRange]) -> Compared:
    """Compare chunks; then smaller ranges of the chunks that differ; then single rows of the ranges that differ."""
    sums = _range_sums(sides, chunks)
    finer = [part for keys in _differing(sums) for part in _cut(sides, keys, FINEST_ROWS)]
    differing_rows: list[Difference] = []
    for keys in _differing(_range_sums(sides, finer)) if finer else ():
        in_source = source_side.row_checksums(sides.source.settings, sides.schema, keys, KEYS_NAMED)
        rows = sides.rows.where(keys.predicate(sides.schema.key))
        in_target = target_side.row_checksums(rows, sides.schema, KEYS_NAMED, sides.widths)
        differing_rows += differences(in_source, in_target)
    return _compared(sums, len(chunks), differing_rows)


def _by_bucket(sides: Sides, chunks: Sequence[KeyRange]) -> Compared:
    """Compare buckets of the keys' bytes, then single rows of the buckets that differ."""
    count = len(chunks) * CHUNK_ROWS // FINEST_ROWS
    ours: dict[int, Checksum] = {}
    for part in _source_sums(sides, chunks, count):
        for bucket, checksum in part.items():
            ours[bucket] = ours.get(bucket, Checksum()) + checksum
    numbered = target_side.in_buckets(sides.rows, sides.schema, count)
    theirs = target_side.checksums(numbered, sides.schema, sides.widths)
    sums = {
        bucket: (ours.get(bucket, Checksum()), theirs.get(bucket, Checksum())) for bucket in ours.keys() | theirs.keys()
    }
    differing_rows: list[Difference] = []
    if differing := sorted(_differing(sums)):
        buckets = count, differing
        in_source = source_side.row_checksums(sides.source.settings, sides.schema, KeyRange(), KEYS_NAMED, buckets)
        rows = numbered.where(numbered[target_side.NUMBER].isin(differing))
        in_target = target_side.row_checksums(rows, sides.schema, KEYS_NAMED, sides.widths)
        differing_rows += differences(in_source, in_target)
    return _compared(sums, len(chunks), differing_rows)


def _range_sums(sides: Sides, chunks: Sequence[KeyRange]) -> dict[KeyRange, Pair]:
    """The source's and the target's checksum of each range."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    ours = _source_sums(sides, chunks, 1)
    tagged = [(keys, (number,)) for number, keys in enumerate(chunks)]
    numbers = ranges(sides.rows, sides.schema.key, tagged, f"{target_side.NUMBER} int")
    numbered = sides.rows.join(F.broadcast(numbers), on=within(sides.schema.key), how="inner")
    theirs = target_side.checksums(numbered, sides.schema, sides.widths)
    none = Checksum()
    return {keys: (ours[number].get(0, none), theirs.get(number, none)) for number, keys in enumerate(chunks)}


def _source_sums(sides: Sides, chunks: Sequence[KeyRange], buckets: int) -> list[dict[int, Checksum]]:
    """The source's checksums of each chunk, by the number of the bucket."""
    tasks = [ChecksumRange(sides.source.settings, sides.schema, keys, buckets) for keys in chunks]
    spark = sides.spark if len(tasks) > 1 else None
    return scatter(spark, ChecksumRange.run, tasks, sides.source.settings.max_connections - 1)


def _cut(sides: Sides, keys: KeyRange, rows: int) -> list[KeyRange]:
    """Cut a range at every `rows` rows of the source."""
    bounds: list[Key | None] = [keys.lower]
    while (following := sides.source.next_boundary(sides.schema, bounds[-1], rows)) is not None:
        if keys.upper is not None and following >= keys.upper:
            break
        bounds.append(following)
    return [KeyRange(lower, upper) for lower, upper in pairwise([*bounds, keys.upper])]


def _differing(sums: dict[Unit, Pair]) -> list[Unit]:
    return [unit for unit, (ours, theirs) in sums.items() if ours != theirs]


def _compared(sums: dict[Unit, Pair], chunks: int, differing_rows: list[Difference]) -> Compared:
    ours, theirs = (sum((pair[side] for pair in sums.values()), Checksum()) for side in (0, 1))
    return Compared(ours, theirs, chunks, tuple(differing_rows))
