"""Where compiled kernels are kept: a folder for each content of this package, each numba and each processor.

Numba's own folders are keyed by the one file that a kernel stands in, while its steps come from others; and numba takes
only those that it can write. Nothing here imports numba, which takes a second.
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

_COMPLETE = "complete"  # the file that says that every kernel is there

_log = logging.getLogger(__name__)


@cache
def folder() -> Path | None:
    """The first of the folders that has every kernel or can be written; None, with a warning, where there is none.

    NUMBA_CACHE_DIR alone where it is set. Else this package's own, the user's, and one for temporary files.
    """
    name = _name()
    for parent in _parents():
        if _is_complete(parent / name) or _is_writable(parent / name):
            return parent / name
    _log.warning("no folder for compiled kernels can be written: each process compiles them; set NUMBA_CACHE_DIR")
    return None


def is_complete() -> bool:
    """Whether every kernel is kept."""
    kept = folder()
    return kept is not None and _is_complete(kept)


def complete() -> None:
    """Say that every kernel is kept, if there is a folder."""
    kept = folder()
    if kept is not None:
        with suppress(OSError):  # it is said already, or the folder is full
            (kept / _COMPLETE).touch(exist_ok=False)


def kept() -> list[Path]:
    """The files that are kept."""
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
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - it need not be known
    if _is_private(Path(home, "lakeingest")):
        yield Path(home, "lakeingest")
    with suppress(FileNotFoundError):  # where nothing at all can be written
        temporary = Path(tempfile.gettempdir(), f"lakeingest-{os.getuid()}")
        if _is_private(temporary):
            yield temporary


def _is_private(parent: Path) -> bool:
    """Whether nobody else can put code there, for what is kept there is run."""
    if not parent.is_absolute():
        return False
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = parent.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _is_complete(kept: Path) -> bool:
    return os.path.exists(kept / _COMPLETE)  # noqa: PTH110 - False also where we may not look


def _is_writable(kept: Path) -> bool:
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(kept, os.W_OK)
