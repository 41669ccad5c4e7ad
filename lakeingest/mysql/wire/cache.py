"""Where compiled kernels are stored: a folder per content of this package, version of numba and processor.

Numba keys its own folders by the source file of a kernel alone, but a kernel's steps come from other files; and numba
uses only folders that it can write. This module does not import numba, which takes a second.
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

_COMPLETE = "complete"  # an empty file: the folder has every kernel

_log = logging.getLogger(__name__)


@cache
def folder() -> Path | None:
    """The first folder that has every kernel or can be written; None, with a warning, where no folder qualifies.

    Where NUMBA_CACHE_DIR is set, only that is tried; else this package's folder, the user's, and one in the folder for
    temporary files.
    """
    name = _name()
    for parent in _parents():
        if _is_complete(parent / name) or _is_writable(parent / name):
            return parent / name
    _log.warning("no folder for compiled kernels can be written: each process compiles them; set NUMBA_CACHE_DIR")
    return None


def is_complete() -> bool:
    """Whether the folder has every kernel."""
    found = folder()
    return found is not None and _is_complete(found)


def mark_complete() -> None:
    """Mark the folder, if any, as having every kernel."""
    found = folder()
    if found is not None:
        with suppress(OSError):  # it is marked already, or the disk is full
            (found / _COMPLETE).touch(exist_ok=False)


def compiled_files() -> list[Path]:
    """The files of the compiled kernels."""
    found = folder()
    return [] if found is None else sorted(path for path in found.iterdir() if ".tmp." not in path.name)


def _name() -> str:
    from llvmlite.binding import get_host_cpu_name

    digest = hashlib.sha256()
    for source in sorted(files(__package__).iterdir(), key=lambda source: source.name):
        if source.name.endswith(".py"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    processor = os.environ.get("NUMBA_CPU_NAME") or get_host_cpu_name()
    digest.update(" ".join((version("numba"), str(sys.implementation.cache_tag), processor)).encode())
    return f"kernels-{digest.hexdigest()[:16]}"


def _parents() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named).absolute()
        return
    yield Path(__file__).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where it is unknown
    if _is_private(Path(home, "lakeingest")):
        yield Path(home, "lakeingest")
    with suppress(FileNotFoundError):  # no temporary folder can be written
        temporary = Path(tempfile.gettempdir(), f"lakeingest-{os.getuid()}")
        if _is_private(temporary):
            yield temporary


def _is_private(parent: Path) -> bool:
    """Whether nobody else can write to the folder: the code in it is executed."""
    if not parent.is_absolute():
        return False
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = parent.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _is_complete(found: Path) -> bool:
    return os.path.exists(found / _COMPLETE)  # noqa: PTH110 - False also without permission to look


def _is_writable(found: Path) -> bool:
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(found, os.W_OK)
