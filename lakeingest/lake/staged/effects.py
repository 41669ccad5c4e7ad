"""Counts the effects of a merge on the rows of a commit, without Spark: only key columns and DELETED are read."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.core.tables.change import DELETED
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
    """The number of keys that a merge inserts, updates and deletes.

    `changes` are the files of the merge's changes, at least one, which have each key only once. `rows` are the files of
    the rows that the merge changes, and `merges` the files of earlier changes of these rows, the oldest merge first.
    All changes have the column DELETED. If the table keeps deleted rows (`keeps_deleted`), no change deletes a row.
    Raises StateUnreadable if two rows have the same changed key.
    """
    changed = pa.concat_tables(read_rows(file, [*key, DELETED]) for file in changes)
    numbered = changed.select(list(key)).append_column(_NUMBER, pa.array(np.arange(changed.num_rows)))
    # Step 1: find the changed keys that are in the files of rows
    is_present = np.zeros(changed.num_rows, bool)  # for each change, whether a row has its key
    key_schema = numbered.schema.remove(len(key))  # without _NUMBER
    keys_by_file = (read_rows(file, key).cast(key_schema) for file in rows)  # each file is read when it is needed
    for keys in _in_larger_tables(keys_by_file, len(numbered)):
        numbers = _rows_with_changes(keys, numbered, key)[_NUMBER].to_numpy()
        is_twice_here = bool((np.bincount(numbers) > 1).any())
        if is_twice_here or is_present[numbers].any():  # or an earlier table has the same key
            raise StateUnreadable(
                f"{changes[0]} has the change of a key that is there twice; drop the table to copy it again"
            )
        is_present[numbers] = True
    # Step 2: apply the earlier merges in their order: each makes some of the changed keys present or absent
    for merge in merges:
        for file in merge:
            matches = _rows_with_changes(read_rows(file, [*key, DELETED]), numbered, key)
            numbers = matches[_NUMBER].to_numpy()
            # afterwards a row has the key, unless the earlier change deletes the row
            is_present[numbers] = True if keeps_deleted else ~matches[DELETED].to_numpy()
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


def _in_larger_tables(tables: Iterable[pa.Table], least: int) -> Iterator[pa.Table]:
    """Concatenate small tables to tables of at least `least` rows. The last table may have fewer rows.

    The caller joins each yielded table with `least` changes, and a join costs as much as its larger side.
    """
    group: list[pa.Table] = []
    for table in tables:
        group.append(table)
        if sum(map(len, group)) >= least:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)


def _rows_with_changes(rows: pa.Table, numbered: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key has a change in `numbered`, each with the _NUMBER of this change."""
    return rows.join(numbered, keys=list(key), join_type="inner")
