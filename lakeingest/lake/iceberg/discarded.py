"""Copies that were begun and discarded: the mark that proves it, and the deletion of their files.

When the catalog drops the entry of a copy, the copy's files stay in its folder. So a last commit is made before the
drop. It removes the copy's branches and sets the property `lakeingest.state` to `discarded`. None of our commits can
follow it, because each of them asserts a branch. A folder whose metadata.json lacks this mark is kept: another catalog
may use it.
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

from lakeingest.core.schema import TableId
from lakeingest.lake.iceberg.history import DISCARDED, STATE
from lakeingest.lake.iceberg.leftovers import REFUSED, deleted, path_of, store_of
from lakeingest.lake.iceberg.ownership import listing, own_files
from lakeingest.lake.iceberg.recovery import UNREADABLE
from lakeingest.lake.iceberg.transaction import OneTransaction
from lakeingest.lake.marks import OWNER

_COPY = re.compile("[0-9a-f]{8}")
_METADATA = re.compile(r"metadata/(\d+)-[^/]+\.metadata\.json")
_MANIFEST = re.compile(r"metadata/[^/]+\.avro")


def is_discarded(loaded: Table) -> bool:
    """Whether a run has discarded the copy. It may have been killed before it dropped the entry."""
    return loaded.properties.get(STATE) == DISCARDED


def discard_commit(loaded: Table) -> Transaction:
    """The last commit of a copy that has a branch. It is refused if another run has published the copy."""
    transaction = OneTransaction(loaded)
    transaction.set_properties({STATE: DISCARDED})
    branches = ManageSnapshots(transaction=transaction)
    for branch in loaded.metadata.refs:
        branches.remove_branch(branch)
    branches.commit()
    return transaction


def remove_discarded(loaded: Table, table: TableId, beginning: str, age: timedelta) -> tuple[int, int]:
    """Delete the files of the table's discarded copies, if all of them are older than `age`; how many files and bytes.

    `beginning` is the beginning of the folders of all copies.
    """
    store, own = store_of(loaded.io, loaded.location())
    oldest = datetime.now(UTC) - age
    removed = freed = 0
    for folder in _copies(store, own, path_of(beginning)):
        listed = listing(store, folder.path)
        files = [entry for entry in listed if entry.is_file]
        if any(file.mtime >= oldest for file in files) or not _is_proven(loaded, table, folder, files):
            continue
        files = own_files(folder.path, listed)
        files.sort(key=lambda file: file.path.endswith(".metadata.json"))  # the proof is deleted last
        count, size = deleted(store, files)
        removed, freed = removed + count, freed + size
        if isinstance(store, LocalFileSystem):
            _remove_empty_folders(folder.path)
    return removed, freed


def _remove_empty_folders(path: str) -> None:
    """Remove a folder and those below it, except folders that have a file."""
    for above, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            Path(above).rmdir()


def _copies(store: FileSystem, own: str, beginning: str) -> list[FileInfo]:
    """The folders of the table's other copies; `own` is the folder of its present copy.

    None if the present copy is elsewhere, or a catalog lent credentials for its folder that may not list others.
    """
    above, _, name = beginning.rpartition("/")
    if own.rpartition("/")[0] != above:
        return []
    try:
        entries = store.get_file_info(FileSelector(above))
    except OSError as error:
        if REFUSED.search(str(error)):
            return []
        raise
    return [
        entry
        for entry in entries
        if entry.type is FileType.Directory and entry.path != own
        if not (isinstance(store, LocalFileSystem) and Path(entry.path).is_symlink())
        if entry.base_name.startswith(name) and _COPY.fullmatch(entry.base_name.removeprefix(name))
    ]


def _is_proven(loaded: Table, table: TableId, folder: FileInfo, files: Sequence[FileInfo]) -> bool:
    """Whether the folder certainly is what a creation of this table has left: its files may be deleted.

    Its last metadata.json says so (OWNER and DISCARDED), or it has only manifests, as a creation that was killed leaves
    them; no table has that. If two files have the last number, nobody knows which one took effect. `loaded` is any
    table of the same store. Files of a table with gc.enabled=false may belong to another one, too.
    """
    names = [file.path.removeprefix(f"{folder.path}/") for file in files]
    numbers = {name: int(match[1]) for name in names if (match := _METADATA.fullmatch(name)) is not None}
    last = [name for name, number in numbers.items() if number == max(numbers.values())]
    if not last:
        return all(map(_MANIFEST.fullmatch, names))
    if len(last) > 1:
        return False
    location = f"{loaded.location().rpartition('/')[0]}/{folder.base_name}"
    try:
        properties = FromInputFile.table_metadata(loaded.io.new_input(f"{location}/{last[0]}")).properties
    except UNREADABLE:
        return False
    is_shared = properties.get("gc.enabled", "true").lower() == "false"
    return (properties.get(OWNER), properties.get(STATE)) == (str(table), DISCARDED) and not is_shared
