"""The files below a table's folder that are the table's own. Removing unreferenced files deletes no other files.

The folder of another table may be in it, at any depth: someone made it there, or moved one of the two. A file is the
table's own if it is below `data` or `metadata`, where Iceberg's writers put files, and no folder in between belongs to
another table. A folder belongs to another table if it has a metadata.json of Iceberg, or the log folder of Hudi or
Delta.
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
_MARK = re.compile(
    r"(?:(?P<above>.*?)/)?(?:metadata/(?:[^/]*\.metadata\.json[^/]*|version-hint\.text)|(?:\.hoodie|_delta_log)(?:/.*)?)"
)


def listing(store: FileSystem, folder: str) -> list[FileInfo]:
    """Files and folders below a folder. In a file system, symbolic links and everything behind them are left out.

    Behind a link may be the files of others, or once more the files of this folder.
    """
    if not isinstance(store, LocalFileSystem):
        return list(store.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True)))
    walked = ((above, name) for above, *names in os.walk(folder) for name in (*names[0], *names[1]))
    paths = (os.path.join(*parts) for parts in walked)  # noqa: PTH118 - thousands of paths, which are texts
    return list(store.get_file_info([path for path in paths if not os.path.islink(path)]))  # noqa: PTH114


def own_files(folder: str, listed: Sequence[FileInfo]) -> list[FileInfo]:
    """The table's own files among the entries below its folder."""
    names = [entry.path.removeprefix(f"{folder}/") for entry in listed]
    others = tables_in(names)
    if "" in others:
        return []
    return [entry for entry, name in zip(listed, names, strict=True) if entry.is_file and _is_own(name, others)]


def tables_in(names: Sequence[str]) -> set[str]:
    """The folders of other tables in a table's folder, by the names of the files and folders in it.

    They include the folder itself, "", if it is a Hudi or Delta table's, too.
    """
    marks = ((mark["above"] or "", name) for name in names if (mark := _MARK.fullmatch(name)) is not None)
    return {above for above, name in marks if above or not name.startswith("metadata/")}


def _is_own(name: str, others: set[str]) -> bool:
    return name.partition("/")[0] in _PARTS and others.isdisjoint(_above(name))


def _above(name: str) -> Iterator[str]:
    """The folders that a file is in, from the nearest one on."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def read_document(io: FileIO, location: str) -> Mapping[str, Any]:
    """The document of a metadata.json of any version of Iceberg; an empty one if the file is damaged."""
    with io.new_input(location).open() as file:
        contents = file.read()
    try:
        doc = json.loads(gzip.decompress(contents) if contents.startswith(b"\x1f\x8b") else contents)
    except (OSError, EOFError, *DAMAGED):
        return {}
    return doc if isinstance(doc, dict) else {}
