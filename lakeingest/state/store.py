"""The documents of the state folder: JSON files, each complete when it exists, also after a crash.

`storage_errors` names every failure of the state folder, also for the rooms that write other files into it.
"""

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakeingest.disk import sync
from lakeingest.errors import Retryable, StorageFailed


def create(path: Path, doc: Mapping[str, Any]) -> bool:
    """Make the document; False, and nothing is changed, when it exists. StorageFailed when it cannot be written."""
    with storage_errors(path), _whole(path, doc) as new:
        try:
            os.link(new, path)
        except FileExistsError:
            return False
    return True


def replace(path: Path, doc: Mapping[str, Any]) -> None:
    """Make or replace the document: a reader sees the old or the new one. StorageFailed when it cannot be written."""
    with storage_errors(path), _whole(path, doc) as new:
        new.replace(path)


def append(path: Path, doc: Mapping[str, Any]) -> None:
    """Add a line with the document to a file of such lines; it is durable then. StorageFailed when it cannot be added.

    Processes that append at once wait for each other. A line that a crash cut short stays, and is no document.
    """
    with storage_errors(path):
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


def read(path: Path) -> Any:
    """The document. OSError or ValueError when it does not exist or cannot be read."""
    return json.loads(path.read_bytes())


def make_folder(path: Path) -> None:
    """Make the folder if it is missing. StorageFailed when it cannot be made."""
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def delete(path: Path) -> None:
    """Remove the document if it exists. StorageFailed when it cannot be removed."""
    with storage_errors(path):
        path.unlink(missing_ok=True)


@contextmanager
def storage_errors(path: Path, action: str = "written") -> Iterator[None]:
    """StorageFailed, which names the path, when the block cannot write there; Retryable when memory is short.

    Errors of connections pass: a block may read from the source what it writes.
    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be {action}: {path}: {error.strerror or error}; make room or repair it, then run"
            " the same command again"
        ) from error
    except MemoryError as error:
        raise Retryable(
            f"{path}: memory is short: {error}; give the run more, then run the same command again"
        ) from error


@contextmanager
def _whole(path: Path, doc: Mapping[str, Any]) -> Iterator[Path]:
    """A durable file with the document, beside `path`; what the block makes of it is durable, too."""
    new = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.new")  # two runs must not write into one file
    try:
        with new.open("w") as file:
            json.dump(doc, file)
            file.flush()
            os.fsync(file.fileno())
        yield new
        sync(path.parent)
    finally:
        new.unlink(missing_ok=True)
