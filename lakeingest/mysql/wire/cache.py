"""Chooses the folder of compiled kernels: one for each content of this package, version of numba and processor.

Numba's own cache does not suffice. It compiles a kernel anew if the kernel's source file has changed, but the steps of
a kernel are in other files, too. And it does not use a folder that it cannot write to. This module does not import
numba, because the import is slow.
"""

import hashlib
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from lakeingest.disk import is_private, private_folder

_PACKAGE = Path(__file__).parent
_COMPLETE = "complete"  # an empty file in a folder that has every kernel

_log = logging.getLogger(__name__)


@cache
def folder() -> Path | None:
    """The first folder that has every kernel or can be written to; None, with a warning, if there is no such folder.

    If NUMBA_CACHE_DIR is set, only a folder in it is tried. Else folders in this package, in the user's cache and in
    the folder for temporary files are tried, in this order. A folder to which another user can write is not used,
    because the kernels in it are executed.
    """
    name = _name()
    for parent in _parents():
        path = parent / name
        is_usable = _is_complete(path) or _make_writable(path)
        if is_usable and _is_safe(path):
            return path
    _log.warning(
        "no folder for compiled kernels can be written by this user alone: each process compiles them; set"
        " NUMBA_CACHE_DIR to such a folder"
    )
    return None


def is_complete() -> bool:
    """Whether the chosen folder has every kernel; False if no folder was chosen."""
    path = folder()
    return path is not None and _is_complete(path)


def mark_complete() -> None:
    """Note in the chosen folder that it has every kernel; do nothing if no folder was chosen."""
    path = folder()
    if path is not None:
        with suppress(OSError):  # the file exists already, or the disk is full
            (path / _COMPLETE).touch(exist_ok=False)


def compiled_files() -> list[Path]:
    """The files in the chosen folder, without those that are being written; empty if no folder was chosen."""
    path = folder()
    # numba writes a file under a name with `.tmp.` first
    return [] if path is None else sorted(file for file in path.iterdir() if ".tmp." not in file.name)


def _name() -> str:
    """The name of the folder: a digest of this package's sources, the versions of numba and Python, the processor."""
    from llvmlite.binding import get_host_cpu_name

    digest = hashlib.sha256()
    for source in sorted(files(__package__).iterdir(), key=lambda source: source.name):
        if source.name.endswith(".py"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    processor = os.environ.get("NUMBA_CPU_NAME") or get_host_cpu_name()
    digest.update(" ".join((version("numba"), str(sys.implementation.cache_tag), processor)).encode())
    return f"kernels-{digest.hexdigest()[:16]}"


def _parents() -> Iterator[Path]:
    """Yield the folders in which the folder of kernels can be, the best first.

    Makes the folders in the user's cache and in the folder for temporary files, if they are missing. Leaves out a
    folder of these two to which another user can write.
    """
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(configured).absolute()
        return
    yield _PACKAGE / "__pycache__"
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where it is unknown
    parents = [Path(user_cache, "lakeingest")]
    with suppress(FileNotFoundError):  # raised if no folder for temporary files can be written to
        parents.append(Path(tempfile.gettempdir(), f"lakeingest-{os.getuid()}"))
    yield from (parent for parent in parents if parent.is_absolute() and private_folder(parent))


def _is_safe(path: Path) -> bool:
    """Whether the kernels in the folder may be executed, because no other user can have put them there.

    In this package another user may write to the folder, if that user can also write to the package: such a user could
    change the program itself.
    """
    if is_private(path):
        return True
    if _PACKAGE not in path.parents:
        return False
    package = _PACKAGE.stat()
    return all(_is_as_safe_as(inner.lstat(), package) for inner in (path, path.parent))


def _is_as_safe_as(inner: os.stat_result, package: os.stat_result) -> bool:
    """Whether `inner` is a folder, and each user who can write to it can also write to the package.

    The arguments are the status of `inner` and of the package.
    """
    write_bits = stat.S_IWGRP | stat.S_IWOTH  # of the group and of all users
    added_bits = inner.st_mode & write_bits & ~package.st_mode  # those that the package does not have
    has_same_owners = inner.st_uid == package.st_uid and inner.st_gid == package.st_gid
    return stat.S_ISDIR(inner.st_mode) and has_same_owners and not added_bits


def _is_complete(path: Path) -> bool:
    return os.path.exists(path / _COMPLETE)  # noqa: PTH110 - False also without permission to look


def _make_writable(path: Path) -> bool:
    """Make the folder, if it does not exist. Returns whether this process can write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK)
