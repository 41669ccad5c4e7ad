"""What changes replace in an Iceberg table: rows are found by their keys alone, and deleted by their position.

Only data files whose bounds admit one of the keys are read, and of those only the key's columns. What an executor
writes is pickled DataFiles, and how many keys they are of.
"""

import pickle
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import PyArrowFileIO, _dataframe_to_data_files, _read_deletes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from lakeingest.core.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.lake.row_delta import write_deletes
from lakeingest.lake.storage import stored, unreadable
from lakeingest.lake.target import Effects

_PATH, _POS, _NUMBER = "file_path", "pos", "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class IcebergMerger:
    """`lake.target.Merger` on the files of one snapshot."""

    metadata: TableMetadata
    key: tuple[str, ...]
    files: tuple[FileScanTask, ...]
    keeps_deletes: bool = False

    def replace(self, changes: pa.Table) -> bytes:
        """Position deletes of the rows that have these keys; each key has one row at most."""
        with stored(self.metadata.location):
            places, numbers = self._find(changes)
            gone = changes[DELETED].to_numpy()
            there = np.zeros(len(gone), bool)
            there[numbers] = True
            if there.sum() != len(numbers):
                raise StateUnreadable(
                    f"{self.metadata.location}: a key is there twice; drop the table to copy it again"
                )
            effects = Effects(*(int(one.sum()) for one in (~gone & ~there, ~gone & there, gone & there)))
            files = [write_deletes(self.metadata, PyArrowFileIO(), places)] if places.num_rows else []
        return pickle.dumps((files, effects))

    def write(self, rows: pa.Table) -> bytes:
        """Data files with the table's field ids and statistics."""
        return pickle.dumps((write_rows(self.metadata, rows), Effects(0, 0, 0)))

    def _find(self, changes: pa.Table) -> tuple[pa.Table, "np.ndarray"]:
        """Where the rows with these keys stand, in order, and the number of the change of each."""
        numbered = changes.select(list(self.key)).append_column(_NUMBER, pa.array(np.arange(changes.num_rows)))
        dead = self._dead()
        tables, numbers = [], [np.zeros(0, np.int64)]
        for task in sorted(self.files, key=lambda task: task.file.file_path):
            near = numbered.filter(self._may_hold(task.file, numbered))
            if not near.num_rows:
                continue
            present = self._keys(task.file, numbered.schema)
            if gone := dead.get(task.file.file_path):
                alive = np.ones(present.num_rows, bool)
                alive[np.concatenate(gone)] = False
                present = present.filter(pa.array(alive))
            found = present.join(near, keys=list(self.key), join_type="inner").sort_by(_POS)
            paths = pa.repeat(task.file.file_path, found.num_rows)
            tables.append(pa.table({_PATH: paths, _POS: found[_POS]}))
            numbers.append(found[_NUMBER].to_numpy())
        nowhere = pa.table({_PATH: pa.array([], pa.string()), _POS: pa.array([], pa.int64())})
        return pa.concat_tables([nowhere, *tables]), np.concatenate(numbers)

    def _may_hold(self, file: DataFile, changes: pa.Table) -> pa.ChunkedArray:
        """Which changes are of a key between the least and the greatest of the file."""
        field = self.metadata.schema().find_field(self.key[0])
        column = changes[self.key[0]]
        ends = [(bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds)]
        least, greatest = (None if end is None else from_bytes(field.field_type, end) for end in ends)  # type: ignore[arg-type]
        if least is None or greatest is None:
            return pc.is_valid(column)
        lower, upper = (pa.scalar(end).cast(column.type) for end in (least, greatest))
        return pc.and_(pc.greater_equal(column, lower), pc.less_equal(column, upper))

    def _keys(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        """The keys of a file with the position of each."""
        named = sanitize_column_names(self.metadata.schema())
        ids = [self.metadata.schema().find_field(name).field_id for name in self.key]
        try:
            with PyArrowFileIO().new_input(file.file_path).open() as opened, pq.ParquetFile(opened) as parquet:
                table = parquet.read([named.find_column_name(number) for number in ids])
        except pa.ArrowInvalid as error:
            raise unreadable(file.file_path, str(error)) from error
        columns = [table.column(index).cast(schema.field(name).type) for index, name in enumerate(self.key)]
        return pa.table([*columns, pa.array(np.arange(table.num_rows))], [*self.key, _POS])

    def _dead(self) -> dict[str, list["np.ndarray"]]:
        """By file, the positions that are deleted already."""
        wanted = {task.file.file_path for task in self.files}
        deletes = {one.file_path: one for task in self.files for one in task.delete_files}
        found = defaultdict(list)
        for delete in deletes.values():
            for path, positions in _read_deletes(PyArrowFileIO(), delete).items():
                if path in wanted:
                    found[path].append(positions.to_numpy())
        return found


def files_with(loaded: Table, version: int, name: str, least: int, greatest: int) -> tuple[FileScanTask, ...]:
    """The data files of a snapshot that may have rows whose value of this column is from `least` to `greatest`."""
    ends = GreaterThanOrEqual(name, Decimal(least)), LessThanOrEqual(name, Decimal(greatest))  # type: ignore[call-arg, arg-type]
    condition = And(*ends)
    return tuple(loaded.scan(snapshot_id=version, row_filter=condition).plan_files())


def write_rows(metadata: TableMetadata, rows: pa.Table) -> list[DataFile]:
    """Parquet files of the table. Every call names its own, so a retried or speculative task harms nobody."""
    if not rows.num_rows:  # PyIceberg divides by their number
        return []
    target = metadata.schema().as_arrow()
    columns = [rows[field.name].cast(field.type) for field in target]
    with stored(metadata.location):
        return list(_dataframe_to_data_files(metadata, pa.table(columns, schema=target), PyArrowFileIO()))


def written(merged: Iterable[bytes]) -> tuple[list[bytes], Effects]:
    """What mergers have written: pickled files, and all effects."""
    parts = [pickle.loads(one) for one in merged]  # noqa: S301 - written by our own executors
    counts = [(one.inserted, one.updated, one.deleted) for _, one in parts]
    return [pickle.dumps(files) for files, _ in parts], Effects(*map(sum, zip(*counts, strict=True)))
