"""Readers, on executors, of columns of the rows of a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from lakeingest.lake.iceberg.data_files import drop_deleted, read_deletes, read_rows
from lakeingest.lake.iceberg.errors import storage_errors
from lakeingest.lake.iceberg.metadata import TableFiles
from lakeingest.lake.iceberg.scan_plan import files_with
from lakeingest.lake.target import Bounds

_ROWS = 1_000_000  # a task reads files of about as many rows


@dataclass(frozen=True, slots=True)
class IcebergRows:
    """`lake.target.RowReader` on some files of one snapshot."""

    table: TableFiles
    names: tuple[str, ...]
    files: tuple[FileScanTask, ...]

    def read(self) -> pa.Table:
        """The columns of the rows that are not deleted."""
        with storage_errors(self.table.location):
            deletes = {file.file_path: file for task in self.files for file in task.delete_files}  # each file once
            dead = read_deletes(self.table, deletes.values())
            return pa.concat_tables(
                drop_deleted(read_rows(self.table, task.file, self.names), task.file, dead) for task in self.files
            )


def row_readers(loaded: Table, version: int, names: Sequence[str], bounds: Bounds | None) -> list[IcebergRows]:
    """Readers of the columns `names`, which together read all files that may have rows within `bounds`.

    `bounds` limit the first of these columns. If `bounds` is None, the readers read all files of the snapshot. The list
    is empty if no file may have such rows.
    """
    groups: list[list[FileScanTask]] = []
    group_rows = _ROWS  # so that the first file begins a group
    for task in files_with(loaded, version, names[0], bounds):
        if group_rows >= _ROWS:
            groups.append([])
            group_rows = 0
        groups[-1].append(task)
        group_rows += task.file.record_count
    files = TableFiles.of(loaded)
    return [IcebergRows(files, tuple(names), tuple(group)) for group in groups]
