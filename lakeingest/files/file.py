"""A file or folder of the state: on this machine (`Local`), or in an object store (`Stored`), with the same operations.

A file is a value. A document is a file of JSON: it is complete when it exists, also after a crash.
"""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self

from lakeingest.files import kept
from lakeingest.files.local import Local
from lakeingest.files.stored import AT_ONCE, NONCE, Stored

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from lakeingest.config import Config
    from lakeingest.config.place import Place
    from lakeingest.config.storage import Storage


class File(Protocol):
    """A file, or a folder. Operations on a missing one raise FileNotFoundError, unless they say otherwise."""

    @property
    def name(self) -> str:
        """The last part of the name."""

    @property
    def stem(self) -> str:
        """The last part of the name, without its suffix."""

    @property
    def suffix(self) -> str:
        """The suffix of the name, such as .json."""

    @property
    def parent(self) -> Self:
        """The folder that it is in."""

    def __truediv__(self, name: str, /) -> Self: ...

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...

    def with_suffix(self, suffix: str) -> Self:
        """The file with the same stem and another suffix in the same folder."""

    # documents

    def create(self, doc: Mapping[str, Any]) -> bool:
        """Make a document. False, and nothing is changed, if the file exists. Of several writers, one makes it."""

    def put_document(self, doc: Mapping[str, Any]) -> Any:
        """Make or replace a document. A reader sees the old or the new one. Returns the `seen` for `put_after`."""

    def put_after(self, doc: Mapping[str, Any], seen: Any) -> Any:
        """Replace the document that was `seen`, like `put_document`. None if a store has a newer one, which stays."""

    def read(self) -> bytes:
        """The contents."""

    def read_seen(self) -> tuple[bytes, Any]:
        """The contents, and the `seen` for `put_after`."""

    def read_together(self, files: Sequence[Self]) -> list[bytes]:
        """The contents of several files of this bucket or machine."""

    def append(self, doc: Mapping[str, Any]) -> None:
        """Add a line with a document to a log, durably."""

    def lines(self) -> list[bytes]:
        """The lines of a log, in order; none where there is no log."""

    # files

    def put(self, contents: bytes) -> None:
        """Make or replace a file, durably. A reader sees the old or the new contents. No other process may write it."""

    def write(self, contents: bytes) -> None:
        """Make or replace a file that no other process writes. A crash may leave a part of a local one."""

    def delete(self) -> None:
        """Remove the file if it exists."""

    def delete_together(self, files: Sequence[Self]) -> None:
        """Remove files of this bucket or machine, and folders with their contents. Missing ones are passed over."""

    def move_to(self, to: Self) -> None:
        """Give the file another name, in the same bucket or on the same machine."""

    def copy_to(self, to: Self) -> None:
        """Make a copy, in the same bucket or on the same machine."""

    def exists(self) -> bool:
        """Whether the file exists. A folder of this machine counts, too."""

    def looked_at(self) -> Self:
        """The file as a listing would return it: a file in a store has what the store says about it now."""

    def size(self) -> int:
        """The size in bytes."""

    def changed(self) -> float:
        """The time when the file was written, in seconds since 1970."""

    def set_changed(self, moment: float, /) -> None:
        """Set the time when the file was written. In a store this does nothing."""

    def version(self) -> Hashable:
        """A value that stays the same while the contents stay the same."""

    # folders

    def make_folder(self, *, private: bool = False) -> None:
        """Make the folder and its missing parents, durably; `private`: for this user alone.

        A store needs no folders.
        """

    def sync(self) -> None:
        """Make the names in the folder durable."""

    def is_there(self) -> bool:
        """Whether the folder exists; in a store, whether it has a file."""

    def listed(self, pattern: str) -> list[Self]:
        """The files of the folder whose names match, sorted.

        `*` does not match a slash. Empty if there is no folder.
        """

    def subfolders(self) -> list[str]:
        """The names of the folders in the folder. Empty if there is no such folder."""

    def tree(self) -> list[Self]:
        """The files at any depth below the folder, sorted. Empty if there is no such folder."""

    def is_behind_link(self) -> bool:
        """Whether a symbolic link leads to the file, so that it may belong to others."""

    def now(self) -> float:
        """The time now, in seconds since 1970, by the clock that sets the times of files."""

    def probe(self) -> None:
        """Make and remove something in the folder. Raises OSError or an error of lakeingest where that fails."""

    def free_bytes(self) -> int | None:
        """The bytes that are free for files of the folder; None where there is no limit."""

    # data files

    def draft(self) -> Path:
        """A path of this machine to write the data file at, before `take`. No other process may write this file."""

    def take(self, draft: Path) -> None:
        """Make the draft the file, durably."""

    def source(self) -> Any:
        """The file in a form that PyArrow opens."""

    def lasting(self) -> BinaryIO:
        """The open data file, which can still be read after it is removed."""


def state_of(config: "Config") -> File:
    """The folder of a pipeline's state."""
    return at(config.state, config.target.storage)


def at(place: "Place", storage: "Storage") -> File:
    """The folder at a place, on this machine or in an object store."""
    return Local(place.path) if place.scheme is None else Stored.of(place, storage)


class Head:
    """A document that the holder of the lease replaces. A store refuses that to a run that has lost the lease."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._seen: Any = None

    def read(self) -> Any:
        """The document; `move` replaces the version that is read here."""
        contents, self._seen = self._file.read_seen()
        return parsed(contents)

    def begin(self, doc: Mapping[str, Any]) -> None:
        """Make or replace the document, whatever version exists."""
        self._seen = self._file.put_document(doc)

    def move(self, doc: Mapping[str, Any]) -> bool:
        """Replace the version that was read or written last.

        False, and nothing is changed, if a store has another one.
        """
        put = self._file.put_after(doc, self._seen)
        self._seen = put or self._seen
        return put is not None


def document(file: File) -> Any:
    """The document that a file has.

    Raises FileNotFoundError where the file does not exist, another OSError or ValueError where it cannot be read.
    """
    return parsed(file.read())


def parsed(contents: bytes) -> Any:
    """The document in these contents, without the nonce.

    Raises ValueError where they are no JSON, or nested too deeply.
    """
    try:
        doc = json.loads(contents)
    except RecursionError as error:
        raise ValueError("the document is nested too deeply") from error
    if isinstance(doc, dict):
        doc.pop(NONCE, None)
    return doc


def read_all(files: Sequence[File]) -> list[bytes]:
    """The contents of several files of one bucket or machine."""
    return files[0].read_together(files) if files else []


def delete_all(files: Iterable[File]) -> None:
    """Remove files of one bucket or machine, and folders with their contents. Missing ones are passed over."""
    if all_files := list(files):
        all_files[0].delete_together(all_files)


def looked_at(files: Iterable[File]) -> list[File]:
    """The files as a listing would return them: a file in a store has what the store says about it now."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda file: file.looked_at(), files))


def total(files: Iterable[File]) -> int:
    """The size of data files together, in bytes. Missing files count as 0."""
    return sum(map(_size, files))


def _size(file: File) -> int:
    if (contents := kept.contents_of(file)) is not None:
        return len(contents)
    try:
        return file.size()
    except FileNotFoundError:
        return 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A data file that is written at `path`, on this machine, and becomes `file` when it is finished."""

    file: File
    path: Path

    @classmethod
    def of(cls, file: File) -> Self:
        """A draft that nothing is written to yet."""
        return cls(file, file.draft())

    def finish(self) -> None:
        """Make the contents durable. The name of a local file is durable once its folder is synced."""
        self.file.take(self.path)
        self.drop()

    def drop(self) -> None:
        """Remove the temporary file of an upload. A local draft is the file itself, and stays."""
        if str(self.path) != str(self.file):
            self.path.unlink(missing_ok=True)


@contextmanager
def written(file: File) -> Iterator[Path]:
    """The path where the block writes a data file, which is finished after the block."""
    draft = Draft.of(file)
    try:
        yield draft.path
        draft.finish()
    finally:
        draft.drop()


def parquet(file: File) -> "pq.ParquetFile":
    """Open a data file, which the caller closes. Raises FileNotFoundError if it does not exist."""
    import pyarrow.parquet as pq  # imported here: commands that only show a text import this module

    return pq.ParquetFile(file.source())


def parquet_metadata(file: File) -> "pq.FileMetaData":
    """The metadata of a data file."""
    import pyarrow.parquet as pq

    return pq.read_metadata(file.source())


def sweep(files: Iterable[File], age: timedelta) -> tuple[int, int]:
    """Delete the files that are older than `age`, unless a link leads to them. Returns how many files and bytes."""
    ours, removed, freed = [file for file in files if not file.is_behind_link()], 0, 0
    oldest = ours[0].parent.now() - age.total_seconds() if ours else 0.0
    for file in ours:
        if file.changed() < oldest:
            bytes_ = file.size()
            file.delete()
            removed, freed = removed + 1, freed + bytes_
    return removed, freed
