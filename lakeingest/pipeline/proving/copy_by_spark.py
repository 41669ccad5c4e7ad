"""The copy's side of a comparison, as Spark reads the copy: `comparison.CopySide`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeingest.core.proofs.checksum import Checksum
from lakeingest.core.tables.keys import Key, KeyRange, quote
from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.source import Source
from lakeingest.spark import checksum
from lakeingest.spark.collected import collected
from lakeingest.spark.ranges import ranges as numbered_ranges
from lakeingest.spark.ranges import within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_BYTES, BATCH_ROWS = 32 << 20, 10_000  # the most that Spark's Python workers get at once
RANGES_SOUGHT = 64  # the most ranges for which Spark gets a condition that lets it skip files


@dataclass(frozen=True)
class CopyBySpark:
    """The rows of a copy by Spark. `open_rows`: gives the rows; the first use starts Spark."""

    source: Source
    schema: TableSchema
    open_rows: Callable[[], "DataFrame"]

    @cached_property
    def rows(self) -> "DataFrame":
        """The rows of the copy."""
        return self.open_rows()

    @property
    def batch_rows(self) -> int:
        """How many rows Spark's Python workers get at once: about BATCH_BYTES, by the source's estimates.

        If the source does not know the size of the table, BATCH_ROWS, which is Spark's own default.
        """
        size = max(1, self.source.estimated_bytes(self.schema))
        fitting = BATCH_BYTES * self.source.estimated_rows(self.schema) // size
        return min(max(1, fitting), BATCH_ROWS)

    def sums(self, ranges: Sequence[KeyRange], buckets: int, numbers: Sequence[int] | None) -> dict[int, Checksum]:
        """The checksums of chunks, as `comparison.CopySide` has them."""
        rows = self._in_buckets(buckets, numbers) if buckets else self._in_ranges(ranges)
        with self._in_batches():
            return checksum.checksums(rows, self.schema, self.source.double_widths)

    def row_checksums(
        self, keys: KeyRange, buckets: tuple[int, Sequence[int]] | None, limit: int
    ) -> list[tuple[Key, Checksum]]:
        """The checksums of single rows, as `comparison.CopySide` has them."""
        rows = self.rows.where(keys.predicate(self.schema.key)) if buckets is None else self._in_buckets(*buckets)
        with self._in_batches():
            return checksum.row_checksums(rows, self.schema, limit, self.source.double_widths)

    def with_keys(self, keys: Sequence[Key]) -> pa.Table | None:
        """The rows with these keys, as `comparison.CopySide` has them."""
        rows = self.rows.select(*map(quote, self.schema.names))
        return collected(checksum.with_keys(rows, self.schema, keys))

    def _in_batches(self) -> AbstractContextManager[None]:
        """Inside the block, Spark's Python workers get at most `batch_rows` rows at once."""
        return checksum.batches_of(self.rows.sparkSession, self.batch_rows)

    def _in_buckets(self, count: int, numbers: Sequence[int] | None) -> "DataFrame":
        """The rows in the buckets with these numbers, each with the number of its bucket; None: in all buckets."""
        numbered = checksum.in_buckets(self.rows, self.schema, count)
        return numbered if numbers is None else numbered.where(numbered[checksum.NUMBER].isin(list(numbers)))

    def _in_ranges(self, ranges: Sequence[KeyRange]) -> "DataFrame":
        """The rows in these ranges, each with the number of its range."""
        key, rows = self.schema.key, self.rows  # first: if PySpark is missing, to open the rows says so
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

        are_all = ranges[0].lower is None and ranges[-1].upper is None
        if len(ranges) <= RANGES_SOUGHT and not are_all:  # the result is the same, but Spark skips files
            rows = rows.where(" OR ".join(f"({keys.predicate(key)})" for keys in ranges))
        tagged = [(keys, (number,)) for number, keys in enumerate(ranges)]
        numbered = numbered_ranges(rows, key, tagged, f"{checksum.NUMBER} int")
        return rows.join(F.broadcast(numbered), on=within(key), how="inner")
