"""What this process has read of files, and keeps: manifests, lists of manifests, columns of keys, deletes, large files.

Each merge of a run that follows the source needs most of them again. Files of another tool are larger than ours, so
neighbouring chunks need the same file. No file of these kinds ever changes, and no two have the same name. Source:
Iceberg's table specification, "Manifests", "Position Delete Files" and "Deletion Vectors". `audit` finds
files that were lost or damaged after they were read here: it reads lists anew, and asks for the length of each file.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Snapshot

from lakeingest.lake.iceberg.files.data_files import Positions, drop_deleted, positions_by_path, read_rows
from lakeingest.lake.iceberg.storage.avro_files import AvroInput, Records
from lakeingest.lake.iceberg.storage.entry_fields import THIRD, Identity, identity, inherit_first_row_ids
from lakeingest.lake.iceberg.storage.manifest_files import manifest_row_id
from lakeingest.lake.iceberg.storage.metadata import TableFiles

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
_MEGABYTE = 1 << 20
_POSITION_BYTES = 8
LARGE_ROWS = 200_000  # a file with so many rows may be needed by several chunks


class Kept(Generic[Key, Value]):
    """The values that were asked for last, up to a total size. A value larger than `size / parts` is not kept."""

    def __init__(self, size: int, size_of: Callable[[Value], int], parts: int = 8) -> None:
        self._most, self._size_of = size // parts, size_of
        self._values: LRUCache[Key, Value] = LRUCache(size, size_of)
        self._lock = threading.Lock()  # PyIceberg reads manifests in threads

    def get(self, key: Key, read: Callable[[], Value]) -> Value:
        """The kept value; if there is none, the value that `read` returns, which is then kept."""
        with self._lock:
            value = self._values.get(key)
        return self.put(key, read()) if value is None else value

    def put(self, key: Key, value: Value) -> Value:
        """Keep this value, and return it."""
        if self._size_of(value) <= self._most:
            with self._lock:
                self._values[key] = value
        return value

    def forget(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()


# a table that is followed needs its newest list, of some 15 manifests
_lists: Kept[str, "tuple[KeptManifest, ...]"] = Kept(2_000, len)
# of some 4 KB each; by path and first row id, because the list of manifests gives this id
_entries: Kept[tuple[str, int | None], list[ManifestEntry]] = Kept(8_000, len)
_columns: Kept[tuple[str, tuple[str, ...], int], pa.Table] = Kept(32 * _MEGABYTE, lambda columns: columns.nbytes)
# two large files at most: a task compares a range with one of them, or with the end of one and the start of the next
_living: Kept[Hashable, pa.Table] = Kept(192 * _MEGABYTE, lambda rows: rows.nbytes, parts=2)
_deletes: Kept[Identity, Positions] = Kept(16 * _MEGABYTE, lambda found: _POSITION_BYTES * _count(found))


class KeptManifest(ManifestFile):
    """A manifest whose entries are read once. All callers get the same entries, and must not change them.

    Entries have the fields of version 3, whatever the version of the table.
    """

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:  # noqa: FBT001, FBT002 - as PyIceberg
        """The manifest's entries, by default without those of files that it names as removed."""
        if not discard_deleted:
            return self._read(io)

        def living() -> list[ManifestEntry]:
            return [entry for entry in self._read(io) if entry.status is not ManifestEntryStatus.DELETED]

        return _entries.get((self.manifest_path, manifest_row_id(self)), living)

    def _read(self, io: FileIO) -> list[ManifestEntry]:
        """Read all entries, also those of files that the manifest names as removed."""
        with AvroInput[ManifestEntry](io.new_input(self.manifest_path), _ENTRIES) as reader:
            entries = [_inherit_from_manifest(entry, self) for entry in reader]
        inherit_first_row_ids(entries, manifest_row_id(self))
        return entries


# Entries and lists with the fields of version 3: PyIceberg itself reads only those of version 2. The classes are given
# by field id; -1: the whole record
_ENTRIES = Records(
    MANIFEST_ENTRY_SCHEMAS[THIRD],
    {-1: ManifestEntry, 2: DataFile},
    {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)
_LISTS = Records(
    MANIFEST_LIST_FILE_SCHEMAS[THIRD], {-1: KeptManifest, 508: PartitionFieldSummary}, {517: ManifestContent}
)


def copied(entry: ManifestEntry) -> ManifestEntry:
    """A copy of an entry, for a caller who changes the copy."""
    return ManifestEntry(*map(entry.__getitem__, range(len(entry))))


def manifests_of(snapshot: Snapshot, io: FileIO) -> tuple[KeptManifest, ...]:
    """The manifests of a snapshot."""
    return _lists.get(snapshot.manifest_list, lambda: manifests_read_anew(snapshot, io))


def manifests_read_anew(snapshot: Snapshot, io: FileIO) -> tuple[KeptManifest, ...]:
    """Read the list of a snapshot's manifests again, and keep it. For callers who check that the list is there.

    Raises as PyIceberg does.
    """
    with AvroInput[KeptManifest](io.new_input(snapshot.manifest_list), _LISTS) as reader:
        return _lists.put(snapshot.manifest_list, tuple(reader))


def read_columns(table: TableFiles, file: DataFile, names: Sequence[str]) -> pa.Table:
    """The columns as by `read_rows`, from memory if they are kept. Raises as `read_rows`."""
    # the schema gives the columns their names and types
    key = file.file_path, tuple(names), table.metadata.current_schema_id
    return _columns.get(key, lambda: read_rows(table, file, names))


def read_positions(table: TableFiles, file: DataFile) -> Positions:
    """The positions as by `positions_by_path`, from memory if they are kept. Raises as `positions_by_path`."""
    return _deletes.get(identity(file), lambda: dict(positions_by_path(table, file)))


def read_living(table: TableFiles, task: FileScanTask, names: Sequence[str], dead: Callable[[], Positions]) -> pa.Table:
    """The columns of the rows of a file that are not deleted, from memory if they are kept. Raises as `read_rows`.

    `dead`: reads the deleted positions.
    """

    def read() -> pa.Table:
        return drop_deleted(read_rows(table, task.file, names), task.file, dead())

    if task.file.record_count < LARGE_ROWS:  # our own files have the rows of a chunk, which is read once
        return read()
    deletes = frozenset(map(identity, task.delete_files))
    return _living.get((task.file.file_path, tuple(names), table.metadata.current_schema_id, deletes), read)


def _count(positions: Positions) -> int:
    return sum(map(len, positions.values()))


def forget() -> None:
    """Forget all that was read, so that files are read again as by a new process."""
    for kept in (_lists, _entries, _columns, _living, _deletes):
        kept.forget()
