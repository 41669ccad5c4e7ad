"""What was written to a local disk survives a power loss: files, and the names in their folders."""

import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, durably."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        sync(one.parent)


def sync(path: Path) -> None:
    """Bring a file that was written, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
