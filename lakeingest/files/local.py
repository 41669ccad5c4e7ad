"""A file or folder of this machine: a path with the operations of `File`.

A document is complete when it exists, even after a crash. Reads and removals follow no symbolic link, because the
target of a link may belong to somebody else.
"""

import fcntl
import json
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from typing import Any, BinaryIO, Self

from lakeingest import disk
from lakeingest.files import traffic

MOST_BYTES = 1 << 30  # the largest document
_DEPTH = 2  # how many folders above a file are looked at for links


class Local(PosixPath):
    """A path of this machine, with the names and comparisons of `PosixPath`; `File` describes the operations."""

    __slots__ = ()

    def create(self, doc: Mapping[str, Any]) -> bool:
        """Write a durable file under another name, then link this name to the file."""
        with self._new_file(json.dumps(doc).encode()) as new:
            try:
                os.link(new, self)
            except FileExistsError:
                # True if this call has made the link: a network file system repeats a request whose answer is lost
                return self.samefile(new)
        return True

    def create_from(self, contents: bytes) -> bool:
        """As `File.create_from`: write a durable hidden file, then link this name to it, unless the name exists."""
        with self._new_file(contents, hidden=True) as new:
            try:
                os.link(new, self)
            except FileExistsError:
                # `samefile` as in `create`, so that the contents are read only if another call has made the file
                return self.samefile(new) or self.read_bytes() == contents
        return True

    def put_document(self, doc: Mapping[str, Any]) -> None:
        """Write a durable file under another name, then rename it to this name."""
        with self._new_file(json.dumps(doc).encode()) as new:
            new.replace(self)

    def put_after(self, doc: Mapping[str, Any], seen: Any) -> Any:  # noqa: ARG002 - a disk has no conditions
        """Replace the document without a condition, because on one machine the lock of the lease lets one run write."""
        self.put_document(doc)
        return True

    def put(self, contents: bytes) -> None:
        """Write a durable file under another name, then rename it to this name."""
        with self._new_file(contents) as new:
            new.replace(self)

    def append(self, doc: Mapping[str, Any]) -> None:
        """Add a line to a file. Processes that append at the same time wait for each other.

        If a crash has cut the last line short, that line stays, and the new document begins on a line of its own.
        """
        self.parent.mkdir(parents=True, exist_ok=True)
        with self.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            has_lines = file.seek(0, os.SEEK_END) > 0
            is_cut_short = has_lines and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write((b"\n" if is_cut_short else b"") + json.dumps(doc).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if not has_lines:  # the file may be new: its name becomes durable, too
            self.parent.sync()

    def lines(self) -> list[bytes]:
        """The lines of the file."""
        return self.read_bytes().splitlines() if self.exists() else []

    def read(self) -> bytes:
        """The contents.

        Raises ValueError for a device, pipe or folder, and for a file of more than `MOST_BYTES`. Raises OSError for a
        link.
        """
        # O_NONBLOCK: the open of a pipe does not wait for a writer
        descriptor = os.open(self, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{self} is no file")
            if status.st_size > MOST_BYTES:
                raise ValueError(f"{self} has {status.st_size:,} bytes, and a document has at most {MOST_BYTES:,}")
            return file.read(MOST_BYTES)

    def read_seen(self) -> tuple[bytes, Any]:
        """The contents, and None as the version: a disk has no versions."""
        return self.read(), None

    def read_together(self, files: Sequence[Self]) -> list[bytes]:
        """The contents of the files. On this machine, one file is read after the other."""
        return [file.read() for file in files]

    def write(self, contents: bytes) -> None:
        """Write into the file. A crash may leave a part of the contents."""
        self.write_bytes(contents)
        traffic.count_file(len(contents))

    def make(self) -> bool:
        """Make the file, unless the name exists."""
        try:
            self.touch(exist_ok=False)
        except FileExistsError:
            return False
        traffic.count_file(0)
        return True

    def delete(self) -> None:
        """Unlink the file."""
        self.unlink(missing_ok=True)

    def delete_together(self, files: Sequence[Self]) -> None:
        """Remove the files, and folders with their contents. A link is removed, and its target stays.

        What cannot be removed from a folder stays, and no error is raised.
        """
        for file in files:
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file, ignore_errors=True)
            else:
                file.unlink(missing_ok=True)

    def move_to(self, to: Self) -> None:
        """Rename the file."""
        self.replace(to)

    def copy_to(self, to: Self) -> None:
        """Copy the contents."""
        shutil.copyfile(self, to)

    def listed(self, pattern: str) -> list[Self]:
        """The matching files and folders. Raises OSError for an unreadable folder, whose files `glob` leaves out."""
        own, _, below = pattern.partition("/")  # for names in this folder, and for what is below them
        try:
            matching = [file for file in self.iterdir() if fnmatchcase(file.name, own)]
        except FileNotFoundError:
            return []
        if below:
            matching = [file for folder in matching if folder.is_dir() for file in folder.listed(below)]
        return sorted(matching)

    def looked_at(self) -> Self:
        """The file itself, because size and time are asked of the disk in every call."""
        return self

    def size(self) -> int:
        """The present size."""
        return self.stat().st_size

    def changed(self) -> float:
        """The modification time."""
        return self.stat().st_mtime

    def set_changed(self, moment: float) -> None:
        """Set the modification time and the access time."""
        os.utime(self, (moment, moment))

    def version(self) -> Hashable:
        """The inode and the modification time: each put makes another inode."""
        status = self.stat()
        return status.st_ino, status.st_mtime_ns

    def now(self) -> float:
        """The time of this machine's clock."""
        return time.time()

    def make_folder(self, *, private: bool = False) -> None:
        """Make the folder. Only the user of this process can look into a private folder."""
        disk.make_folder(self, disk.PRIVATE) if private else disk.make_folder(self)

    def sync(self) -> None:
        """Flush the folder to the disk."""
        disk.sync(self)

    def is_there(self) -> bool:
        """Whether the folder exists, with or without files."""
        return self.exists()

    def subfolders(self) -> list[str]:
        """The names of the folders, and of links to folders. Raises OSError if the folder cannot be read."""
        try:
            with os.scandir(self) as entries:  # it knows which are folders, without a question for each entry
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def tree(self) -> list[Self]:
        """The files; none if the folder is a link. Links in the folder are left out and not followed."""
        # [1:] leaves out the folder itself
        return [path for path in self.self_and_below()[1:] if path.is_file() and not path.is_symlink()]

    def self_and_below(self) -> list[Self]:
        """The folder, then everything at any depth below it, sorted. If the folder is a link, only the link."""
        return [self, *([] if self.is_symlink() else sorted(self.rglob("*")))]

    def is_behind_link(self) -> bool:
        """Whether the file, its folder or the folder above is a symbolic link.

        Also True if the path is a folder: `sweep` must delete only files.
        """
        return self.is_dir() or any(path.is_symlink() for path in (self, *list(self.parents)[:_DEPTH]))

    def probe(self) -> None:
        """Write a file into a new folder in the nearest existing parent, and remove both."""
        with tempfile.TemporaryDirectory(prefix=".lakeingest-", dir=self._nearest_existing()) as made:
            (Path(made) / "written").write_text("a file can be written")

    def free_bytes(self) -> int | None:
        """The free bytes on the disk of the nearest existing parent."""
        return shutil.disk_usage(self._nearest_existing()).free

    def draft(self) -> Path:
        """The file itself, which is written in place."""
        return self

    def take(self, draft: Path) -> None:
        """Make the contents durable. The name of the file is durable once its folder is synced."""
        disk.sync(draft)
        traffic.count_file(draft.stat().st_size)

    def source(self) -> Any:
        """The path, which PyArrow opens."""
        return self

    def open_lasting(self) -> BinaryIO:
        """The open file, which can be read after its name is removed."""
        return self.open("rb")

    def _nearest_existing(self) -> Self:
        """The path itself, or the nearest folder above it that exists."""
        return next(path for path in (self, *self.parents) if path.exists())

    @contextmanager
    def _new_file(self, contents: bytes, *, hidden: bool = False) -> Iterator[Self]:
        """A durable new file with these contents in the same folder. Engines do not read a `hidden` one as data.

        The block links or renames the new file. After the block, the name that the block gave it is durable, and the
        first name is removed.
        """
        stem = f".{self.stem}" if hidden else self.stem
        new = self.with_name(f"{stem}-{uuid.uuid4().hex}.new")  # unique, so that two runs never share a file
        try:
            with new.open("wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            traffic.count_file(len(contents))
            yield new
            self.parent.sync()
        finally:
            new.unlink(missing_ok=True)
