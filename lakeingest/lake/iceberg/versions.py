"""The published snapshots of an Iceberg table, and the rows of a snapshot, which Arrow reads file by file."""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.table import Table

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.errors import unreadable
from lakeingest.lake.iceberg.files.data_files import drop_deleted, read_deletes, read_rows
from lakeingest.lake.iceberg.files.scan_plan import files_with
from lakeingest.lake.iceberg.storage.entry_fields import identity
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.history import is_marked, published_snapshot
from lakeingest.lake.iceberg.tables.staged_schema import as_staged
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import POSITION, PROGRESS, parse_progress
from lakeingest.lake.target import Staged
from lakeingest.lake.versions import Published
from lakeingest.rows import source_names, source_rows

BATCH_ROWS = 4_096


class IcebergVersions:
    """`lake.versions.Versions` on an Iceberg catalog."""

    def __init__(self, target: IcebergTarget) -> None:
        self._target = target

    def published(self, table: TableId, before: int | None = None) -> list[Published]:
        """The snapshots of ours that main was at, by the table's log of main, in the order of their places.

        With `before`, only snapshots that main was at after the snapshot `before`; all, if the log does not have it.
        """
        loaded = self._loaded(table)
        if loaded is None or published_snapshot(loaded) is None:
            return []
        versions = {}
        for entry in loaded.metadata.snapshot_log:
            snapshot = loaded.metadata.snapshot_by_id(entry.snapshot_id)
            if snapshot is not None and snapshot.summary is not None and is_marked(snapshot):
                properties = snapshot.summary.additional_properties
                if position := properties.get(POSITION):  # a commit without a position has no place in the binlog
                    recorded = properties.get(PROGRESS, "")
                    versions[snapshot.snapshot_id] = Published(snapshot.snapshot_id, Place.parse(position), recorded)
            if entry.snapshot_id == before:  # this version and all versions up to it are left out
                versions.clear()
        return sorted(versions.values(), key=lambda version: version.place)

    def fingerprint(self, table: TableId, version: int) -> str:
        """The fingerprint in the progress of a snapshot of ours; '' if the snapshot or the table is gone."""
        loaded = self._loaded(table)
        snapshot = None if loaded is None else loaded.metadata.snapshot_by_id(version)
        if snapshot is None or snapshot.summary is None:
            return ""
        text = snapshot.summary.additional_properties[PROGRESS]
        return parse_progress(table, f"snapshot {version}", text).fingerprint

    def last(self, table: TableId) -> Staged | None:
        """The state as by `Tables.inspect`; None if the table does not exist, or has lost its progress."""
        return self._target.inspect(table) if self._target.exists() else None

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of a snapshot, file by file, without deleted rows. Raises StateUnreadable if it has expired."""
        table = schema.table
        with self._target.storage_errors():
            loaded = self._loaded(table)
            if loaded is None or loaded.metadata.snapshot_by_id(version) is None:
                raise unreadable(str(table), f"snapshot {version} has expired")
            loaded = as_staged(loaded, version)  # an older snapshot has the columns of its own schema
            files = TableFiles.of(loaded)
            # without bounds, any column will do
            tasks = files_with(loaded, version, loaded.schema().fields[0].name, bounds=None)
            deletes = {identity(file): file for task in tasks for file in task.delete_files}  # each file once
            dead = read_deletes(files, deletes.values())
            for task in tasks:
                rows = read_rows(files, task.file, source_names(schema))
                yield from source_rows(drop_deleted(rows, task.file, dead), schema).to_batches(BATCH_ROWS)

    def _loaded(self, table: TableId) -> Table | None:
        """The table; None if the table or the catalog does not exist."""
        if not self._target.exists():
            return None
        with self._target.storage_errors():
            return self._target._entries.find(table)  # noqa: SLF001 - of the same package
