"""Checks of a local folder that a run will write to; they leave nothing behind."""

import shutil
import tempfile
from pathlib import Path


def unwritable(name: str, folder: Path) -> str | None:
    """Why no file can be created in the folder or its nearest existing parent; None when one can."""
    try:
        with tempfile.TemporaryDirectory(prefix=".lakeingest-", dir=_nearest_existing(folder)) as probe:
            (Path(probe) / "written").write_text("a file can be written")
    except OSError as error:
        fix = "make it writable, or name another one in pipeline.yml"
        return f"the {name} {folder} cannot be written: {error.strerror}; {fix}"
    return None


def lacks_room(folder: Path, wanted: int) -> str | None:
    """A finding when the folder's disk has less than `wanted` bytes free; else None."""
    try:
        free = shutil.disk_usage(_nearest_existing(folder)).free
    except OSError as error:
        return f"{folder}: its free space is unknown: {error.strerror}"
    if free >= wanted:
        return None
    return f"{folder} has {_gib(free)} free, less than {_gib(wanted)}; free some, or name another one in pipeline.yml"


def _nearest_existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
