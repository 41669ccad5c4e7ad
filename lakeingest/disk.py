"""Files of a local disk that survive a power loss, with the names in their folders; and folders of this user alone."""

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

PRIVATE = 0o700  # the mode of a folder for its user alone


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, durably; the process's umask is taken from the mode of what is made."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing or [path]):
        folder.mkdir(mode, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def share_like(folder: Path) -> None:
    """Let this process make files that others can read or write only as far as they can a folder; none, without it."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        mode = PRIVATE
    os.umask(~(mode | PRIVATE) & 0o777)


def is_open_to_others(folder: Path) -> bool:
    """Whether other users can look into a folder, as far as its mode and those of the folders above say."""
    try:
        modes = [one.stat().st_mode for one in (folder, *folder.parents)]
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
    """Flush all names of a folder to the disk, and the files that were changed since then (seconds since 1970)."""
    sync_changed((folder, *folder.rglob("*")), since)


def sync_changed(paths: Iterable[Path], since: float) -> None:
    """Flush to the disk the names in these folders, and these files if they are there and were changed since then.

    Symbolic links are left alone.
    """
    for path in paths:
        if not path.is_symlink() and (path.is_dir() or (path.exists() and path.stat().st_mtime >= since)):
            sync(path)


def private_folder(path: Path) -> Path | None:
    """The folder, made for this user alone where it is missing; None where somebody else could change what is in it."""
    try:
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
    except OSError:
        return None
    return path if is_private(path) else None


def is_private(path: Path) -> bool:
    """Whether only this user, or root, can change what is in a folder: code may be taken from it, and secrets stored.

    It is no symbolic link, and nobody else can put another folder into its place. In a folder above that all can write,
    such as the one for temporary files, the sticky bit says so.
    """
    try:
        found = path.lstat()
        above = [folder.lstat() for folder in Path(os.path.realpath(path)).parents]
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or _others_may_write(found):
        return False
    return not any(_others_may_write(one, sticky=True) for one in above)


def _others_may_write(found: os.stat_result, *, sticky: bool = False) -> bool:
    """Whether another user can change what is in a folder; with `sticky`, also what others have put there."""
    if found.st_uid not in {0, os.getuid()}:
        return True
    if sticky and found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)))


def _is_own_group(number: int) -> bool:
    """Whether a group is that of this user alone, as many systems make one for each user, or root's."""
    if number == 0:
        return True
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return number == user.pw_gid and set(group.gr_mem) <= {user.pw_name} and group.gr_name == user.pw_name
