"""The files that readers of a Hudi table read: the newest of each file group, as the timeline recorded them."""

from pathlib import Path

from lakeingest.core.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.lake.hudi.timeline import metadata_of, writes


def assert_whole(table: TableId, folder: Path) -> None:
    """StateUnreadable unless the newest file of each group exists with the length that its commit recorded.

    Only commits of the active timeline are looked at (Hudi's `HoodieWriteStat`: `fileId`, `path`, `fileSizeInBytes`).
    A file whose commit was archived is not checked: no later commit wrote its group.
    """
    for file, size, begun in _newest(folder).values():
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            damage = "is gone" if found is None else f"has {found} bytes instead of {size}"
            raise StateUnreadable(
                f"{table}: {file} {damage}; it is of commit {begun}, and nothing is published on it: restore the file,"
                f" or remove {folder} to copy the table again"
            )


def _newest(folder: Path) -> dict[str, tuple[Path, int, str]]:
    """For each file group its newest file, the length in bytes, and the commit that wrote it."""
    found: dict[str, tuple[Path, int, str]] = {}
    for _, begun, commit in sorted(writes(folder), reverse=True):
        try:
            with metadata_of(commit) as metadata:
                for stats in (metadata["partitionToWriteStats"] or {}).values():
                    for stat in stats:
                        if stat["path"]:  # empty where a write left the group without a file
                            found.setdefault(stat["fileId"], (folder / stat["path"], stat["fileSizeInBytes"], begun))
        except FileNotFoundError:  # another run archived it since its name was read
            continue
    return found
