"""Files and folders on a local disk that survive a power loss, and folders that only this user can change."""

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

PRIVATE = 0o700  # the mode of a folder for its user alone


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, durably. New folders have this mode, reduced by the process's umask."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing or [path]):
        folder.mkdir(mode, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def share_like(folder: Path) -> None:
    """Let this process make files that others can read and write only if they can read and write this folder.

    If the folder does not exist, they cannot.
    """
    try:
        mode = folder.stat().st_mode
    except OSError:
        mode = PRIVATE
    os.umask(~(mode | PRIVATE) & 0o777)


def is_open_to_others(folder: Path) -> bool:
    """Whether the modes of a folder, and of the folders above it, let other users look into it."""
    try:
        modes = [path.stat().st_mode for path in (folder, *folder.parents)]
    except OSError:
        return False
    return bool(modes[0] & 0o077) and all(mode & 0o011 for mode in modes[1:])


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path, since: float) -> None:
    """Flush all names below a folder to the disk, and the files changed since `since`, in seconds since 1970."""
    sync_changed((folder, *folder.rglob("*")), since)


def sync_changed(paths: Iterable[Path], since: float) -> None:
    """Flush to the disk the names in the folders among `paths`, and the files that were changed since `since`.

    `since` is in seconds since 1970. Symbolic links, and files that do not exist, are left out.
    """
    for path in paths:
        if not path.is_symlink() and (path.is_dir() or (path.exists() and path.stat().st_mtime >= since)):
            sync(path)


def private_folder(path: Path) -> Path | None:
    """The folder, which is made if it is missing; None if it cannot be made, or somebody else can change its files."""
    try:
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
    except OSError:
        return None
    return path if is_private(path) else None


def is_private(path: Path) -> bool:
    """Whether only this user, or root, can change the files in a folder, so that it may hold code and secrets.

    The folder may not be a symbolic link, and nobody else may be able to replace it by another folder. In a parent
    folder that all users can write, such as the one for temporary files, the sticky bit prevents that.
    """
    try:
        status = path.lstat()
        above = [folder.lstat() for folder in Path(os.path.realpath(path)).parents]
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or _others_may_write(status):
        return False
    return not any(_others_may_write(parent, sticky=True) for parent in above)


def _others_may_write(status: os.stat_result, *, sticky: bool = False) -> bool:
    """Whether another user can change a folder's entries; with `sticky`, whether also entries of other users."""
    if status.st_uid not in {0, os.getuid()}:
        return True
    if sticky and status.st_mode & stat.S_ISVTX:
        return False
    return bool(status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)))


def _is_own_group(number: int) -> bool:
    """Whether a group is root's, or has this user as its only member, as on systems with a group for each user."""
    if number == 0:
        return True
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return number == user.pw_gid and set(group.gr_mem) <= {user.pw_name} and group.gr_name == user.pw_name
