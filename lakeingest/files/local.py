"""Files of this machine, each complete when it exists, also after a crash; most have a document, in JSON."""

import fcntl
import json
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakeingest.disk import sync

MOST_BYTES = 1 << 30  # of a document


def create(path: Path, doc: Mapping[str, Any]) -> bool:
    """Make the document; False, and nothing is changed, when it exists."""
    with _whole(path, json.dumps(doc).encode()) as new:
        try:
            os.link(new, path)
        except FileExistsError:  # a network file system may lose the answer to its request, and send it again
            return path.samefile(new)
    return True


def replace(path: Path, doc: Mapping[str, Any]) -> None:
    """Make or replace the document: a reader sees the old or the new one."""
    put(path, json.dumps(doc).encode())


def put(path: Path, contents: bytes) -> None:
    """Make or replace the file: a reader sees the old or the new contents."""
    with _whole(path, contents) as new:
        new.replace(path)


def read(path: Path) -> bytes:
    """The contents of a document; ValueError for what none of ours can be: a link, a device, a pipe, or a huge file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no file")
        if found.st_size > MOST_BYTES:
            raise ValueError(f"{path} has {found.st_size:,} bytes, more than any document of ours")
        return file.read(MOST_BYTES)


def append(path: Path, doc: Mapping[str, Any]) -> None:
    """Add a line with the document to a file of such lines; it is durable then.

    Processes that append at once wait for each other. A line that a crash cut short stays, and is no document.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        begun = file.seek(0, os.SEEK_END) > 0
        torn = begun and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
        file.write((b"\n" if torn else b"") + json.dumps(doc).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if not begun:
        sync(path.parent)


@contextmanager
def _whole(path: Path, contents: bytes) -> Iterator[Path]:
    """A durable file with these contents, beside `path`; what the block makes of it is durable, too."""
    new = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.new")  # two runs must not write into one file
    try:
        with new.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        yield new
        sync(path.parent)
    finally:
        new.unlink(missing_ok=True)
