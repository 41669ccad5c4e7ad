"""Merges into an Iceberg table: old rows are found by their keys alone, and deleted by their position.

Only data files whose bounds include one of the changed keys are read, and only the key's columns of these files. An
executor returns pickled DataFiles, and the numbers of inserted, updated and deleted keys.
"""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from lakeingest.core.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.lake.iceberg.data_files import (
    Positions,
    bounds_of,
    deleted_rows,
    read_deletes,
    read_rows,
    write_deletes,
    write_rows,
)
from lakeingest.lake.iceberg.errors import storage_errors
from lakeingest.lake.iceberg.metadata import TableFiles
from lakeingest.lake.target import Bounds, Effects, Written

NO_EFFECTS = Effects(0, 0, 0)
_ROW, _NUMBER = "_lakeingest_row", "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class IcebergMerger:
    """`lake.target.Merger` on the files of one snapshot.

    `files` are the data files that may have rows with changed keys, each with the files of deletes that apply to it.
    """

    table: TableFiles
    key: tuple[str, ...]
    files: tuple[FileScanTask, ...]

    @property
    def looked_at(self) -> int:
        """The number of rows in the files."""
        return sum(task.file.record_count for task in self.files)

    def replace(self, changes: pa.Table) -> Written:
        """Write the positions of the old rows of these keys to a file of deletes. A key has one row at most."""
        positions, effects = self.find(changes)
        return Written(pickle.dumps((write_deletes(self.table, positions), effects)))

    def write(self, rows: pa.Table) -> Written:
        """Write data files with the table's field ids and statistics.

        If `target.merge` is `statement`, but no statement can merge, callers give all changes, not only new rows. Then
        the deleted rows are left out here, unless a column of the copy marks deleted rows.
        """
        keeps_deleted = DELETED in self.table.metadata.schema().column_names
        if DELETED in rows.column_names and not keeps_deleted:
            rows = rows.filter(pc.invert(rows[DELETED])).drop(DELETED)
        return Written(pickle.dumps((write_rows(self.table, rows), NO_EFFECTS)))

    def find(self, changes: pa.Table) -> tuple[Positions, Effects]:
        """The positions of the old rows of these keys, and the effects of the changes.

        Raises StateUnreadable if two rows have the same key.
        """
        with storage_errors(self.table.location):
            positions, change_numbers = self._positions(changes)
        is_deleted = changes[DELETED].to_numpy()
        has_row = np.zeros(len(is_deleted), bool)  # for each change, whether an old row has its key
        has_row[change_numbers] = True
        if has_row.sum() != len(change_numbers):  # two old rows have the key of the same change
            raise StateUnreadable(f"{self.table.location} has a key twice; drop the table to copy it again")
        inserted, updated, deleted = ~is_deleted & ~has_row, ~is_deleted & has_row, is_deleted & has_row
        return positions, Effects(int(inserted.sum()), int(updated.sum()), int(deleted.sum()))

    def _positions(self, changes: pa.Table) -> tuple[Positions, "np.ndarray"]:
        """The positions of the old rows of the changed keys, and the index of each such row's change in `changes`."""
        # the changed keys, each with its index in `changes`
        numbered = changes.select(list(self.key)).append_column(_NUMBER, pa.array(np.arange(changes.num_rows)))
        deletes = {file.file_path: file for task in self.files for file in task.delete_files}  # each file once
        dead = read_deletes(self.table, deletes.values())
        positions: dict[str, np.ndarray] = {}
        change_numbers = [np.zeros(0, np.int64)]  # not an empty list, which cannot be concatenated
        for task in self.files:
            candidates = numbered.filter(self._may_have(task.file, numbered))
            if not candidates.num_rows:
                continue
            # all keys of the file, with the types of the changed keys
            key_schema = pa.schema([candidates.field(name) for name in self.key])
            keys = read_rows(self.table, task.file, self.key).cast(key_schema)
            rows, numbers = matches(keys, candidates)
            is_living = ~np.isin(rows, deleted_rows(keys, task.file, dead))
            positions[task.file.file_path] = rows[is_living]
            change_numbers.append(numbers[is_living])
        return positions, np.concatenate(change_numbers)

    def _may_have(self, file: DataFile, changes: pa.Table) -> pa.ChunkedArray:
        """For each change, whether its key is within the bounds of the file; True if the bounds are unknown."""
        field = self.table.metadata.schema().find_field(self.key[0])
        column = changes[self.key[0]]
        bounds = bounds_of(file, field)
        if bounds is None:
            return pc.is_valid(column)  # True for every change: a key is never NULL
        lower, upper = (pa.scalar(end, column.type) for end in bounds)
        return pc.and_(pc.greater_equal(column, lower), pc.less_equal(column, upper))


def matches(keys: pa.Table, candidates: pa.Table) -> "tuple[np.ndarray, np.ndarray]":
    """The numbers of the rows of `keys` that are a candidate's key, ascending, and the candidate's _NUMBER of each.

    A single integer that ascends, as in files of a first copy, is searched for. Else the two tables are joined.
    """
    if keys.num_columns == 1 and pa.types.is_integer(keys.field(0).type) and not keys[0].null_count:
        ascending, wanted = keys[0].to_numpy(), candidates[keys.field(0).name].to_numpy()
        if (ascending[1:] > ascending[:-1]).all():
            at = np.searchsorted(ascending, wanted)  # for each candidate, the row that its key has if it is there
            is_there = at < len(ascending)
            is_there[is_there] = ascending[at[is_there]] == wanted[is_there]
            order = np.argsort(at[is_there], kind="stable")
            return at[is_there][order], candidates[_NUMBER].to_numpy()[is_there][order]
    numbered = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows)))
    joined = numbered.join(candidates, keys=keys.column_names, join_type="inner").sort_by(_ROW)
    return joined[_ROW].to_numpy(), joined[_NUMBER].to_numpy()


def files_with(loaded: Table, version: int, name: str, bounds: Bounds | None) -> tuple[FileScanTask, ...]:
    """The data files of a snapshot that may have rows whose value of the column `name` is within the bounds.

    Each comes with the files of deletes that apply to it. None for the bounds, or for one of them: no limit.
    """
    scan = loaded.scan(snapshot_id=version)
    lower, upper = bounds or (None, None)
    limits: list[tuple[Any, Any]] = [(GreaterThanOrEqual, lower), (LessThanOrEqual, upper)]
    for condition, bound in limits:
        if bound is not None:
            # PyIceberg converts a Decimal to the type of the column: an integer, or DECIMAL(20, 0)
            literal = Decimal(bound) if type(bound) is int else bound
            scan = scan.filter(condition(name, literal))
    return tuple(scan.plan_files())


def files_and_effects(merged: Iterable[Written]) -> tuple[list[Any], Effects]:
    """All files that mergers have written, and the sum of the effects that they have counted."""
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
