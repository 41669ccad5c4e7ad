"""Files of a local disk that survive a power loss, with the names in their folders."""

import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, durably."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path, since: float) -> None:
    """Flush all names of a folder to the disk, and the files that were changed since then (seconds since 1970)."""
    for path in (folder, *(one for one in folder.rglob("*") if not one.is_symlink())):
        if path.is_dir() or path.stat().st_mtime >= since:
            sync(path)
