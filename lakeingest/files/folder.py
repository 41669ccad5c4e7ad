"""Folders as a whole, in a file system or in an object store: what is below them, and how all of it goes away.

A program that thinks in folders puts an empty object into a store for each. A listing has them as files of no bytes.
A symbolic link in a file system is neither a folder nor a file of ours: what is behind it may be of others.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from lakeingest.files.file import File
from lakeingest.files.stored import Stored


def is_there(folder: File) -> bool:
    """Whether a folder exists; in a store, whether it has a file."""
    return folder.exists() if isinstance(folder, Path) else folder.has_files()


def subfolders(folder: File) -> list[str]:
    """The names of the folders in a folder; none where there is no such folder."""
    if isinstance(folder, Stored):
        return folder.subfolders()
    return sorted(path.name for path in folder.glob("*") if path.is_dir())


def tree(folder: File) -> list[File]:
    """The files at any depth below a folder, sorted; none where there is no such folder, or it is a link."""
    if isinstance(folder, Stored):
        return list[File](folder.tree())
    return list[File](path for path in whole(folder)[1:] if path.is_file() and not path.is_symlink())


def whole(folder: Path) -> list[Path]:
    """A folder of this machine and all that is at any depth below it, sorted; of a link nothing but itself."""
    return [folder, *([] if folder.is_symlink() else sorted(folder.rglob("*")))]


def delete_all(files: Iterable[File]) -> None:
    """Remove files, and folders with all that is in them; those that are not there are passed over."""
    stored = []
    for file in files:
        if isinstance(file, Stored):
            stored.append(file)
        elif file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
    for bucket in {file.bucket for file in stored}:
        bucket.delete([file.key for file in stored if file.bucket == bucket])
