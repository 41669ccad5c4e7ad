"""Counts the effects of a merge on the rows of a commit, without Spark: only key columns and DELETED are read."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.core.tables.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.staged.changes import read_rows
from lakeingest.lake.staged.key_numbers import KeyNumbers
from lakeingest.lake.target import Effects


def effects_of(
    changes: Sequence[File],
    key: Sequence[str],
    rows: Iterable[File],
    merges: Iterable[Sequence[File]],
    *,
    keeps_deleted: bool,
) -> Effects:
    """The number of keys that a merge inserts, updates and deletes.

    `changes` are the files of the merge's changes, at least one, which have each key only once. `rows` are the files of
    the rows that the merge changes, and `merges` the files of earlier changes of these rows, the oldest merge first.
    All changes have the column DELETED. If the table keeps deleted rows (`keeps_deleted`), no change deletes a row.
    Raises StateUnreadable if two rows have the same changed key.
    """
    changed = pa.concat_tables(read_rows(file, [*key, DELETED]) for file in changes)
    keys = KeyNumbers(changed.select(list(key)))
    # Step 1: find the changed keys that are in the files of rows
    is_present = np.zeros(changed.num_rows, bool)  # for each change, whether a row has its key
    keys_by_file = (read_rows(file, key, in_threads=False) for file in rows)  # each file is read when it is needed
    found_rows = 0
    for _, _, numbers in keys.found_in(keys_by_file):
        is_present[numbers] = True
        found_rows += len(numbers)
    if found_rows > is_present.sum():
        raise StateUnreadable(
            f"{changes[0]} has the change of a key that is there twice; drop the table to copy it again"
        )
    # Step 2: apply the earlier merges in their order: each makes some of the changed keys present or absent
    for merge in merges:
        for found, indexes, numbers in keys.found_in(read_rows(file, [*key, DELETED]) for file in merge):
            # afterwards a row has the key, unless the earlier change deletes the row
            is_present[numbers] = True if keeps_deleted else ~found[DELETED].to_numpy()[indexes]
    # Step 3: count. A change that deletes a row which is not present has no effect
    is_delete = np.zeros(changed.num_rows, bool) if keeps_deleted else changed[DELETED].to_numpy()
    return Effects(
        inserted=int((~is_delete & ~is_present).sum()),
        updated=int((~is_delete & is_present).sum()),
        deleted=int((is_delete & is_present).sum()),
    )


def rows_in(data_files: Iterable[File]) -> int:
    """The number of rows of these files."""
    return sum(files.parquet_metadata(file).num_rows for file in data_files)
