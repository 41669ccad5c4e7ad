"""Which files below a table's folder are the table's own. No other files are deleted there.

The folder of another table may be in the table's folder, at any depth: someone made it there, or moved one of the two.
A file is the table's own if it is below `data` or `metadata`, where Iceberg's writers put files, and no folder in
between belongs to another table. A folder belongs to another table if it has a metadata.json of Iceberg, or the log
folder of Hudi or Delta.
"""

import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem
from pyiceberg.io import FileIO

from lakeingest.errors import DAMAGED

_PARTS = ("data", "metadata")
_OTHER_TABLE = re.compile(  # a file by which its folder `above` is a table; `above` is None in the searched folder
    r"(?:(?P<above>.*?)/)?(?:metadata/(?:[^/]*\.metadata\.json[^/]*|version-hint\.text)|(?:\.hoodie|_delta_log)(?:/.*)?)"
)


def list_folder(store: FileSystem, folder: str) -> list[FileInfo]:
    """The files and folders below a folder, at any depth; in a local folder, no links and nothing behind them.

    Behind a symbolic link there may be files of others, or files that are also listed without the link.
    """
    if not isinstance(store, LocalFileSystem):
        return list(store.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True)))
    # `os.walk` lists links, but does not follow them
    walked = ((parent, name) for parent, folders, names in os.walk(folder) for name in (*folders, *names))
    paths = (os.path.join(*parts) for parts in walked)  # noqa: PTH118 - thousands of Path objects would be slow
    return list(store.get_file_info([path for path in paths if not os.path.islink(path)]))  # noqa: PTH114


def own_files(folder: str, listed: Sequence[FileInfo]) -> list[FileInfo]:
    """The table's own files among the files and folders `listed` below its folder.

    The list is empty if the folder itself also belongs to another table.
    """
    names = [entry.path.removeprefix(f"{folder}/") for entry in listed]
    other_tables = tables_in(names)
    if "" in other_tables:
        return []
    return [entry for entry, name in zip(listed, names, strict=True) if entry.is_file and _is_own(name, other_tables)]


def tables_in(names: Sequence[str]) -> set[str]:
    """The folders of other tables in a table's folder, by the names of all files and folders in the table's folder.

    The table's folder itself, "", is among them if it is also a Hudi or Delta table.
    """
    folders = set()
    for name in names:
        if (match := _OTHER_TABLE.fullmatch(name)) is not None:
            folder = match["above"] or ""
            # `metadata/` directly in the table's folder belongs to the table itself
            if folder or not name.startswith("metadata/"):
                folders.add(folder)
    return folders


def _is_own(name: str, other_tables: set[str]) -> bool:
    """Whether a file is below `data` or `metadata`, and in no folder of another table."""
    return name.partition("/")[0] in _PARTS and other_tables.isdisjoint(_parents(name))


def _parents(name: str) -> Iterator[str]:
    """The folders that a file is in, the innermost first, as paths below the table's folder."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def read_document(io: FileIO, location: str) -> Mapping[str, Any]:
    """The document in a metadata.json of any version of Iceberg; an empty one if the file is damaged."""
    with io.new_input(location).open() as file:
        contents = file.read()
    is_compressed = contents.startswith(b"\x1f\x8b")  # the first bytes of gzip
    try:
        doc = json.loads(gzip.decompress(contents) if is_compressed else contents)
    except (OSError, EOFError, *DAMAGED):
        return {}
    return doc if isinstance(doc, dict) else {}
