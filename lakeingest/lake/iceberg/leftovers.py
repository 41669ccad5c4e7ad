"""Files in an Iceberg table's folder that nothing refers to: a task or a commit that was killed has left them.

Source: Iceberg's table specification, "Table Metadata". Whatever a snapshot of the table needs is named by its manifest
list, the manifests in that, or the files in those; the rest are versions of metadata.json and statistics.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from lakeingest.lake.iceberg.history import MAIN, tip
from lakeingest.lake.target import Inventory

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO


def remove_leftovers(loaded: Table, age: timedelta, waiting: Collection[str]) -> tuple[int, int]:
    """Delete what is older than `age`, not referred to and not among the `waiting` files; how many files and bytes.

    Nothing is deleted where that is not certain: where others may use the files (`gc.enabled`), and where a
    file that the table refers to is not found in the folder under the name that it has there.
    """
    if loaded.properties.get("gc.enabled", "true").lower() == "false":
        return 0, 0
    store, folder = store_of(loaded.io, loaded.location())
    listed = store.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
    found = {file.path: file for file in listed if file.is_file}
    needed = {path_of(name) for name in _needed(loaded)}
    if not {path for path in needed if path.startswith(f"{folder}/")} <= found.keys():
        return 0, 0
    oldest, spared = datetime.now(UTC) - age, needed | {path_of(name) for name in waiting}
    return deleted(store, [file for path, file in found.items() if path not in spared and file.mtime < oldest])


def deleted(store: FileSystem, files: Sequence[FileInfo]) -> tuple[int, int]:
    """Delete files, in their order; how many, and their bytes."""
    for file in files:
        with suppress(FileNotFoundError):
            store.delete_file(file.path)
    return len(files), sum(file.size for file in files)


def inventory(loaded: Table) -> Inventory:
    """What readers of main open, by the summary of its snapshot."""
    summary = tip(loaded, MAIN).summary
    totals = {} if summary is None else summary.additional_properties
    files, deletes, size = (
        int(totals.get(f"total-{name}", 0)) for name in ("data-files", "delete-files", "files-size")
    )
    return Inventory(files, deletes, size, len(loaded.metadata.snapshots))


def _needed(loaded: Table) -> Iterator[str]:
    """Every file that the table refers to."""
    metadata = loaded.metadata
    yield loaded.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        manifests |= {one.manifest_path: one for one in snapshot.manifests(loaded.io)}
    for path, manifest in manifests.items():
        yield path
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(loaded.io))


def store_of(io: FileIO, location: str) -> tuple[FileSystem, str]:
    """The file system that a table's folder is in, and its path there."""
    opened = cast("PyArrowFileIO", io)  # which open_catalog chose
    scheme, netloc, _ = opened.parse_location(location, opened.properties)
    return opened.fs_by_scheme(scheme, netloc), path_of(location)


def path_of(name: str) -> str:
    """A file's path in its file system; engines write the URI of a local one with one slash or with three."""
    scheme, colon, rest = name.partition(":")
    if not colon or scheme == "file":
        path = re.sub(r"^file:/+", "/", name)
        return path if path == name else unquote(path)
    return rest.removeprefix("//")
