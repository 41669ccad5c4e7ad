"""The copy's side of a comparison without Spark: worker processes of this machine read the files of the copy.

They take a tenth of Spark's time: no session is started, and no row goes from a JVM to Python. Spark reads the copy
instead if one of these holds:

- Spark's tasks would not run on this machine;
- only a part of the chunks is compared, or the time is limited: Spark skips the files of other chunks;
- the format says that other readers are needed (`batch_readers`), or a file is not as lakeingest writes it.

Spark also reads the rows of chunks that differ, and names their keys.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.change import DELETED
from lakeingest.core.checksum import UINT64, Checksum
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.schema import TableSchema
from lakeingest.errors import ForeignWrite, StateUnreadable
from lakeingest.lake.target import BatchReader
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.row_hashes import Widths, buckets_of, halves, texts_of
from lakeingest.spark.scatter import Workers, prepare

Result = TypeVar("Result")


def names_to_read(schema: TableSchema) -> tuple[str, ...]:
    """The columns of a copy that a comparison reads."""
    return (*schema.names, DELETED) if schema.keeps_deleted else schema.names


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """The files of a copy, and who reads them: `readers` give the columns `names_to_read`, in tasks of `workers`.

    `at_once`: the most tasks at a time.
    """

    readers: Sequence[BatchReader]
    schema: TableSchema
    widths: Widths
    workers: Workers
    at_once: int

    def sums_beside(
        self, ranges: Sequence[KeyRange], buckets: int, source: Callable[[], Result]
    ) -> tuple[Result, dict[int, Checksum] | None]:
        """The result of `source`, and meanwhile the checksum of the rows of each chunk, by the chunk's number.

        The chunks are `buckets` buckets or, if that is 0, the `ranges`, which together have all keys. Chunks without
        rows are left out. The checksums are None if only Spark can read a file.
        """
        lowers = tuple(keys.lower for keys in ranges[1:] if keys.lower is not None)
        tasks = [_FileSums(reader, self.schema, self.widths, lowers, buckets) for reader in self.readers]
        job = BackgroundJob(self.workers, prepare(self.workers, _FileSums.run, tasks, self.at_once))
        try:
            in_source = source()
            try:
                parts = job.result()
            except (StateUnreadable, ForeignWrite):  # of a file: Spark may read it, or raises its own error
                return in_source, None
        except BaseException:
            job.cancel()
            raise
        sums: dict[int, Checksum] = {}
        for part in parts:
            add(sums, part)
        return in_source, sums


def add(sums: dict[int, Checksum], more: dict[int, Checksum]) -> None:
    """Add the checksums of other rows, by the number of their chunk."""
    for number, checksum in more.items():
        sums[number] = sums.get(number, Checksum()) + checksum


@dataclass(frozen=True, slots=True)
class _FileSums:
    """A task: the checksums of the rows of some files, by the number of their chunk.

    `lowers`: the lower bounds of all ranges but the first, ascending. `buckets`: the number of buckets; 0: by ranges.
    """

    reader: BatchReader
    schema: TableSchema
    widths: Widths
    lowers: tuple[Key, ...]
    buckets: int

    def run(self) -> dict[int, Checksum]:
        """The checksums."""
        sums: dict[int, Checksum] = {}
        for batch in self.reader.batches():
            rows = batch.filter(pc.invert(batch[DELETED])) if self.schema.keeps_deleted else batch
            if rows.num_rows:
                add(sums, self._sums(rows))
        return sums

    def _sums(self, rows: pa.Table) -> dict[int, Checksum]:
        texts = {
            column.name: texts_of(column, rows[column.name].combine_chunks(), self.widths)
            for column in self.schema.columns
        }
        left, right = (half.to_numpy() for half in halves(self.schema.columns, list(texts.values())))
        if self.buckets:
            numbers = buckets_of([texts[name] for name in self.schema.key], self.buckets)
        else:
            numbers = range_numbers([rows[name] for name in self.schema.key], self.lowers)
        order = np.argsort(numbers, kind="stable")  # the rows of one chunk come together
        distinct, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        xors = [np.bitwise_xor.reduceat(half[order], starts).tolist() for half in (left, right)]
        return {
            number: Checksum(count, one % UINT64, other % UINT64)  # `% UINT64` makes unsigned integers
            for number, count, one, other in zip(distinct.tolist(), counts.tolist(), *xors, strict=True)
        }


def range_numbers(key: Sequence[pa.ChunkedArray], lowers: Sequence[Key]) -> np.ndarray:
    """For each key, the number of its range: how many of the bounds `lowers`, which ascend, are not above it.

    `key`: the columns of integers. A key with NULL, which only a damaged copy has, is in the first range.
    """
    if len(key) == 1 and not key[0].null_count and (values := _numbers(key[0])) is not None:
        bounds = np.array([bound for (bound,) in lowers], values.dtype)
        return np.asarray(np.searchsorted(bounds, values, side="right"))
    keys = zip(*(column.to_pylist() for column in key), strict=True)
    return np.array([0 if None in values else bisect_right(lowers, tuple(map(int, values))) for values in keys])


def _numbers(values: pa.ChunkedArray) -> np.ndarray | None:
    """Integers, or decimals without a fraction, as machine integers; None if a decimal is below 0 or too large."""
    kind = pa.int64() if pa.types.is_signed_integer(values.type) else pa.uint64()
    try:
        return np.asarray(values.cast(kind).to_numpy())
    except pa.ArrowInvalid:
        return None
