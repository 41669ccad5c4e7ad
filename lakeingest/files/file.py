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
    """A file, or a folder. One that is not there is a FileNotFoundError, unless its operation says otherwise."""

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
        """The folder."""

    def __truediv__(self, name: str, /) -> Self: ...

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...

    def with_suffix(self, suffix: str) -> Self:
        """The file beside it with another suffix."""

    # documents

    def create(self, doc: Mapping[str, Any]) -> bool:
        """Make a document; False, and nothing is changed, where the file exists. Of several writers one makes it."""

    def put_document(self, doc: Mapping[str, Any]) -> Any:
        """Make or replace a document: a reader sees the old or the new one. Returns the `seen` of `put_after`."""

    def put_after(self, doc: Mapping[str, Any], seen: Any) -> Any:
        """Replace the document that was `seen`, like `put_document`. None if a store has another one, which stays."""

    def read(self) -> bytes:
        """The contents."""

    def read_seen(self) -> tuple[bytes, Any]:
        """The contents, and the `seen` of `put_after`."""

    def read_together(self, files: Sequence[Self]) -> list[bytes]:
        """The contents of several files of this place."""

    def append(self, doc: Mapping[str, Any]) -> None:
        """Add a line with a document to a log, durably."""

    def lines(self) -> list[bytes]:
        """The lines of a log, in order; none where there is no log."""

    # files

    def put(self, contents: bytes) -> None:
        """Make or replace a file, durably: a reader sees the old or the new contents. Only this process writes it."""

    def write(self, contents: bytes) -> None:
        """Make or replace a file that no other process writes; a crash may leave a part of a local one."""

    def delete(self) -> None:
        """Remove the file if it exists."""

    def delete_together(self, files: Sequence[Self]) -> None:
        """Remove files of this place, and folders with all that is in them; none of them has to be there."""

    def move_to(self, to: Self) -> None:
        """Give the file another name, in the same place."""

    def copy_to(self, to: Self) -> None:
        """Make a copy, in the same place."""

    def exists(self) -> bool:
        """Whether the file is there; a folder of this machine, too."""

    def looked_at(self) -> Self:
        """The file as a listing has it: of one in a store it is known what the store says of it now."""

    def size(self) -> int:
        """How many bytes the file has."""

    def changed(self) -> float:
        """When the file was written, in seconds since 1970."""

    def set_changed(self, moment: float, /) -> None:
        """Say that the file was written at a moment. A store cannot say so."""

    def version(self) -> Hashable:
        """The same while the file has the same contents."""

    # folders

    def make_folder(self, *, private: bool = False) -> None:
        """Make the folder and its missing parents, durably, perhaps for this user alone. A store needs none."""

    def sync(self) -> None:
        """Let the names in the folder be durable."""

    def is_there(self) -> bool:
        """Whether the folder exists; in a store, whether it has a file."""

    def listed(self, pattern: str) -> list[Self]:
        """The files of the folder whose names match, sorted; `*` is within one part of a name. No folder has none."""

    def subfolders(self) -> list[str]:
        """The names of the folders in the folder; none where there is no such folder."""

    def tree(self) -> list[Self]:
        """The files at any depth below the folder, sorted; none where there is no such folder."""

    def is_behind_link(self) -> bool:
        """Whether the file may belong to others, because a link leads to it."""

    def now(self) -> float:
        """The time now, by the clock that sets the times of files, in seconds since 1970."""

    def probe(self) -> None:
        """Make and remove something in the folder; OSError or our error where that fails."""

    def free_bytes(self) -> int | None:
        """The room for files of the folder; None where it has no end."""

    # data files

    def draft(self) -> Path:
        """Where this machine writes the data file until `take`. Its name must be new: no other process may write it."""

    def take(self, draft: Path) -> None:
        """Let the draft be the file, durably."""

    def source(self) -> Any:
        """The file as PyArrow opens it."""

    def lasting(self) -> BinaryIO:
        """The open data file, which can still be read when it is removed."""


def state_of(config: "Config") -> File:
    """The folder of a pipeline's state."""
    return at(config.state, config.target.storage)


def at(place: "Place", storage: "Storage") -> File:
    """The folder at a place."""
    return Local(place.path) if place.scheme is None else Stored.of(place, storage)


class Head:
    """A document that the holder of the lease moves on. In a store it is refused to a run that has lost the lease."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._seen: Any = None

    def read(self) -> Any:
        """The document, which is seen now."""
        contents, self._seen = self._file.read_seen()
        return parsed(contents)

    def begin(self, doc: Mapping[str, Any]) -> None:
        """Make or replace the document, whatever is there."""
        self._seen = self._file.put_document(doc)

    def move(self, doc: Mapping[str, Any]) -> bool:
        """Replace the document that was seen; False, and nothing is changed, where another run has replaced it."""
        put = self._file.put_after(doc, self._seen)
        self._seen = put or self._seen
        return put is not None


def document(file: File) -> Any:
    """The document that a file has. FileNotFoundError, OSError or ValueError where it does not exist or is damaged."""
    return parsed(file.read())


def parsed(contents: bytes) -> Any:
    """The document that contents are; ValueError where they are none, or one that no writer of ours makes."""
    try:
        doc = json.loads(contents)
    except RecursionError as error:
        raise ValueError("the document is nested too deeply") from error
    if isinstance(doc, dict):
        doc.pop(NONCE, None)
    return doc


def read_all(files: Sequence[File]) -> list[bytes]:
    """The contents of several files of one place."""
    return files[0].read_together(files) if files else []


def delete_all(files: Iterable[File]) -> None:
    """Remove files of one place, and folders with all that is in them; those that are not there are passed over."""
    if found := list(files):
        found[0].delete_together(found)


def looked_at(files: Iterable[File]) -> list[File]:
    """The files as a listing has them: of those in a store it is known what the store says of them now."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda file: file.looked_at(), files))


def total(files: Iterable[File]) -> int:
    """How many bytes data files have together; those that are gone have none."""
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
    """A data file that is written at `path`, on this machine; it is `file` once it is finished."""

    file: File
    path: Path

    @classmethod
    def of(cls, file: File) -> Self:
        """One that is not begun."""
        return cls(file, file.draft())

    def finish(self) -> None:
        """The contents are durable then; the name of a local file is once its folder is synced."""
        self.file.take(self.path)
        self.drop()

    def drop(self) -> None:
        """Remove the temporary file of an upload."""
        if str(self.path) != str(self.file):
            self.path.unlink(missing_ok=True)


@contextmanager
def written(file: File) -> Iterator[Path]:
    """Where the block writes a data file, which is finished then."""
    draft = Draft.of(file)
    try:
        yield draft.path
        draft.finish()
    finally:
        draft.drop()


def parquet(file: File) -> "pq.ParquetFile":
    """Open a data file; FileNotFoundError where it is not there. To be closed."""
    import pyarrow.parquet as pq  # not with the module: commands that only show a text import it

    return pq.ParquetFile(file.source())


def parquet_metadata(file: File) -> "pq.FileMetaData":
    """The metadata of a data file."""
    import pyarrow.parquet as pq

    return pq.read_metadata(file.source())


def sweep(files: Iterable[File], age: timedelta) -> tuple[int, int]:
    """Delete those files that are older than `age`; how many files and bytes. What is behind a link is not ours."""
    found, removed, freed = [file for file in files if not file.is_behind_link()], 0, 0
    oldest = found[0].parent.now() - age.total_seconds() if found else 0.0
    for file in found:
        if file.changed() < oldest:
            bytes_ = file.size()
            file.delete()
            removed, freed = removed + 1, freed + bytes_
    return removed, freed
