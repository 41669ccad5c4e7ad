"""A small JSON file of the state folder that is whole when it exists, also after a crash."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakeingest.disk import sync
from lakeingest.errors import StorageFailed


def create(path: Path, doc: Mapping[str, Any]) -> bool:
    """Make the file; False, and nothing is changed, when it exists already. StorageFailed when it cannot be written."""
    with writing(path), _whole(path, doc) as new:
        try:
            os.link(new, path)
        except FileExistsError:
            return False
    return True


def replace_whole(path: Path, doc: Mapping[str, Any]) -> None:
    """Replace the file: a reader sees the old or the new one. StorageFailed when it cannot be written."""
    with writing(path), _whole(path, doc) as new:
        new.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """StorageFailed, which names the path, when the block cannot write there."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"the state folder cannot be written: {path}: {error.strerror}") from error


@contextmanager
def _whole(path: Path, doc: Mapping[str, Any]) -> Iterator[Path]:
    """The document in a file beside `path`, safe on the disk; so is what the block makes of it."""
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
