"""What a merge will do to the rows of a commit, counted by reading key columns alone. It takes no Spark."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.core.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.staged.changes import read_rows
from lakeingest.lake.target import Effects

_NUMBER = "_lakeingest_number"


def effects_of(
    changes: Sequence[File],
    key: Sequence[str],
    rows: Iterable[File],
    merges: Iterable[Sequence[File]],
    *,
    keeps_deleted: bool,
) -> Effects:
    """How many keys the changes insert, update and delete, in the rows of these files under these earlier merges.

    All files of changes have DELETED, and each key once. Where the table keeps deleted rows, no change removes one.
    StateUnreadable where two rows have one of the keys.
    """
    wanted = pa.concat_tables(read_rows(file, [*key, DELETED]) for file in changes)
    numbered = wanted.select(list(key)).append_column(_NUMBER, pa.array(np.arange(wanted.num_rows)))
    is_present = np.zeros(wanted.num_rows, bool)
    for found in _in_groups(
        (read_rows(file, key).cast(numbered.schema.remove(len(key))) for file in rows), len(numbered)
    ):
        numbers = _matching(found, numbered, key)[_NUMBER].to_numpy()
        if is_present[numbers].any() or len(np.unique(numbers)) != len(numbers):
            raise StateUnreadable(
                f"{changes[0]} has the change of a key that is there twice; drop the table to copy it again"
            )
        is_present[numbers] = True
    for merge in merges:
        for file in merge:
            found = _matching(read_rows(file, [*key, DELETED]), numbered, key)
            is_present[found[_NUMBER].to_numpy()] = keeps_deleted or ~found[DELETED].to_numpy()
    gone = np.zeros(wanted.num_rows, bool) if keeps_deleted else wanted[DELETED].to_numpy()
    return Effects(*(int(one.sum()) for one in (~gone & ~is_present, ~gone & is_present, gone & is_present)))


def rows_in(found: Iterable[File]) -> int:
    """The number of rows of these files."""
    return sum(files.parquet_metadata(file).num_rows for file in found)


def _in_groups(found: Iterable[pa.Table], least: int) -> Iterator[pa.Table]:
    """Concatenate small tables until each has `least` rows, because a join costs as much as its larger side."""
    group: list[pa.Table] = []
    for one in found:
        group.append(one)
        if sum(map(len, group)) >= least:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)


def _matching(found: pa.Table, numbered: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows that have one of the keys, with its number."""
    return found.join(numbered, keys=list(key), join_type="inner")
