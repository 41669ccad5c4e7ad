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

from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from lakeingest.lake.iceberg.tables.history import MAIN, tip
from lakeingest.lake.iceberg.tables.ownership import list_folder, own_files, read_document
from lakeingest.lake.inventory import Inventory
from lakeingest.lake.marks import OWNER

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

REFUSED = re.compile(r"ACCESS_DENIED|PERMISSION_DENIED|HTTP status 403")  # a store's refusal to list a folder


def remove_leftovers(
    loaded: Table, age: timedelta, waiting: Collection[str], in_use: Callable[[str], bool]
) -> tuple[int, int]:
    """Delete the table's own files that nothing refers to, that are older than `age`, and that are not `waiting`.

    Returns the number of deleted files, and their bytes. `in_use` says whether the catalog has a table with the given
    UUID: files of an older copy are deleted only if the catalog does not have it any more. In four cases nothing is
    deleted:

    - Other tables may use the files (`gc.enabled` is false).
    - The table's metadata.json is not in its folder.
    - A file that the table needs in its folder is not found there.
    - Another table has the same folder.
    """
    if loaded.properties.get("gc.enabled", "true").lower() == "false":
        return 0, 0
    store, folder = store_of(loaded.io, loaded.location())
    real_path = os.path.realpath if isinstance(store, LocalFileSystem) else str  # resolves symbolic links
    folder = real_path(folder)
    # Step 1: compare the files in the folder with those that the table needs there. Each of these must exist
    files = {file.path: file for file in own_files(folder, list_folder(store, folder))}
    needed = {real_path(path_of(name)) for name in _needed(loaded)}
    needed_here = {path for path in needed if path.startswith(f"{folder}/")}
    has_metadata_here = real_path(path_of(loaded.metadata_location)) in needed_here
    if not has_metadata_here or not needed_here <= files.keys():
        return 0, 0
    # Step 2: make sure that no other table has the same folder, and needs files that this table does not need
    unneeded = {path: file for path, file in files.items() if path not in needed}
    if not all(_permits_deletion(loaded, doc, in_use) for doc in _metadata_documents(loaded, folder, unneeded)):
        return 0, 0
    # Step 3: delete the unneeded files that are old, and that no query may still read
    cutoff = datetime.now(UTC) - age
    kept = {real_path(path_of(name)) for name in waiting}
    return delete_files(store, [file for path, file in unneeded.items() if path not in kept and file.mtime < cutoff])


def _metadata_documents(loaded: Table, folder: str, paths: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The document of each metadata.json among these paths. The table refers to none of these files."""
    for path in paths:
        if path.startswith(f"{folder}/metadata/") and ".metadata.json" in path:  # also `.metadata.json.gz`
            yield read_document(loaded.io, f"{loaded.location().rstrip('/')}/metadata/{path.rpartition('/')[2]}")


def _permits_deletion(loaded: Table, doc: Mapping[str, Any], in_use: Callable[[str], bool]) -> bool:
    """Whether `doc`, a metadata.json in the folder of `loaded`, permits to delete files that `loaded` does not need.

    True in these cases:

    - `doc` is empty: a killed writer has left a damaged file, which says nothing about a table.
    - `doc` is of the same table.
    - `doc` is of an older copy of the same source table, which the catalog has dropped.
    """
    uuid = str(doc.get("table-uuid", ""))
    ours = loaded.metadata
    if not doc or uuid == str(ours.table_uuid):
        return True
    owner = (doc.get("properties") or {}).get(OWNER)
    our_first_time = min((snapshot.timestamp_ms for snapshot in ours.snapshots), default=0)
    is_older = int(doc.get("last-updated-ms") or 0) <= our_first_time
    return is_older and owner == loaded.properties.get(OWNER) and not in_use(uuid)


def delete_files(store: FileSystem, files: Sequence[FileInfo]) -> tuple[int, int]:
    """Delete files in this order. Returns the number of files, and their bytes; those that are gone already count."""
    for file in files:
        with suppress(FileNotFoundError):
            store.delete_file(file.path)
    return len(files), sum(file.size for file in files)


def inventory(loaded: Table) -> Inventory:
    """The numbers of files that readers of main open, their bytes, and the number of snapshots that the table has.

    The files are counted by the summary of main's snapshot.
    """
    summary = tip(loaded, MAIN).summary
    totals = {} if summary is None else summary.additional_properties
    files, deletes, size = (
        int(totals.get(f"total-{name}", 0)) for name in ("data-files", "delete-files", "files-size")
    )
    return Inventory(files=files, deletes=deletes, bytes=size, snapshots=len(loaded.metadata.snapshots))


def _needed(loaded: Table) -> Iterator[str]:
    """The names of all files that the table refers to."""
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
    """Whether a deletion of the file `name` would remove a file in the table's folder.

    The name is parsed as `DurableFileIO` parses it: the path ends at `?` or `#`. False if the name leads out of the
    folder, by `..` or by a symbolic link.
    """
    try:
        scheme, _, path = DurableFileIO.parse_location(name)
        own_scheme, _, folder = DurableFileIO.parse_location(loaded.location())
        if scheme == own_scheme == "file":
            if "\0" in path:  # no file can have such a name
                return False
            real_parent = Path(os.path.realpath(Path(path).parent))  # a deletion follows no link at the path itself
            return real_parent.is_relative_to(os.path.realpath(folder))
    except ValueError:  # no file can have such a name
        return False
    # a store has no symbolic links: the path is compared as a text
    start = f"{folder.rstrip('/')}/"
    parts_below = path.removeprefix(start).split("/")
    return scheme == own_scheme and path.startswith(start) and {"", ".", ".."}.isdisjoint(parts_below)


def path_of(name: str) -> str:
    """A file's path in its file system. Engines write the URI of a local file with one slash or with three."""
    if name.startswith("/"):  # a path without a scheme, which is not quoted, and may have a colon
        return name
    if name.startswith("file:"):
        return unquote(re.sub(r"^file:/+", "/", name))
    return re.sub(r"^[^:]*:(//)?", "", name)
