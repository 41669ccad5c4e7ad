"""Chooses the folder of compiled kernels: one for each content of this package, version of numba and processor.

Numba itself stores a kernel by its source file, but a kernel's steps come from other files; and numba uses only folders
that it can write. This module does not import numba, which takes a second.
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
_COMPLETE = "complete"  # an empty file: the folder has every kernel

_log = logging.getLogger(__name__)


@cache
def folder() -> Path | None:
    """The first folder that has every kernel or can be written; None, with a warning, if no folder qualifies.

    If NUMBA_CACHE_DIR is set, only that folder is tried; else this package's folder, the user's, and one in the folder
    for temporary files. The kernels in the folder are executed, so nobody else may be able to write to it.
    """
    name = _name()
    for parent in _parents():
        if (_is_complete(parent / name) or _is_writable(parent / name)) and _is_ours(parent / name):
            return parent / name
    _log.warning(
        "no folder for compiled kernels can be written by this user alone: each process compiles them; set"
        " NUMBA_CACHE_DIR to such a folder"
    )
    return None


def is_complete() -> bool:
    """Whether the folder has every kernel."""
    path = folder()
    return path is not None and _is_complete(path)


def mark_complete() -> None:
    """Mark the folder, if any, as having every kernel."""
    path = folder()
    if path is not None:
        with suppress(OSError):  # it is marked already, or the disk is full
            (path / _COMPLETE).touch(exist_ok=False)


def compiled_files() -> list[Path]:
    """The files of the compiled kernels."""
    kernels = folder()
    return [] if kernels is None else sorted(file for file in kernels.iterdir() if ".tmp." not in file.name)


def _name() -> str:
    """The folder's name: a digest of this package's sources, numba's version, Python and the processor."""
    from llvmlite.binding import get_host_cpu_name

    digest = hashlib.sha256()
    for source in sorted(files(__package__).iterdir(), key=lambda source: source.name):
        if source.name.endswith(".py"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    processor = os.environ.get("NUMBA_CPU_NAME") or get_host_cpu_name()
    digest.update(" ".join((version("numba"), str(sys.implementation.cache_tag), processor)).encode())
    return f"kernels-{digest.hexdigest()[:16]}"


def _parents() -> Iterator[Path]:
    """The folders in which the folder of kernels may be, in the order of preference."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(configured).absolute()
        return
    yield _PACKAGE / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where it is unknown
    places = [Path(home, "lakeingest")]
    with suppress(FileNotFoundError):  # no temporary folder can be written
        places.append(Path(tempfile.gettempdir(), f"lakeingest-{os.getuid()}"))
    yield from (place for place in places if place.is_absolute() and private_folder(place))


def _is_ours(path: Path) -> bool:
    """Whether only we can write to the folder. Inside this package, whoever can write to the package may, too."""
    if is_private(path):
        return True
    if _PACKAGE not in path.parents:
        return False
    package = _PACKAGE.stat()
    return all(_is_as(inner.lstat(), package) for inner in (path, path.parent))


def _is_as(status: os.stat_result, package: os.stat_result) -> bool:
    """Whether the status belongs to a folder to which only people can write who can also write to the package."""
    others = stat.S_IWGRP | stat.S_IWOTH
    is_as_closed = not status.st_mode & others & ~package.st_mode and status.st_gid == package.st_gid
    return stat.S_ISDIR(status.st_mode) and status.st_uid == package.st_uid and is_as_closed


def _is_complete(path: Path) -> bool:
    return os.path.exists(path / _COMPLETE)  # noqa: PTH110 - False also without permission to look


def _is_writable(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK)
