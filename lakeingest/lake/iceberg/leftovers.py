"""Files in an Iceberg table's folder that nothing refers to: a task or a commit that was killed has left them.

Source: Iceberg's table specification, "Table Metadata". Whatever a snapshot of the table needs is named by its manifest
list, the manifests in that, or the files in those; the rest are versions of metadata.json and statistics.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from pyarrow.fs import FileInfo, FileSystem, LocalFileSystem
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from lakeingest.lake.iceberg.durable import DurableFileIO
from lakeingest.lake.iceberg.history import MAIN, tip
from lakeingest.lake.iceberg.ownership import described, listing, own_files
from lakeingest.lake.marks import OWNER
from lakeingest.lake.target import Inventory

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

REFUSED = re.compile(r"ACCESS_DENIED|PERMISSION_DENIED|HTTP status 403")  # how stores say that they may not list


def remove_leftovers(
    loaded: Table, age: timedelta, waiting: Collection[str], in_use: Callable[[str], bool]
) -> tuple[int, int]:
    """Delete the table's own files that are older than `age`, not referred to and not `waiting`; how many, and bytes.

    Nothing is deleted where that is not certain: where others may use the files (`gc.enabled`), where a file that the
    table refers to is not found in the folder under the name that it has there, and where another table has the same
    folder. `in_use` says whether the catalog has the table with this UUID; older copies are deleted if it has not.
    """
    if loaded.properties.get("gc.enabled", "true").lower() == "false":
        return 0, 0
    store, folder = store_of(loaded.io, loaded.location())
    real = os.path.realpath if isinstance(store, LocalFileSystem) else str  # a file has other paths by symbolic links
    folder = real(folder)
    found = {file.path: file for file in own_files(folder, listing(store, folder))}
    needed = {real(path_of(name)) for name in _needed(loaded)}
    listed = {path for path in needed if path.startswith(f"{folder}/")}
    if real(path_of(loaded.metadata_location)) not in listed or not listed <= found.keys():
        return 0, 0
    left = {path: file for path, file in found.items() if path not in needed}
    if not all(_is_older_copy(loaded, doc, in_use) for doc in _versions(loaded, folder, left)):
        return 0, 0
    oldest, spared = datetime.now(UTC) - age, {real(path_of(name)) for name in waiting}
    return deleted(store, [file for path, file in left.items() if path not in spared and file.mtime < oldest])


def _versions(loaded: Table, folder: str, left: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """What the versions of metadata.json among these files say; the table itself does not name them."""
    for path in left:
        if path.startswith(f"{folder}/metadata/") and ".metadata.json" in path:
            yield described(loaded.io, f"{loaded.location().rstrip('/')}/metadata/{path.rpartition('/')[2]}")


def _is_older_copy(loaded: Table, doc: Mapping[str, Any], in_use: Callable[[str], bool]) -> bool:
    """Whether it is a version of the table, or of an older copy of the same source table that the catalog dropped.

    A damaged one, which a killed writer has left, says nothing.
    """
    found, ours = str(doc.get("table-uuid", "")), loaded.metadata
    if not doc or found == str(ours.table_uuid):
        return True
    owner = (doc.get("properties") or {}).get(OWNER)
    begun = min((one.timestamp_ms for one in ours.snapshots), default=0)
    is_older = int(doc.get("last-updated-ms") or 0) <= begun
    return is_older and owner == loaded.properties.get(OWNER) and not in_use(found)


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
    return opened.fs_by_scheme(scheme, netloc), path_of(location).rstrip("/")


def is_below(loaded: Table, name: str) -> bool:
    """Whether the file that would be deleted by this name is in the table's folder.

    It is looked at as our access to files takes the name, which ends a path at `?` and `#`. No `..` and no symbolic
    link leads out of the folder.
    """
    try:
        (scheme, _, path), (own, _, folder) = map(DurableFileIO.parse_location, (name, loaded.location()))
        if scheme == own == "file":
            return "\0" not in path and Path(os.path.realpath(Path(path).parent)).is_relative_to(
                os.path.realpath(folder)
            )
    except ValueError:  # no name of a file
        return False
    above = f"{folder.rstrip('/')}/"
    return scheme == own and path.startswith(above) and {"", ".", ".."}.isdisjoint(path.removeprefix(above).split("/"))


def path_of(name: str) -> str:
    """A file's path in its file system; engines write the URI of a local one with one slash or with three."""
    scheme, colon, rest = name.partition(":")
    if not colon or scheme == "file":
        path = re.sub(r"^file:/+", "/", name)
        return path if path == name else unquote(path)
    return rest.removeprefix("//")
