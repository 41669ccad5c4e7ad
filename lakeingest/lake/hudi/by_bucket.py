"""Groups rows and changes by the bucket of their key, for the commits that lakeingest writes itself."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.lake.hudi.base_files import RECORD
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.partitions import by_partition
from lakeingest.lake.hudi.record_texts import record_texts


def rows_by_bucket(
    rows: pa.Table, key: Sequence[str], record_key: Sequence[str], buckets: int, threads: int = 1
) -> dict[int, pa.Table]:
    """The rows of each bucket that has any, with the column RECORD. `buckets` is the table's number of buckets.

    So many `threads` share the chunks of the rows. Raises Unfit as `record_texts`.
    """

    def divided(chunk: pa.RecordBatch) -> dict[int, pa.Table]:
        table = pa.Table.from_batches([chunk])
        texts = record_texts(table, key, record_key)
        return rows_by_number(table.append_column(RECORD, texts.keys), buckets_of(texts.parts, buckets))

    if threads == 1:
        return _joined(map(divided, rows.to_batches()))
    with ThreadPoolExecutor(threads) as pool:
        return _joined(pool.map(divided, rows.to_batches()))


def new_rows_by_partition(
    changes: pa.Table, fields: Sequence[PartitionField], *, keeps_deleted: bool
) -> dict[str, pa.Table]:
    """The rows that the changes put into each partition. `keeps_deleted`: a row that is DELETED stays in the table."""
    return by_partition(changes if keeps_deleted else changes.filter(pc.invert(changes[DELETED])), fields)


def bucket_numbers(rows: pa.Table, key: Sequence[str], record_key: Sequence[str], buckets: int) -> np.ndarray:
    """The bucket of each row. `buckets` is the table's number of buckets. Raises Unfit as `record_texts`."""
    return buckets_of(record_texts(rows, key, record_key).parts, buckets)


def rows_by_number(rows: pa.Table, numbers: np.ndarray) -> dict[int, pa.Table]:
    """The rows by their numbers. `numbers` has a number for each row. Rows of the same number keep their order."""
    order = np.argsort(numbers, kind="stable")
    ordered = rows.take(pa.array(order))  # now the rows of a number are one slice
    distinct, starts = np.unique(numbers[order], return_index=True)
    ends = np.append(starts, len(ordered))[1:]  # each slice ends where the next one starts
    slices = zip(distinct.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return {number: ordered.slice(start, end - start) for number, start, end in slices}


def _joined(parts: Iterable[Mapping[int, pa.Table]]) -> dict[int, pa.Table]:
    """The rows of each number, in the order of the parts."""
    slices: dict[int, list[pa.Table]] = {}
    for part in parts:
        for number, rows in part.items():
            slices.setdefault(number, []).append(rows)
    return {number: pa.concat_tables(tables) for number, tables in slices.items()}
