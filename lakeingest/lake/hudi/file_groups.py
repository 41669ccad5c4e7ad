"""The files that readers of a Hudi table read: the newest of each file group."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakeingest.core.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.timeline import metadata_of, timeline, writes

_AT_ONCE = 16  # commits that are read at the same time


def assert_whole(table: TableId, folder: File) -> None:
    """StateUnreadable unless the newest file of each group exists with the length that its commit recorded.

    Only commits of the active timeline are looked at (Hudi's `HoodieWriteStat`: `fileId`, `path`, `fileSizeInBytes`).
    A file whose commit was archived is not checked: no later commit wrote its group.
    """
    newest = _newest(folder)
    there = {str(file): files.size(file) for file in files.listed(folder, "*.parquet")}
    for file, size, begun in newest.values():
        found = there.get(str(file))
        if found != size:
            damage = "is gone" if found is None else f"has {found} bytes instead of {size}"
            raise StateUnreadable(
                f"{table}: {file} {damage}; it is of commit {begun}, and nothing is published on it: restore the file,"
                f" or remove {folder} to copy the table again"
            )


def visible_files(folder: File, instant: str) -> list[File]:
    """The files that have the rows as of a commit.

    A file's name says its group and the commit that wrote it, `<group>_<token>_<instant>.parquet`. One of a write that
    did not complete is passed over: its instant is in the active timeline, and not completed.
    """
    completed = {begun for _, begun, _ in writes(folder)}
    first = min((file.name.partition("_")[0].partition(".")[0] for file in timeline(folder, "*.*")), default="")
    newest: dict[str, tuple[str, File]] = {}
    for file in files.listed(folder, "*.parquet"):
        group, _, begun = file.stem.split("_")
        is_there = begun in completed or begun < first
        if is_there and begun <= instant and begun > newest.get(group, ("",))[0]:
            newest[group] = begun, file
    return [file for _, file in sorted(newest.values(), key=str)]


def _newest(folder: File) -> dict[str, tuple[File, int, str]]:
    """For each file group its newest file, the length in bytes, and the commit that wrote it."""
    found: dict[str, tuple[File, int, str]] = {}
    commits = sorted(writes(folder), reverse=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        written = pool.map(_stats, [file for _, _, file in commits])
    for (_, begun, _), stats in zip(commits, written, strict=True):
        for stat in stats:
            if stat["path"]:  # empty where a write left the group without a file
                found.setdefault(stat["fileId"], (folder / stat["path"], stat["fileSizeInBytes"], begun))
    return found


def _stats(commit: File) -> list[Any]:
    """What a commit says of each file that it wrote; nothing where another run archived it since its name was read."""
    try:
        with metadata_of(commit) as metadata:
            return [stat for stats in (metadata["partitionToWriteStats"] or {}).values() for stat in stats]
    except FileNotFoundError:
        return []
