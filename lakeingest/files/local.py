"""A file or folder of this machine: a path with the operations of `File`.

A document is complete when it exists, also after a crash. Reads and removals follow no symbolic link: its target may
belong to somebody else.
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
from pathlib import Path, PosixPath
from typing import Any, BinaryIO, Self

from lakeingest import disk

MOST_BYTES = 1 << 30  # of a document
_DEPTH = 2  # of folders that are swept as one


class Local(PosixPath):
    """A path of this machine. Names, parts and comparisons are those of a path; see `File` for the operations."""

    __slots__ = ()

    def create(self, doc: Mapping[str, Any]) -> bool:
        """Link a durable file to the name."""
        with self._whole(json.dumps(doc).encode()) as new:
            try:
                os.link(new, self)
            except FileExistsError:  # a network file system may lose the answer to its request, and send it again
                return self.samefile(new)
        return True

    def put_document(self, doc: Mapping[str, Any]) -> None:
        """Rename a durable file."""
        with self._whole(json.dumps(doc).encode()) as new:
            new.replace(self)

    def put_after(self, doc: Mapping[str, Any], seen: Any) -> Any:  # noqa: ARG002 - a disk has no conditions
        """Whatever is there: of runs on one machine the lock of the lease lets one write."""
        self.put_document(doc)
        return True

    def put(self, contents: bytes) -> None:
        """Rename a durable file."""
        with self._whole(contents) as new:
            new.replace(self)

    def append(self, doc: Mapping[str, Any]) -> None:
        """Processes that append at once wait for each other. A line that a crash cut short stays, and is no document.

        The log is a file.
        """
        self.parent.mkdir(parents=True, exist_ok=True)
        with self.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            begun = file.seek(0, os.SEEK_END) > 0
            torn = begun and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write((b"\n" if torn else b"") + json.dumps(doc).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if not begun:
            self.parent.sync()

    def lines(self) -> list[bytes]:
        """The lines of the file."""
        return self.read_bytes().splitlines() if self.exists() else []

    def read(self) -> bytes:
        """ValueError if it is a device, a pipe or a folder, or larger than any document. A link is an OSError."""
        descriptor = os.open(self, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{self} is no file")
            if found.st_size > MOST_BYTES:
                raise ValueError(f"{self} has {found.st_size:,} bytes, and a document has at most {MOST_BYTES:,}")
            return file.read(MOST_BYTES)

    def read_seen(self) -> tuple[bytes, Any]:
        """A disk has no versions to see."""
        return self.read(), None

    def read_together(self, files: Sequence[Self]) -> list[bytes]:
        """One after the other."""
        return [file.read() for file in files]

    def write(self, contents: bytes) -> None:
        """A crash may leave a part of it."""
        self.write_bytes(contents)

    def delete(self) -> None:
        """Unlink it."""
        self.unlink(missing_ok=True)

    def delete_together(self, files: Sequence[Self]) -> None:
        """A folder is removed with its contents. Of a link, the link is removed, and its target stays."""
        for file in files:
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file, ignore_errors=True)
            else:
                file.unlink(missing_ok=True)

    def move_to(self, to: Self) -> None:
        """Rename it."""
        self.replace(to)

    def copy_to(self, to: Self) -> None:
        """Copy the contents."""
        shutil.copyfile(self, to)

    def listed(self, pattern: str) -> list[Self]:
        """Folders are listed, too."""
        return sorted(self.glob(pattern))

    def looked_at(self) -> Self:
        """A disk is asked anew each time."""
        return self

    def size(self) -> int:
        """By the disk."""
        return self.stat().st_size

    def changed(self) -> float:
        """By the disk."""
        return self.stat().st_mtime

    def set_changed(self, moment: float) -> None:
        """The time of the last access, too."""
        os.utime(self, (moment, moment))

    def version(self) -> Hashable:
        """Each put makes another inode."""
        found = self.stat()
        return found.st_ino, found.st_mtime_ns

    def now(self) -> float:
        """The clock of this machine."""
        return time.time()

    def make_folder(self, *, private: bool = False) -> None:
        """Only the user of this process can look into a private one."""
        disk.make_folder(self, disk.PRIVATE) if private else disk.make_folder(self)

    def sync(self) -> None:
        """Flush it."""
        disk.sync(self)

    def is_there(self) -> bool:
        """An empty folder exists, too."""
        return self.exists()

    def subfolders(self) -> list[str]:
        """Links to folders are among them."""
        return sorted(path.name for path in self.glob("*") if path.is_dir())

    def tree(self) -> list[Self]:
        """Empty if the folder is a link. Links in the folder are not followed."""
        return [path for path in self.whole()[1:] if path.is_file() and not path.is_symlink()]

    def whole(self) -> list[Self]:
        """The folder and all that is at any depth below it, sorted; of a link nothing but itself."""
        return [self, *([] if self.is_symlink() else sorted(self.rglob("*")))]

    def is_behind_link(self) -> bool:
        """Whether it, its folder or the folder above is a symbolic link. Also true for a folder, which is no file."""
        return self.is_dir() or any(one.is_symlink() for one in (self, *list(self.parents)[:_DEPTH]))

    def probe(self) -> None:
        """In the nearest existing parent."""
        with tempfile.TemporaryDirectory(prefix=".lakeingest-", dir=self._nearest_existing()) as made:
            (Path(made) / "written").write_text("a file can be written")

    def free_bytes(self) -> int | None:
        """The room on the disk of the nearest existing parent."""
        return shutil.disk_usage(self._nearest_existing()).free

    def draft(self) -> Path:
        """The file itself."""
        return self

    def take(self, draft: Path) -> None:
        """The name is durable once its folder is synced."""
        disk.sync(draft)

    def source(self) -> Any:
        """PyArrow opens files of this machine."""
        return self

    def lasting(self) -> BinaryIO:
        """An open file outlives its name."""
        return self.open("rb")

    def _nearest_existing(self) -> Self:
        return next(path for path in (self, *self.parents) if path.exists())

    @contextmanager
    def _whole(self, contents: bytes) -> Iterator[Self]:
        """A durable file with these contents, beside this one; what the block makes of it is durable, too."""
        new = self.with_name(f"{self.stem}-{uuid.uuid4().hex}.new")  # two runs must not write into one file
        try:
            with new.open("wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            yield new
            self.parent.sync()
        finally:
            new.unlink(missing_ok=True)
