"""The keys of the rows of a snapshot, read from data files' key columns alone, on executors."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from lakeingest.lake.iceberg.data_files import alive, read_deletes, read_rows
from lakeingest.lake.iceberg.errors import storage_errors
from lakeingest.lake.iceberg.merger import files_with
from lakeingest.lake.target import Bounds

_ROWS = 1_000_000  # of the files that one task reads


@dataclass(frozen=True, slots=True)
class IcebergKeys:
    """`lake.target.KeyReader` on some files of one snapshot."""

    metadata: TableMetadata
    key: tuple[str, ...]
    files: tuple[FileScanTask, ...]

    def read(self) -> pa.Table:
        """The key columns of the rows that are not deleted."""
        with storage_errors(self.metadata.location):
            dead = read_deletes({one.file_path: one for task in self.files for one in task.delete_files}.values())
            return pa.concat_tables(
                alive(read_rows(self.metadata, task.file, self.key), task.file, dead) for task in self.files
            )


def key_readers(loaded: Table, version: int, key: Sequence[str], bounds: Bounds | None) -> list[IcebergKeys]:
    """Readers that together read the keys of a snapshot's files which may have keys within the bounds."""
    groups: list[list[FileScanTask]] = []
    rows = _ROWS
    for task in files_with(loaded, version, key[0], bounds):
        if rows >= _ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(task)
        rows += task.file.record_count
    return [IcebergKeys(loaded.metadata, tuple(key), tuple(group)) for group in groups]
