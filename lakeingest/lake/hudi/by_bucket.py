"""Groups rows and changes by the bucket of their key, for the commits that lakeingest writes itself."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakeingest.lake.hudi.base_files import RECORD
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.record_texts import record_texts


def by_bucket(rows: pa.Table, key: Sequence[str], record_key: Sequence[str], buckets: int) -> dict[int, pa.Table]:
    """The rows of each of `buckets` buckets, with RECORD. Raises Unfit as `record_texts`."""
    texts = record_texts(rows, key, record_key)
    return by_number(rows.append_column(RECORD, texts.keys), buckets_of(texts.parts, buckets))


def bucket_numbers(rows: pa.Table, key: Sequence[str], record_key: Sequence[str], buckets: int) -> np.ndarray:
    """The bucket of each row, of `buckets` buckets. Raises Unfit as `record_texts`."""
    return buckets_of(record_texts(rows, key, record_key).parts, buckets)


def by_number(rows: pa.Table, numbers: np.ndarray) -> dict[int, pa.Table]:
    """The rows of each number, in their present order."""
    order = np.argsort(numbers, kind="stable")
    distinct, starts = np.unique(numbers[order], return_index=True)
    ordered = rows.take(pa.array(order))
    ends = np.append(starts, len(ordered))[1:]
    return {int(n): ordered.slice(at, end - at) for n, at, end in zip(distinct, starts, ends, strict=True)}
