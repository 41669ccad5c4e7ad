"""A copy in Iceberg, watched from outside through its own files, whatever writes them."""

from pathlib import Path

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot


class Mirror:
    """The one table of a folder. Readers see what its current snapshot holds: other branches do not count."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._metadata: Path | None = None  # the folder of it
        self._read: Path | None = None
        self._table: StaticTable | None = None
        self._least: int | None = None
        self._seen: set[int] = set()

    def metadata(self) -> Path | None:
        """The newest metadata file; None before there is one."""
        if self._metadata is None:
            found = next(self._folder.rglob("*.metadata.json"), None)
            if found is None:
                return None
            self._metadata = found.parent
        # a Hadoop catalog renames its new file, and may have while we looked
        files = [(file, _age(file)) for file in self._metadata.glob("*.metadata.json")]
        return max(files, key=lambda one: one[1])[0] if files else None

    def rows(self) -> int:
        """How many rows its snapshot counts."""
        found = self._current()
        if found is None or found[1].summary is None:
            return 0
        return int(found[1].summary.additional_properties.get("total-records", 0))

    def least_key(self) -> int | None:
        """The least key that any snapshot added which readers have, or had, seen; None before there is one."""
        found = self._current()
        if found is None:
            return None
        table, snapshot = found
        next_one: Snapshot | None = snapshot
        while next_one is not None and next_one.snapshot_id not in self._seen:
            self._seen.add(next_one.snapshot_id)
            added = [self._bound(table, file) for file in _added(table, next_one)]
            self._least = min([*added, *([] if self._least is None else [self._least])], default=None)
            parent = next_one.parent_snapshot_id
            next_one = None if parent is None else table.snapshot_by_id(parent)
        return self._least

    def _current(self) -> tuple[StaticTable, Snapshot] | None:
        newest = self.metadata()
        if newest is None:
            return None
        if newest != self._read:
            try:
                self._table = StaticTable.from_metadata(str(newest))
            except (FileNotFoundError, ValidationError):  # it is being written, or renamed
                return None
            self._read = newest
        assert self._table is not None  # noqa: S101 - it was read
        snapshot = self._table.current_snapshot()
        return None if snapshot is None else (self._table, snapshot)

    def _bound(self, table: StaticTable, file: DataFile) -> int:
        field = table.schema().find_field(self._key)
        return int(from_bytes(field.field_type, file.lower_bounds[field.field_id]))  # type: ignore[arg-type] # a primitive


def _age(file: Path) -> tuple[int, str]:
    try:
        return file.stat().st_mtime_ns, file.name
    except FileNotFoundError:
        return 0, file.name


def _added(table: StaticTable, snapshot: Snapshot) -> list[DataFile]:
    """The data files that a snapshot added."""
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED
    ]
