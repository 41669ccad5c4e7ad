"""Readers, on executors, of columns of the rows of a snapshot."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from lakeingest.lake.iceberg.files.data_files import Positions, living_batches, read_deletes
from lakeingest.lake.iceberg.files.kept_files import read_living
from lakeingest.lake.iceberg.files.scan_plan import NotByPosition, files_with
from lakeingest.lake.iceberg.storage.entry_fields import identity
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.target import Bounds

_ROWS = 1_000_000  # a task reads files of about as many rows
_SHARED_ROWS = 200_000  # as _ROWS, for the tasks of `batch_readers`


@dataclass(frozen=True, slots=True)
class IcebergRows:
    """`lake.target.RowReader` and `BatchReader` on some files of one snapshot."""

    table: TableFiles
    names: tuple[str, ...]
    files: tuple[FileScanTask, ...]

    def read(self) -> pa.Table:
        """The columns of the rows that are not deleted."""
        with storage_errors(self.table.location):
            dead = functools.cache(self._dead)  # the deletes are read once, and only if a file's rows are not kept
            return pa.concat_tables(read_living(self.table, task, self.names, dead) for task in self.files)

    def batches(self) -> Iterator[pa.Table]:
        """The columns of the rows that are not deleted, a part at a time."""
        with storage_errors(self.table.location):
            dead = self._dead()
            for task in self.files:
                yield from living_batches(self.table, task.file, self.names, dead)

    def _dead(self) -> Positions:
        """The positions of the deleted rows of all these files. The files of deletes are read."""
        deletes = {identity(file): file for task in self.files for file in task.delete_files}  # each file once
        return read_deletes(self.table, deletes.values())


def batch_readers(
    loaded: Table, version: int, names: Sequence[str], bounds: Bounds | None = None, flag: str = ""
) -> list[IcebergRows] | None:
    """Readers of the columns `names` of a snapshot's rows, in tasks so small that a few processors share them.

    `bounds` limit the first of the columns: files without rows within `bounds` are left out. Files in which the boolean
    column `flag` is nowhere true are left out, too.

    None if someone's deletes are not by position, or if one of the columns was added with a value for old rows: that
    value is in no file.
    """
    schema = loaded.schema()
    if any(schema.find_field(name).initial_default is not None for name in names):
        return None
    try:
        return row_readers(loaded, version, names, bounds, _SHARED_ROWS, flag)
    except NotByPosition:
        return None


def row_readers(
    loaded: Table,
    version: int,
    names: Sequence[str],
    bounds: Bounds | None,
    most_rows: int = _ROWS,
    flag: str = "",
) -> list[IcebergRows]:
    """Readers of the columns `names`, which together read all files that may have rows within `bounds`.

    `bounds` limit the first of these columns. If `bounds` is None, the readers read all files of the snapshot. The list
    is empty if no file may have rows within `bounds`. A reader reads files of about `most_rows` rows. Files in which
    the boolean column `flag` is nowhere true are left out. Raises as `files_with`.
    """
    groups: list[list[FileScanTask]] = []
    group_rows = most_rows  # so that the first file begins a group
    for task in files_with(loaded, version, names[0], bounds, flag):
        if group_rows >= most_rows:
            groups.append([])
            group_rows = 0
        groups[-1].append(task)
        group_rows += task.file.record_count
    files = TableFiles.of(loaded)
    return [IcebergRows(files, tuple(names), tuple(group)) for group in groups]
