"""The copy's side of a comparison without Spark: tasks read the files of the copy.

They take a tenth of Spark's time: no session is started, and no row goes from a JVM to Python. A run proves ranges by
these files alone. `verify` lets Spark read the copy instead if one of these holds:

- Spark's tasks would not run on this machine;
- only a part of the chunks is compared, or the time is limited: Spark skips the files of other chunks;
- the format says that other readers are needed (`batch_readers`), or a file is not as lakeingest writes it.

For `verify`, Spark also reads the rows of chunks that differ, and names their keys.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.proofs.checksum import UINT64, Checksum
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import ForeignWrite, StateUnreadable
from lakeingest.lake.target import BatchReader
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.row_hashes import Widths, buckets_of, halves, texts_of
from lakeingest.spark.scatter import Workers, prepare, scatter

Result = TypeVar("Result")


def names_to_read(schema: TableSchema) -> tuple[str, ...]:
    """The columns of a copy that a comparison reads. The key is first, because bounds limit the first column."""
    names = tuple(dict.fromkeys((*schema.key, *schema.names)))
    return (*names, DELETED) if schema.keeps_deleted else names


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
        """Call `source`, while tasks compute the checksum of the rows of each chunk.

        Returns the result of `source`, and the checksums by the chunk's number. They are None if a file cannot be read.
        The chunks are `buckets` buckets or, if that is 0, the `ranges`. Rows in no chunk do not count. Chunks without
        rows are left out.
        """
        tasks = self._sum_tasks(ranges, buckets)
        job = BackgroundJob(self.workers, prepare(self.workers, FileSums.run, tasks, self.at_once))
        try:
            in_source = source()
            try:
                parts = job.result()
            except (StateUnreadable, ForeignWrite):  # another reader may read the file, or raises its own error
                return in_source, None
        except BaseException:
            job.cancel()
            raise
        return in_source, _added(parts)

    def sums(self, ranges: Sequence[KeyRange], buckets: int, numbers: Sequence[int] | None) -> dict[int, Checksum]:
        """The checksums of chunks, as `comparison.CopySide` has them."""
        tasks = self._sum_tasks(ranges, buckets)
        sums = _added(scatter(self.workers, FileSums.run, tasks, self.at_once))
        return {number: checksum for number, checksum in sums.items() if numbers is None or number in numbers}

    def row_checksums(
        self, keys: KeyRange, buckets: tuple[int, Sequence[int]] | None, limit: int
    ) -> list[tuple[Key, Checksum]]:
        """The checksums of single rows, as `comparison.CopySide` has them."""
        tasks = [FileRows(reader, self.schema, self.widths, keys, buckets, limit) for reader in self.readers]
        parts = scatter(self.workers, FileRows.run, tasks, self.at_once)
        return sorted((row for part in parts for row in part), key=lambda row: row[0])[:limit]

    def with_keys(self, keys: Sequence[Key]) -> pa.Table | None:
        """The rows with these keys, as `comparison.CopySide` has them."""
        texts = frozenset(tuple(map(str, key)) for key in keys)
        tasks = [_FileKeys(reader, self.schema, self.widths, texts) for reader in self.readers]
        parts = [part for part in scatter(self.workers, _FileKeys.run, tasks, self.at_once) if part.num_rows]
        return pa.concat_tables(parts) if parts else None

    def _sum_tasks(self, ranges: Sequence[KeyRange], buckets: int) -> list["FileSums"]:
        """The tasks for all chunks, one for each reader. Buckets need no numbering of ranges."""
        numbering = Numbering((), {}) if buckets else Numbering.of(ranges)
        return [FileSums(reader, self.schema, self.widths, numbering, buckets) for reader in self.readers]


@dataclass(frozen=True, slots=True)
class Numbering:
    """Tells in which of several disjoint ranges a key is.

    `bounds` cut all keys into parts, in ascending order. `ranges`: by the number of a part, the number of its range.
    Parts that are in no range are left out.
    """

    bounds: tuple[Key, ...]
    ranges: Mapping[int, int]

    @classmethod
    def of(cls, ranges: Sequence[KeyRange]) -> "Numbering":
        """The numbering of these ranges: the number of a range is its index in the sequence."""
        bounds = sorted({bound for keys in ranges for bound in (keys.lower, keys.upper) if bound is not None})
        numbers: dict[int, int] = {}
        for number, keys in enumerate(ranges):
            # no bound is inside of a range, so each range is one part: the part that begins at the range's lower bound
            part = 0 if keys.lower is None else bounds.index(keys.lower) + 1
            numbers[part] = number
        return cls(tuple(bounds), numbers)


def _added(parts: Sequence[dict[int, Checksum]]) -> dict[int, Checksum]:
    """The sum of the checksums of each chunk, by its number, over all parts."""
    sums: dict[int, Checksum] = {}
    for part in parts:
        add(sums, part)
    return sums


def add(sums: dict[int, Checksum], more: dict[int, Checksum]) -> None:
    """Add to `sums` the checksums `more`, which are of other rows. Keys of both are numbers of chunks."""
    for number, checksum in more.items():
        sums[number] = sums.get(number, Checksum()) + checksum


def _living(reader: BatchReader, schema: TableSchema) -> Iterator[pa.Table]:
    """The rows that are not marked as deleted, a part at a time."""
    for batch in reader.batches():
        rows = batch.filter(pc.invert(batch[DELETED])) if schema.keeps_deleted else batch
        if rows.num_rows:
            yield rows


def _texts(rows: pa.Table, names: Sequence[str], schema: TableSchema, widths: Widths) -> list[pa.Array]:
    """The canonical texts of these columns."""
    columns = {column.name: column for column in schema.columns}
    return [texts_of(columns[name], rows[name].combine_chunks(), widths) for name in names]


@dataclass(frozen=True, slots=True)
class FileSums:
    """A task: the checksums of the rows of some files, by the number of their chunk.

    `numbering`: that of the ranges. `buckets`: the number of buckets; 0: the chunks are the ranges.
    """

    reader: BatchReader
    schema: TableSchema
    widths: Widths
    numbering: Numbering
    buckets: int

    def run(self) -> dict[int, Checksum]:
        """The checksums."""
        sums: dict[int, Checksum] = {}
        for rows in _living(self.reader, self.schema):
            add(sums, self._sums(rows))
        return sums

    def _sums(self, rows: pa.Table) -> dict[int, Checksum]:
        """The checksums of these rows, by the number of their chunk."""
        if self.buckets:
            numbers = buckets_of(_texts(rows, self.schema.key, self.schema, self.widths), self.buckets)
        else:
            parts = range_numbers([rows[name] for name in self.schema.key], self.numbering.bounds)
            numbered = np.full(len(self.numbering.bounds) + 1, -1)  # by part, the number of its range; -1: none
            for part, number in self.numbering.ranges.items():
                numbered[part] = number
            numbers = numbered[parts]
            if (numbers < 0).any():  # rows in no range are not hashed
                rows, numbers = rows.filter(pa.array(numbers >= 0)), numbers[numbers >= 0]
                if not rows.num_rows:
                    return {}
        left, right = (
            half.to_numpy()
            for half in halves(self.schema.columns, _texts(rows, self.schema.names, self.schema, self.widths))
        )
        order = np.argsort(numbers, kind="stable")  # the rows of one chunk come together
        distinct, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        xors = [np.bitwise_xor.reduceat(half[order], starts).tolist() for half in (left, right)]
        return {
            number: Checksum(count, one % UINT64, other % UINT64)  # `% UINT64` makes unsigned integers
            for number, count, one, other in zip(distinct.tolist(), counts.tolist(), *xors, strict=True)
        }


@dataclass(frozen=True, slots=True)
class FileRows:
    """A task: read the keys and checksums of the first `limit` rows, in key order, of a range or of buckets.

    The rows are those of some files. Rows with NULL in their key, which only a damaged copy has, are left out: they
    have no key that could be named.
    """

    reader: BatchReader
    schema: TableSchema
    widths: Widths
    keys: KeyRange
    buckets: tuple[int, Sequence[int]] | None
    limit: int

    def run(self) -> list[tuple[Key, Checksum]]:
        """The rows, in the order of their keys."""
        found: list[tuple[Key, Checksum]] = []
        for batch in _living(self.reader, self.schema):
            rows = batch.filter(pa.array(self._is_wanted(batch)))
            for name in self.schema.key:
                rows = rows.filter(pc.is_valid(rows[name]))
            if rows.num_rows:
                found += self._checksums(rows)
        return sorted(found, key=lambda row: row[0])[: self.limit]

    def _is_wanted(self, rows: pa.Table) -> np.ndarray:
        """For each row, whether its key is in the range or in one of the buckets."""
        if self.buckets is not None:
            count, numbers = self.buckets
            texts = _texts(rows, self.schema.key, self.schema, self.widths)
            return np.isin(buckets_of(texts, count), list(numbers))
        if self.keys == KeyRange():
            return np.ones(rows.num_rows, bool)
        numbering = Numbering.of([self.keys])
        parts = range_numbers([rows[name] for name in self.schema.key], numbering.bounds)
        return np.isin(parts, list(numbering.ranges))

    def _checksums(self, rows: pa.Table) -> list[tuple[Key, Checksum]]:
        """The key and the checksum of each row."""
        texts = _texts(rows, self.schema.names, self.schema, self.widths)
        left, right = (half.to_pylist() for half in halves(self.schema.columns, texts))
        parse = int if self.schema.ordered else str
        key_texts = zip(*(texts[self.schema.names.index(name)].to_pylist() for name in self.schema.key), strict=True)
        return [
            (tuple(map(parse, key)), Checksum(1, one % UINT64, other % UINT64))
            for key, one, other in zip(key_texts, left, right, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _FileKeys:
    """A task: the rows of some files whose key has one of these canonical texts."""

    reader: BatchReader
    schema: TableSchema
    widths: Widths
    texts: frozenset[tuple[str, ...]]

    def run(self) -> pa.Table:
        """The rows, with the columns of the table."""
        parts = [pa.table({})]  # the result if no row is found
        for rows in _living(self.reader, self.schema):
            texts = _texts(rows, self.schema.key, self.schema, self.widths)
            is_wanted = [key in self.texts for key in zip(*(column.to_pylist() for column in texts), strict=True)]
            if any(is_wanted):
                parts.append(rows.filter(pa.array(is_wanted)).select(self.schema.names))
        return pa.concat_tables(parts[1:]) if len(parts) > 1 else parts[0]


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
