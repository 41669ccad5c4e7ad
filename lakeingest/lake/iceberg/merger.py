"""Merges into an Iceberg table: old rows are found by their keys alone, and deleted by their position.

Only data files whose bounds include one of the keys are read, and of those only the key's columns. An executor answers
pickled DataFiles, and how many keys it inserted, updated and deleted.
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
    alive,
    bounds_of,
    read_deletes,
    read_rows,
    write_deletes,
    write_rows,
)
from lakeingest.lake.iceberg.errors import storage_errors
from lakeingest.lake.iceberg.metadata import TableFiles
from lakeingest.lake.target import Bounds, Effects, Written

NO_EFFECTS = Effects(0, 0, 0)
_POS, _NUMBER = "_lakeingest_pos", "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class IcebergMerger:
    """`lake.target.Merger` on the files of one snapshot."""

    table: TableFiles
    key: tuple[str, ...]
    files: tuple[FileScanTask, ...]

    def replace(self, changes: pa.Table) -> Written:
        """Position deletes of the rows with these keys; each key has at most one row."""
        places, effects = self.find(changes)
        return Written(pickle.dumps((write_deletes(self.table, places), effects)))

    def write(self, rows: pa.Table) -> Written:
        """Data files with the table's field ids and statistics.

        Of changes, which a target that merges by statements is given, only the new rows.
        """
        if DELETED in rows.column_names and DELETED not in self.table.metadata.schema().column_names:
            rows = rows.filter(pc.invert(rows[DELETED])).drop(DELETED)
        return Written(pickle.dumps((write_rows(self.table, rows), NO_EFFECTS)))

    def find(self, changes: pa.Table) -> tuple[Positions, Effects]:
        """The places of the rows with these keys, and what the changes do; StateUnreadable for a key with two rows."""
        with storage_errors(self.table.location):
            places, numbers = self._places(changes)
        gone = changes[DELETED].to_numpy()
        is_present = np.zeros(len(gone), bool)
        is_present[numbers] = True
        if is_present.sum() != len(numbers):
            raise StateUnreadable(f"{self.table.location} has a key twice; drop the table to copy it again")
        counts = (int(one.sum()) for one in (~gone & ~is_present, ~gone & is_present, gone & is_present))
        return places, Effects(*counts)

    def _places(self, changes: pa.Table) -> tuple[Positions, "np.ndarray"]:
        """The positions of the rows with these keys, and the numbers of their changes."""
        numbered = changes.select(list(self.key)).append_column(_NUMBER, pa.array(np.arange(changes.num_rows)))
        deletes = {file.file_path: file for task in self.files for file in task.delete_files}
        dead = read_deletes(self.table, deletes.values())
        places: dict[str, np.ndarray] = {}
        numbers = [np.zeros(0, np.int64)]
        for task in self.files:
            near = numbered.filter(self._may_hold(task.file, numbered))
            if not near.num_rows:
                continue
            keys = read_rows(self.table, task.file, self.key).cast(pa.schema([near.field(name) for name in self.key]))
            present = alive(keys.append_column(_POS, pa.array(np.arange(keys.num_rows))), task.file, dead)
            found = present.join(near, keys=list(self.key), join_type="inner").sort_by(_POS)
            places[task.file.file_path] = found[_POS].to_numpy()
            numbers.append(found[_NUMBER].to_numpy())
        return places, np.concatenate(numbers)

    def _may_hold(self, file: DataFile, changes: pa.Table) -> pa.ChunkedArray:
        """Which changes have a key between the bounds of the file."""
        field = self.table.metadata.schema().find_field(self.key[0])
        column = changes[self.key[0]]
        bounds = bounds_of(file, field)
        if bounds is None:
            return pc.is_valid(column)
        lower, upper = (pa.scalar(end, column.type) for end in bounds)
        return pc.and_(pc.greater_equal(column, lower), pc.less_equal(column, upper))


def files_with(loaded: Table, version: int, name: str, bounds: Bounds | None) -> tuple[FileScanTask, ...]:
    """The data files of a snapshot that may have rows with a value of this column within the bounds."""
    scan = loaded.scan(snapshot_id=version)
    for side, end in zip((GreaterThanOrEqual, LessThanOrEqual), bounds or (), strict=False):
        if end is not None:
            scan = scan.filter(side(name, Decimal(end) if type(end) is int else end))
    return tuple(scan.plan_files())


def files_and_effects(merged: Iterable[Written]) -> tuple[list[Any], Effects]:
    """All files that mergers of one way have written, and the sum of their effects."""
    parts = [pickle.loads(one) for one in merged]  # noqa: S301 - written by our own executors
    counts = [(one.inserted, one.updated, one.deleted) for _, one in parts]
    return [file for files, _ in parts for file in files], Effects(*map(sum, zip(*counts, strict=True)))


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writes Parquet files with the table's field ids and statistics."""

    table: TableFiles

    def write(self, rows: pa.Table) -> Written:
        """Pickled DataFiles."""
        return Written(pickle.dumps(write_rows(self.table, rows)))
