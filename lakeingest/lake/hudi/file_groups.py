"""The data files of our commits on a Hudi table: the newest file of each file group.

Clusterings by others do not count: readers may read the files of a clustering, with the same rows (`clusterings`).
"""

from typing import Any

from lakeingest.core.file_names import inside
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.hudi.timeline import commits_of, metadata_of, timeline
from lakeingest.side_by_side import side_by_side

_AT_ONCE = 16  # the number of threads that ask a store for commits, or for the sizes of files
_known_files: dict[str, tuple[str, dict[str, File]]] = {}  # by folder: a commit, and its visible file of each group


def assert_whole(table: TableId, folder: File) -> None:
    """Raises StateUnreadable unless the newest file of each group exists and has the size that its commit recorded.

    The sizes are in the commits of the active timeline (Hudi's `HoodieWriteStat`: `fileId`, `path`, `fileSizeInBytes`).
    So a group that only archived commits wrote is not checked.
    """
    newest_files = _newest_files(folder).values()
    actual_sizes = side_by_side(_size, [file for file, _, _ in newest_files], _at_once(folder))
    for (file, recorded, begun), actual in zip(newest_files, actual_sizes, strict=True):
        if actual != recorded:
            damage = "is gone" if actual is None else f"has {actual} bytes instead of {recorded}"
            raise StateUnreadable(
                f"{table}: {file} {damage}; it is of commit {begun}, and nothing is published on it: restore the file,"
                f" or remove {folder} to copy the table again"
            )


def visible_files(folder: File, instant: str) -> list[File]:
    """The data files with the rows of the table as of the commit `instant`.

    The folder can have thousands of older files, so this process lists the folder only once, and remembers the files of
    one commit. Later commits of the timeline say which of these files they have replaced.
    """
    commits = {begun: file for _, begun, file in sorted(commits_of(folder))}
    known_instant, known_groups = _known_files.get(str(folder), ("", {}))
    # the timeline has all commits after the known one, because Hudi archives the oldest commits first
    can_update_known = known_instant in commits and known_instant <= instant
    if can_update_known:
        later_commits = [file for begun, file in commits.items() if known_instant < begun <= instant]
        try:
            stats = [stat for commit in later_commits for stat in _read_write_stats(commit)]
            newest = {stat["fileId"]: folder / stat["path"] for stat in stats}
            # `looked_at` gives files of a store the metadata that they also get from `_list_files`
            groups = known_groups | dict(zip(newest, files.looked_at(newest.values()), strict=True))
        except FileNotFoundError:  # another run archived a commit since the timeline was listed
            groups = _list_files(folder, instant)
    else:
        groups = _list_files(folder, instant)
    if instant in commits:  # an archived commit is not remembered: commits after it may be archived, too
        _known_files[str(folder)] = instant, groups
    return sorted(groups.values(), key=str)


def _list_files(folder: File, instant: str) -> dict[str, File]:
    """The file of each file group that a reader of the commit `instant` reads, found by listing the folder.

    A file's name has its group and the commit that wrote it, `<group>_<token>_<instant>.parquet`. The file is read if
    that commit is completed in the active timeline, or archived. An archived commit is older than the first write of
    the active timeline.
    """
    completed = {begun for _, begun, _ in commits_of(folder)}
    first = first_write(folder) or ""
    newest: dict[str, tuple[str, File]] = {}  # by group: the instant of the newest file so far, and this file
    for file in data_files(folder):
        group, _, begun = file.stem.split("_")
        is_archived = begun < first
        is_completed = is_archived or begun in completed
        newest_begun, _ = newest.get(group, ("", file))
        is_newer = begun > newest_begun
        if is_completed and begun <= instant and is_newer:
            newest[group] = begun, file
    return {group: file for group, (_, file) in newest.items()}


def data_files(folder: File, pattern: str = "*.parquet") -> list[File]:
    """The files whose names match the pattern, in the table's folder and in the folders of its partitions."""
    partitions = [name for name in folder.subfolders() if not name.startswith(".")]
    return [*folder.listed(pattern), *(file for name in partitions for file in (folder / name).listed(pattern))]


def relative_name(file: File, folder: File) -> str:
    """The name of a file relative to a folder: `partition/name`, or its name."""
    return str(file).removeprefix(f"{folder}/")


def first_write(folder: File) -> str | None:
    """The instant of the first write of the active timeline, which may be incomplete; None if there is none.

    Cleanings, rollbacks, savepoints and restores do not count as writes, because they can be older than archived
    commits.
    """
    other_actions = ("clean", "rollback", "savepoint", "restore")
    entries = [file.name.partition(".") for file in timeline(folder, "*.*")]
    begun_writes = [times.partition("_")[0] for times, _, kind in entries if not kind.startswith(other_actions)]
    return min(begun_writes, default=None)


def _at_once(folder: File) -> int:
    """The number of threads that read in a folder: one for a disk, which answers sooner than threads are started."""
    return 1 if isinstance(folder, Local) else _AT_ONCE


def _size(file: File) -> int | None:
    """The size of a file in bytes; None if it does not exist."""
    try:
        return file.size()
    except FileNotFoundError:
        return None


def _newest_files(folder: File) -> dict[str, tuple[File, int, str]]:
    """The newest file of each file group, with its size in bytes and the commit that wrote it.

    Groups that only archived commits wrote are missing.
    """
    newest: dict[str, tuple[File, int, str]] = {}
    commits = sorted(commits_of(folder), reverse=True)  # the newest first, so that `setdefault` keeps its file
    stats_of_commits = side_by_side(_write_stats, [file for _, _, file in commits], _at_once(folder))
    for (_, begun, _), stats in zip(commits, stats_of_commits, strict=True):
        for stat in stats:
            newest.setdefault(stat["fileId"], (folder / stat["path"], stat["fileSizeInBytes"], begun))
    return newest


def _write_stats(commit: File) -> list[Any]:
    """As `_read_write_stats`, but an empty list if another run archived the commit since the timeline was listed."""
    try:
        return _read_write_stats(commit)
    except FileNotFoundError:
        return []


def _read_write_stats(commit: File) -> list[Any]:
    """The entries of a commit for the files that it wrote. Raises FileNotFoundError if the commit was archived."""
    with metadata_of(commit) as metadata:
        stats = [stat for stats in (metadata["partitionToWriteStats"] or {}).values() for stat in stats]
        with_files = [stat for stat in stats if stat["path"]]  # the path is empty if a write left no file
        for stat in with_files:
            # raises ValueError if the path leads out of the folder; `metadata_of` raises this as StateUnreadable
            inside(stat["path"])
        return with_files
