"""Discarded copies: the commit that proves that a copy was discarded, and the deletion of its files.

Only a copy that was never published is discarded. The catalog drops the copy's entry, but the files stay in the copy's
folder. So before the drop, a last commit removes the copy's branches, and sets the property `lakeingest.state` to
`discarded`. No other commit of ours can follow, because each commit asserts a branch. If the last metadata.json of a
folder does not have this property, the folder is kept: another catalog may use it.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.tables.schema import TableId
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.storage.errors import UNREADABLE
from lakeingest.lake.iceberg.tables.history import DISCARDED, STATE
from lakeingest.lake.iceberg.tables.leftovers import REFUSED, delete_files, path_of, store_of
from lakeingest.lake.iceberg.tables.ownership import list_folder, own_files
from lakeingest.lake.marks import OWNER

_COPY = re.compile("[0-9a-f]{8}")  # the end of the name of a copy's folder
_METADATA = re.compile(r"metadata/(\d+)-[^/]+\.metadata\.json")
_MANIFEST = re.compile(r"metadata/[^/]+\.avro")


def is_discarded(loaded: Table) -> bool:
    """Whether a run has discarded the copy, but was killed before it dropped the entry in the catalog."""
    return loaded.properties.get(STATE) == DISCARDED


def discard_commit(loaded: Table) -> Transaction:
    """The commit that marks a copy as discarded, and removes its branches. The copy has at least one branch.

    The commit is refused if another run has published the copy.
    """
    transaction = OneTransaction(loaded)
    transaction.set_properties({STATE: DISCARDED})
    branches = ManageSnapshots(transaction=transaction)
    for branch in loaded.metadata.refs:
        branches.remove_branch(branch)
    branches.commit()  # into the transaction
    return transaction


def remove_discarded(loaded: Table, table: TableId, beginning: str, age: timedelta) -> tuple[int, int]:
    """Delete the files of the table's discarded copies. Returns the numbers of deleted files and bytes.

    A copy stays if one of its files is not older than `age`. `loaded` is the present copy; `beginning` is the path with
    which the folders of all copies begin.
    """
    store, own_folder = store_of(loaded.io, loaded.location())
    cutoff = datetime.now(UTC) - age
    removed = freed = 0  # the numbers of files and bytes
    for folder in _copies(store, own_folder, path_of(beginning)):
        listed = list_folder(store, folder.path)
        all_files = [entry for entry in listed if entry.is_file]
        is_young = any(file.mtime >= cutoff for file in all_files)
        if is_young or not _is_discarded_copy(loaded, table, folder, all_files):
            continue
        deletable = own_files(folder.path, listed)
        # metadata.json last, because it proves that the other files may be deleted
        deletable.sort(key=lambda file: file.path.endswith(".metadata.json"))
        count, size = delete_files(store, deletable)
        removed, freed = removed + count, freed + size
        if isinstance(store, LocalFileSystem):
            _remove_empty_folders(folder.path)
    return removed, freed


def _remove_empty_folders(path: str) -> None:
    """Remove a folder and the folders in it, except those that have a file."""
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):  # the folder has a file
            Path(folder).rmdir()


def _copies(store: FileSystem, own_folder: str, beginning: str) -> list[FileInfo]:
    """The folders of the table's other copies. `own_folder` is the folder of the present copy.

    The list is empty if the present copy is in another parent folder, or if we may not list the parent folder: some
    catalogs give credentials for the table's own folder alone. Raises OSError if the listing fails for another reason.
    """
    parent, _, name_start = beginning.rpartition("/")
    if own_folder.rpartition("/")[0] != parent:
        return []
    try:
        entries = store.get_file_info(FileSelector(parent))
    except OSError as error:
        if REFUSED.search(str(error)):
            return []
        raise
    copies = []
    for entry in entries:
        name = entry.base_name
        is_named_as_copy = name.startswith(name_start) and _COPY.fullmatch(name.removeprefix(name_start)) is not None
        if is_named_as_copy and entry.type is FileType.Directory and entry.path != own_folder:
            is_link = isinstance(store, LocalFileSystem) and Path(entry.path).is_symlink()
            if not is_link:
                copies.append(entry)
    return copies


def _is_discarded_copy(loaded: Table, table: TableId, folder: FileInfo, files: Sequence[FileInfo]) -> bool:
    """Whether a folder has only files that a discarded copy of this table has left, so that they may be deleted.

    `loaded` gives access to the store. The answer depends on the number of metadata.json with the highest version:

    - No metadata.json: True if all files of the folder are manifests, or it has no files. No table has only manifests,
      but a killed creation leaves them.
    - Two or more: False, because nobody knows which of them took effect.
    - One: True if it names the table (OWNER), says DISCARDED, and does not say gc.enabled=false, with which other
      tables may use the files.
    """
    names = [file.path.removeprefix(f"{folder.path}/") for file in files]
    # of each metadata.json, the version in its name
    versions = {name: int(match[1]) for name in names if (match := _METADATA.fullmatch(name)) is not None}
    if not versions:
        return all(map(_MANIFEST.fullmatch, names))
    highest = max(versions.values())
    last = [name for name, version in versions.items() if version == highest]
    if len(last) > 1:
        return False
    location = f"{loaded.location().rpartition('/')[0]}/{folder.base_name}"
    try:
        properties = FromInputFile.table_metadata(loaded.io.new_input(f"{location}/{last[0]}")).properties
    except UNREADABLE:
        return False
    is_shared = properties.get("gc.enabled", "true").lower() == "false"
    return (properties.get(OWNER), properties.get(STATE)) == (str(table), DISCARDED) and not is_shared
