"""The local disk: files and folders that survive a power loss, and folders that only this user can change."""

import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

PRIVATE = 0o700  # the mode of a folder for its user alone


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, and flush them to the disk. The umask of the process reduces the mode."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing or [path]):  # if `path` exists, mkdir raises an error unless it is a folder
        folder.mkdir(mode, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def share_like(folder: Path) -> None:
    """Set the umask of this process, so that others have no more rights on new files than they have on this folder.

    If the folder does not exist, only this user has rights on new files.
    """
    try:
        mode = folder.stat().st_mode
    except OSError:
        mode = PRIVATE
    kept_rights = mode | PRIVATE
    os.umask(~kept_rights & 0o777)  # the umask has the rights that new files do not get


def share_reading_like(folder: Path) -> None:
    """As `share_like`, but others can only read new files."""
    share_like(folder)
    os.umask(os.umask(0o077) | 0o022)  # the inner call returns the umask, which can only be read by setting it


def replace_shared(path: Path, contents: bytes) -> None:
    """Replace the file in one step. Whoever may list its folder may read the file, nobody else. Raises OSError."""
    # until the file is complete, it has another name and another ending
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open already
            file.write(contents)
            os.fchmod(descriptor, 0o600 | (path.parent.stat().st_mode & 0o044))
        os.replace(name, path)  # noqa: PTH105 - a name, no path
    except BaseException:
        os.unlink(name)  # noqa: PTH108
        raise


def is_open_to_others(folder: Path) -> bool:
    """Whether the modes of a folder and of the folders above it let others, or the folder's group, read or write in it.

    False if the folder does not exist.
    """
    try:
        modes = [path.stat().st_mode for path in (folder, *folder.parents)]
    except OSError:
        return False
    has_rights_for_others = bool(modes[0] & 0o077)
    can_others_reach_it = all(mode & 0o011 for mode in modes[1:])  # the right to pass through each folder above
    return has_rights_for_others and can_others_reach_it


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path, since: float) -> None:
    """Flush a folder and all folders below it to the disk, and the files in them that were changed since `since`.

    `since` is in seconds since 1970.
    """
    sync_changed((folder, *folder.rglob("*")), since)


def sync_changed(paths: Iterable[Path], since: float) -> None:
    """Flush the folders among `paths` to the disk, and the files among `paths` that were changed since `since`.

    Of a folder, only the names in it are flushed. `since` is in seconds since 1970. Symbolic links, and files that do
    not exist, are skipped.
    """
    for path in paths:
        if path.is_symlink():
            continue
        if path.is_dir() or (path.exists() and path.stat().st_mtime >= since):
            sync(path)


def private_folder(path: Path) -> Path | None:
    """Make the folder if it is missing, and return it. None if it cannot be made, or if others can change its files."""
    try:
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
    except OSError:
        return None
    return path if is_private(path) else None


def is_private(path: Path) -> bool:
    """Whether only this user and root can change the files in a folder, so that it can hold code and secrets.

    True only if the folder is no symbolic link, and if nobody else can replace it by another folder. In a parent folder
    that all users can write, such as /tmp, the sticky bit prevents that others replace it.
    """
    try:
        status = path.lstat()
        above = [folder.lstat() for folder in Path(os.path.realpath(path)).parents]
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or _others_may_write(status):  # `lstat`: a symbolic link is no folder
        return False
    return not any(_others_may_write(parent, sticky=True) for parent in above)


def _others_may_write(status: os.stat_result, *, sticky: bool = False) -> bool:
    """Whether users other than root and this user can change the entries of a folder.

    The first of these that applies decides:
    1. True if such a user owns the folder.
    2. With `sticky`, False if the folder has the sticky bit, because such users can change only their own entries then.
    3. True if the folder's mode lets all users write, or lets a group write that has other users.
    """
    if status.st_uid not in {0, os.getuid()}:
        return True
    if sticky and status.st_mode & stat.S_ISVTX:
        return False
    can_others_write = status.st_mode & stat.S_IWOTH
    can_group_write = status.st_mode & stat.S_IWGRP and not _has_only_this_user(status.st_gid)
    return bool(can_others_write or can_group_write)


def _has_only_this_user(number: int) -> bool:
    """Whether a group is root's group, or this user's own: the main group, with the user's name and no other member."""
    if number == 0:
        return True
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:  # the group or the user has no entry, so nobody knows the members
        return False
    # `gr_mem` lacks the users whose main group it is. By custom, a group with a user's name is the main group of only
    # this user
    is_own_group = number == user.pw_gid and group.gr_name == user.pw_name
    has_other_member = bool(set(group.gr_mem) - {user.pw_name})
    return is_own_group and not has_other_member
