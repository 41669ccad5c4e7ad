"""Groups rows and changes by the bucket of their key, for the commits that lakeingest writes itself."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parsed
from lakeingest.lake.hudi.base_files import RECORD
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.record_texts import record_texts

_NUMBER = "_lakeingest_number"


def by_bucket(rows: pa.Table, key: Sequence[str], record_key: Sequence[str], buckets: int) -> dict[int, pa.Table]:
    """The rows of each of so many buckets, with RECORD; Unfit as `record_texts`."""
    texts = record_texts(rows, key, record_key)
    return by_number(rows.append_column(RECORD, texts.keys), buckets_of(texts.parts, buckets))


def bucket_numbers(rows: pa.Table, key: Sequence[str], record_key: Sequence[str], buckets: int) -> np.ndarray:
    """The bucket of each row, of so many; Unfit as `record_texts`."""
    return buckets_of(record_texts(rows, key, record_key).parts, buckets)


def by_number(rows: pa.Table, numbers: np.ndarray) -> dict[int, pa.Table]:
    """The rows of each number, in the order that they have."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    ordered = rows.take(pa.array(order))
    ends = np.append(starts, len(ordered))[1:]
    return {int(n): ordered.slice(at, end - at) for n, at, end in zip(found, starts, ends, strict=True)}


def last_changes(merges: Sequence[Sequence[File]], key: Sequence[str]) -> pa.Table | None:
    """The last change of each key in the files of these merges, the oldest merge first; None without merges."""
    found = [read_rows(file) for merge in merges for file in merge]
    if not found:
        return None
    changes = pa.concat_tables(found)
    if len(merges) == 1:  # one merge has one change of a key
        return changes
    numbered = changes.select(list(key)).append_column(_NUMBER, pa.array(np.arange(len(changes))))
    return changes.take(numbered.group_by(list(key)).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"])


def read_rows(file: File, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file of staging; StateUnreadable where it is damaged."""
    with parsed(str(file)), files.parquet(file) as opened:
        return opened.read(None if columns is None else list(columns))


def read_all_rows(found: Iterable[File]) -> pa.Table:
    """The rows of these files of staging, in which a column may be missing that the source has dropped."""
    return pa.concat_tables((read_rows(file) for file in found), promote_options="default")


def in_groups(found: Iterable[File], size: int) -> list[list[File]]:
    """The files in groups of about so many bytes."""
    groups: list[list[File]] = []
    filled = size
    for file in found:
        if filled >= size:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += file.size()
    return groups
