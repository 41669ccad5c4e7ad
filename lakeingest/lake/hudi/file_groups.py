"""The files that readers of a Hudi table read: the newest one of each file group."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakeingest.core.file_names import joined
from lakeingest.core.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.timeline import metadata_of, timeline, writes

_AT_ONCE = 16  # how many commits are read, or files looked at, at the same time
_visible: dict[str, tuple[str, dict[str, File]]] = {}  # by folder: a commit, and its file of each file group


def assert_whole(table: TableId, folder: File) -> None:
    """Raises StateUnreadable unless the newest file of each group exists with the length that its commit recorded.

    Only commits of the active timeline are looked at (Hudi's `HoodieWriteStat`: `fileId`, `path`, `fileSizeInBytes`). A
    file whose commit was archived is not checked: no later commit wrote its group.
    """
    newest = _newest(folder).values()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = pool.map(_size, [file for file, _, _ in newest])
    for (file, size, begun), actual in zip(newest, sizes, strict=True):
        if actual != size:
            damage = "is gone" if actual is None else f"has {actual} bytes instead of {size}"
            raise StateUnreadable(
                f"{table}: {file} {damage}; it is of commit {begun}, and nothing is published on it: restore the file,"
                f" or remove {folder} to copy the table again"
            )


def visible_files(folder: File, instant: str) -> list[File]:
    """The files that have the rows as of a commit.

    Thousands of older files may be in the folder, so it is listed only once. If the files of an earlier commit are
    known, the later commits of the timeline say which files they replaced.
    """
    commits = {begun: file for _, begun, file in sorted(writes(folder))}
    last, groups = _visible.get(str(folder), ("", {}))
    if last in commits and last <= instant:
        since = [file for begun, file in commits.items() if last < begun <= instant]
        try:
            later = {stat["fileId"]: folder / stat["path"] for file in since for stat in _written(file)}
            groups = groups | dict(zip(later, files.looked_at(later.values()), strict=True))
        except FileNotFoundError:  # another run archived a commit since its name was read
            groups = _listed(folder, instant)
    else:
        groups = _listed(folder, instant)
    if instant in commits:
        _visible[str(folder)] = instant, groups
    return sorted(groups.values(), key=str)


def _listed(folder: File, instant: str) -> dict[str, File]:
    """For each file group the file that a commit reads.

    A file's name has its group and the commit that wrote it, `<group>_<token>_<instant>.parquet`. A file of an
    incomplete write is passed over: its instant is in the active timeline, and not completed. Other entries of the
    timeline, such as a cleaning, may be older than archived commits, and do not count.
    """
    completed = {begun for _, begun, _ in writes(folder)}
    others = ("clean", "rollback", "savepoint", "restore")
    entries = [file.name.partition(".") for file in timeline(folder, "*.*")]
    first = min((times.partition("_")[0] for times, _, kind in entries if not kind.startswith(others)), default="")
    newest: dict[str, tuple[str, File]] = {}
    for file in folder.listed("*.parquet"):
        group, _, begun = file.stem.split("_")
        is_complete = begun in completed or begun < first
        if is_complete and begun <= instant and begun > newest.get(group, ("",))[0]:
            newest[group] = begun, file
    return {group: file for group, (_, file) in newest.items()}


def _size(file: File) -> int | None:
    """The length of a file in bytes; None where it does not exist."""
    try:
        return file.size()
    except FileNotFoundError:
        return None


def _newest(folder: File) -> dict[str, tuple[File, int, str]]:
    """For each file group its newest file, the length in bytes, and the commit that wrote it."""
    by_group: dict[str, tuple[File, int, str]] = {}
    commits = sorted(writes(folder), reverse=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        written = pool.map(_stats, [file for _, _, file in commits])
    for (_, begun, _), stats in zip(commits, written, strict=True):
        for stat in stats:
            by_group.setdefault(stat["fileId"], (folder / stat["path"], stat["fileSizeInBytes"], begun))
    return by_group


def _stats(commit: File) -> list[Any]:
    """The entries of a commit for the files that it wrote; none if another run archived it since its name was read."""
    try:
        return _written(commit)
    except FileNotFoundError:
        return []


def _written(commit: File) -> list[Any]:
    """The entries of a commit for the files that it wrote. Raises FileNotFoundError where it was archived."""
    with metadata_of(commit) as metadata:
        stats = [stat for stats in (metadata["partitionToWriteStats"] or {}).values() for stat in stats]
        written = [stat for stat in stats if stat["path"]]  # empty where a write left the group without a file
        for stat in written:
            joined(str(commit), stat["path"])  # ValueError: our tables have no partitions, and other files are not read
        return written
