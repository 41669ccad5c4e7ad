"""Files in an Iceberg table's folder that nothing refers to, because a task or a commit was killed.

Source: Iceberg's table specification, "Table Metadata". A snapshot needs its manifest list, the manifests that the list
names, and the files that these manifests name. The table's other files are versions of metadata.json, and statistics.
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
from lakeingest.lake.iceberg.ownership import listing, own_files, read_document
from lakeingest.lake.marks import OWNER
from lakeingest.lake.target import Inventory

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

REFUSED = re.compile(r"ACCESS_DENIED|PERMISSION_DENIED|HTTP status 403")  # a store's refusal to list a folder


def remove_leftovers(
    loaded: Table, age: timedelta, waiting: Collection[str], in_use: Callable[[str], bool]
) -> tuple[int, int]:
    """Delete the table's own files that are older than `age`, not referred to and not `waiting`; how many, and bytes.

    Nothing is deleted in a doubtful case: others may use the files (`gc.enabled`), a file that the table refers to is
    not found in the folder under its name there, or another table has the same folder. `in_use` says whether the
    catalog has the table with this UUID; the files of older copies are deleted if it has not.
    """
    if loaded.properties.get("gc.enabled", "true").lower() == "false":
        return 0, 0
    store, folder = store_of(loaded.io, loaded.location())
    real = os.path.realpath if isinstance(store, LocalFileSystem) else str  # a file has other paths by symbolic links
    folder = real(folder)
    # Step 1: compare the files in the folder with the names that the table needs. Each needed one must be there
    files = {file.path: file for file in own_files(folder, listing(store, folder))}
    needed = {real(path_of(name)) for name in _needed(loaded)}
    needed_here = {path for path in needed if path.startswith(f"{folder}/")}
    if real(path_of(loaded.metadata_location)) not in needed_here or not needed_here <= files.keys():
        return 0, 0
    # Step 2: another table may have the same folder, and need the other files
    unneeded = {path: file for path, file in files.items() if path not in needed}
    if not all(_is_older_copy(loaded, doc, in_use) for doc in _versions(loaded, folder, unneeded)):
        return 0, 0
    # Step 3: delete the old ones for which no query waits
    oldest, spared = datetime.now(UTC) - age, {real(path_of(name)) for name in waiting}
    return deleted(store, [file for path, file in unneeded.items() if path not in spared and file.mtime < oldest])


def _versions(loaded: Table, folder: str, paths: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The documents of the metadata.json files among these paths, none of which the table itself names."""
    for path in paths:
        if path.startswith(f"{folder}/metadata/") and ".metadata.json" in path:
            yield read_document(loaded.io, f"{loaded.location().rstrip('/')}/metadata/{path.rpartition('/')[2]}")


def _is_older_copy(loaded: Table, doc: Mapping[str, Any], in_use: Callable[[str], bool]) -> bool:
    """Whether the document is of this table, or of an older copy of the same source table that the catalog dropped.

    A damaged one, which a killed writer has left, tells nothing, and counts as older.
    """
    uuid, ours = str(doc.get("table-uuid", "")), loaded.metadata
    if not doc or uuid == str(ours.table_uuid):
        return True
    owner = (doc.get("properties") or {}).get(OWNER)
    begun = min((snapshot.timestamp_ms for snapshot in ours.snapshots), default=0)
    is_older = int(doc.get("last-updated-ms") or 0) <= begun
    return is_older and owner == loaded.properties.get(OWNER) and not in_use(uuid)


def deleted(store: FileSystem, files: Sequence[FileInfo]) -> tuple[int, int]:
    """Delete files, in their order. Returns how many, and their bytes."""
    for file in files:
        with suppress(FileNotFoundError):
            store.delete_file(file.path)
    return len(files), sum(file.size for file in files)


def inventory(loaded: Table) -> Inventory:
    """The files that readers of main open, by the summary of its snapshot."""
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
    yield from (statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(loaded.io)}
    for path, manifest in manifests.items():
        yield path
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(loaded.io))


def store_of(io: FileIO, location: str) -> tuple[FileSystem, str]:
    """The file system of a table's folder, and the folder's path there."""
    opened = cast("PyArrowFileIO", io)  # `open_catalog` chose this class
    scheme, netloc, _ = opened.parse_location(location, opened.properties)
    return opened.fs_by_scheme(scheme, netloc), path_of(location).rstrip("/")


def is_below(loaded: Table, name: str) -> bool:
    """Whether the file that would be deleted by this name is in the table's folder.

    The name is read as `DurableFileIO` reads it: its path ends at `?` and `#`. No `..` and no symbolic link may lead
    out of the folder.
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
    """A file's path in its file system. Engines write the URI of a local file with one slash or with three."""
    scheme, colon, rest = name.partition(":")
    if not colon or scheme == "file":
        path = re.sub(r"^file:/+", "/", name)
        return path if path == name else unquote(path)
    return rest.removeprefix("//")
