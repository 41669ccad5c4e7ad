"""Merges into an Iceberg table: old rows are found by their keys alone, and deleted by their position.

Only data files whose bounds include one of the changed keys are read, and only the key's columns of these files. An
executor returns pickled DataFiles, and the numbers of inserted, updated and deleted keys.
"""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask

from lakeingest.core.tables.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.lake.iceberg.files.data_files import (
    Positions,
    are_within,
    as_integers,
    bounds_of,
    by_path,
    deleted_rows,
    found_deletes,
    write_rows,
)
from lakeingest.lake.iceberg.files.kept_files import read_columns, read_positions
from lakeingest.lake.iceberg.storage.entry_fields import identity
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.target import Effects, Written
from lakeingest.rows import THREADS_ROWS

NO_EFFECTS = Effects(0, 0, 0)
NUMBER = "_lakeingest_number"  # a column of the candidates that `matches` gets: the numbers that it returns
_ROW = "_lakeingest_row"
_SORTED_ROWS = 50_000  # up to so many integers are sorted more quickly than two tables are joined


@dataclass(frozen=True, slots=True)
class IcebergMerger:
    """`lake.target.Merger` on the files of one snapshot.

    `files` are the data files that may have rows with changed keys, each with the files of deletes that apply to it.
    `takes_doubles`: a key may have several rows, which another tool has written; all of them are replaced.
    """

    table: TableFiles
    key: tuple[str, ...]
    files: tuple[FileScanTask, ...]
    takes_doubles: bool = False

    @property
    def looked_at(self) -> int:
        """The number of rows in the files."""
        return sum(task.file.record_count for task in self.files)

    def replace(self, changes: pa.Table) -> Written:
        """Find the old rows of the changed keys, and write their positions by `found_deletes`. Raises as `find`."""
        positions, effects = self.find(changes)
        return Written(pickle.dumps((found_deletes(self.table, positions, self._data_files), effects)))

    def write(self, rows: pa.Table) -> Written:
        """Write data files with the table's field ids and statistics.

        If `target.merge` is `statement`, but no statement can merge, callers give all changes, not only new rows. Then
        the deleted rows are left out here, unless a column of the copy marks deleted rows.
        """
        keeps_deleted = DELETED in self.table.metadata.schema().column_names
        if DELETED in rows.column_names and not keeps_deleted:
            rows = rows.filter(pc.invert(rows[DELETED])).drop(DELETED)
        return Written(pickle.dumps((write_rows(self.table, rows), NO_EFFECTS)))

    @property
    def _data_files(self) -> list[DataFile]:
        return [task.file for task in self.files]

    def find(self, changes: pa.Table) -> tuple[Positions, Effects]:
        """The positions of the old rows of the changed keys, and the effects of the changes. Nothing is written.

        Raises StateUnreadable if two old rows have the same key, and `takes_doubles` is False.
        """
        with storage_errors(self.table.location):
            positions, change_numbers = self._positions(changes)
        is_deleted = changes[DELETED].to_numpy()
        has_row = np.zeros(len(is_deleted), bool)  # for each change, whether an old row has its key
        has_row[change_numbers] = True
        is_doubled = has_row.sum() != len(change_numbers)
        if is_doubled and not self.takes_doubles:  # two old rows have the key of the same change
            raise StateUnreadable(f"{self.table.location} has a key twice; drop the table to copy it again")
        inserted, updated, deleted = ~is_deleted & ~has_row, ~is_deleted & has_row, is_deleted & has_row
        return positions, Effects(int(inserted.sum()), int(updated.sum()), int(deleted.sum()))

    def _positions(self, changes: pa.Table) -> tuple[Positions, "np.ndarray"]:
        """The positions of the old rows of the changed keys, and the index of each such row's change in `changes`."""
        # the changed keys, each with its index in `changes`
        numbered = changes.select(list(self.key)).append_column(NUMBER, pa.array(np.arange(changes.num_rows)))
        deletes = {identity(file): file for task in self.files for file in task.delete_files}  # each file once
        dead = by_path(read_positions(self.table, file) for file in deletes.values())
        positions: dict[str, np.ndarray] = {}
        change_numbers = [np.zeros(0, np.int64)]  # not an empty list, which cannot be concatenated
        for task in self.files:
            candidates = numbered.filter(self._may_have(task.file, numbered))
            if not candidates.num_rows:
                continue
            # all keys of the file, with the types of the changed keys; a deleted row of another tool may have NULL
            key_schema = pa.schema([candidates.field(name).with_nullable(True) for name in self.key])
            keys = read_columns(self.table, task.file, self.key).cast(key_schema)
            rows, numbers = matches(keys, candidates)
            is_living = ~np.isin(rows, deleted_rows(keys, task.file, dead))
            positions[task.file.file_path] = rows[is_living]
            change_numbers.append(numbers[is_living])
        return positions, np.concatenate(change_numbers)

    def _may_have(self, file: DataFile, changes: pa.Table) -> pa.ChunkedArray:
        """For each change, whether its first key column is within the file's bounds; True if these are unknown."""
        field = self.table.metadata.schema().find_field(self.key[0])
        return are_within(changes[self.key[0]], bounds_of(file, field))  # a key is never NULL


def matches(keys: pa.Table, candidates: pa.Table) -> "tuple[np.ndarray, np.ndarray]":
    """The rows of `keys` that equal the key of a candidate: their row numbers, ascending, and the candidates' NUMBERs.

    A key of one integer column is found by binary search if the integers ascend, as in files of a first copy, or are
    few and distinct. Otherwise the two tables are joined.
    """
    numbers = candidates[NUMBER].to_numpy()
    if keys.num_columns == 1 and (found := _search(keys[0], candidates[keys.column_names[0]])) is not None:
        rows, indexes = found
        return rows, numbers[indexes]
    numbered = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows)))
    in_threads = keys.num_rows + candidates.num_rows >= THREADS_ROWS
    joined = numbered.join(candidates, keys=keys.column_names, join_type="inner", use_threads=in_threads).sort_by(_ROW)
    return joined[_ROW].to_numpy(), joined[NUMBER].to_numpy()


def _search(keys: pa.ChunkedArray, wanted: pa.ChunkedArray) -> "tuple[np.ndarray, np.ndarray] | None":
    """The rows, ascending, of `keys` that equal a wanted value, and the index of that value in `wanted`.

    None if `keys` cannot be searched: they are no integers, have NULL or a value twice, or are many and do not ascend.
    """
    integers, wanted_integers = as_integers(keys), as_integers(wanted)
    if integers is None or wanted_integers is None or integers.type != wanted_integers.type or integers.null_count:
        return None
    ascending, values = integers.to_numpy(), wanted_integers.to_numpy()
    row_numbers = np.arange(len(ascending))
    if len(ascending) <= _SORTED_ROWS:
        row_numbers = np.argsort(ascending, kind="stable")
        ascending = ascending[row_numbers]
    if not (ascending[1:] > ascending[:-1]).all():  # the keys do not ascend, or one is there twice
        return None
    places = np.searchsorted(ascending, values)  # for each value, its index in `ascending`, if the value is there
    is_there = places < len(ascending)  # False: the value is greater than all keys
    is_there[is_there] = ascending[places[is_there]] == values[is_there]  # False: the key at this place is another
    rows = row_numbers[places[is_there]]
    order = np.argsort(rows, kind="stable")
    return rows[order], np.flatnonzero(is_there)[order]


def files_and_effects(merged: Iterable[Written]) -> tuple[list[Any], Effects]:
    """All files that mergers have written, and the sum of the effects that they have counted. `merged` is not empty."""
    parts = [pickle.loads(written) for written in merged]  # noqa: S301 - written by our own executors
    all_files = [file for files, _ in parts for file in files]
    counts = [(effects.inserted, effects.updated, effects.deleted) for _, effects in parts]
    return all_files, Effects(*map(sum, zip(*counts, strict=True)))  # each kind of number is summed up


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writes Parquet files with the table's field ids and statistics."""

    table: TableFiles

    def write(self, rows: pa.Table) -> Written:
        """Write the rows to new files. Returns pickled DataFiles."""
        return Written(pickle.dumps(write_rows(self.table, rows)))
