"""A file or folder of the state: on this machine (`Local`), or in an object store (`Stored`), with the same operations.

A `File` is a value, not an open file. A document is a file of JSON, which is complete when it exists, even after a
crash. A data file is written once and never replaced.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lakeingest.config import Config
    from lakeingest.config.place import Place
    from lakeingest.config.storage import Storage

WHOLE_BYTES = 64 << 10  # the greatest size of a data file that is read as a whole: Arrow reads parts more slowly
THREADS_BYTES = 1 << 20  # the least size of a data file that threads decode, or read ahead


class File(Protocol):
    """A file or a folder. Operations raise FileNotFoundError for a missing file, unless they say something else.

    Other failures are an OSError on a disk, and StorageFailed or StorageAway in a store.
    """

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
        """The folder that the file is in."""

    def __truediv__(self, name: str, /) -> Self: ...

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...

    def with_suffix(self, suffix: str) -> Self:
        """The file with the same stem and another suffix in the same folder."""

    # documents

    def create(self, doc: Mapping[str, Any]) -> bool:
        """Make a document, and return True. If the file exists, change nothing, and return False.

        If several writers call this at the same time, exactly one gets True.
        """

    def create_from(self, contents: bytes) -> bool:
        """Make a file, durably and at once, and return True. If it exists, return whether it has the same contents.

        If several writers call this with different contents at the same time, exactly one gets True.
        """

    def put_document(self, doc: Mapping[str, Any]) -> Any:
        """Make or replace a document; readers see the old or the new one. Returns what `put_after` takes as `seen`."""

    def put_after(self, doc: Mapping[str, Any], seen: Any) -> Any:
        """Replace the version `seen` of a document. Returns the new `seen`.

        If a store has another version, nothing is changed, and None is returned. A disk has no versions, so there the
        document is always replaced.
        """

    def read(self) -> bytes:
        """The contents. Raises ValueError for a folder, device or pipe of this machine, and if they are too large."""

    def read_seen(self) -> tuple[bytes, Any]:
        """The contents, and their version, which `put_after` takes as `seen`."""

    def read_together(self, files: Sequence[Self]) -> list[bytes]:
        """The contents of several files of this bucket or machine, in their order."""

    def append(self, doc: Mapping[str, Any]) -> None:
        """Add a line with a document to a log, durably."""

    def lines(self) -> list[bytes]:
        """The lines of a log, in order; none if there is no log. A crash may have cut a line of a local log short."""

    # files

    def put(self, contents: bytes) -> None:
        """Make or replace a file, durably and at once: a reader sees the old or the new contents.

        The caller makes sure that no other process writes the file.
        """

    def write(self, contents: bytes) -> None:
        """Make or replace a file that no other process writes. A crash may leave a part of a local file."""

    def make(self) -> bool:
        """Make an empty file, and return True. If it exists, return False; in a store, this call may have made it."""

    def delete(self) -> None:
        """Remove the file if it exists."""

    def delete_together(self, files: Sequence[Self]) -> None:
        """Remove files of this bucket, or files and folders of this machine. Missing files are no error."""

    def move_to(self, to: Self) -> None:
        """Give the file another name, in the same bucket or on the same machine."""

    def copy_to(self, to: Self) -> None:
        """Make a copy, in the same bucket or on the same machine."""

    def exists(self) -> bool:
        """Whether the file exists. A folder of this machine counts, too."""

    def looked_at(self) -> Self:
        """The file as a listing would return it: a file in a store has its present metadata. It may be missing."""

    def size(self) -> int:
        """The size in bytes."""

    def changed(self) -> float:
        """The time when the file was written, in seconds since 1970."""

    def set_changed(self, moment: float, /) -> None:
        """Set the time when the file was written. Does nothing in a store."""

    def version(self) -> Hashable:
        """A value that stays the same until the file is written again."""

    # folders

    def make_folder(self, *, private: bool = False) -> None:
        """Make the folder and its missing parents, durably. A `private` folder is for this user alone.

        Does nothing in a store, which needs no folders.
        """

    def sync(self) -> None:
        """Make the names in the folder durable."""

    def is_there(self) -> bool:
        """Whether the folder exists; in a store, whether the folder has a file."""

    def listed(self, pattern: str) -> list[Self]:
        """The files of the folder whose names match, sorted.

        `*` does not match a slash. Empty if there is no folder. On a disk, folders whose names match are listed, too.
        """

    def subfolders(self) -> list[str]:
        """The names of the folders in the folder. Empty if there is no such folder."""

    def tree(self) -> list[Self]:
        """The files at any depth below the folder, sorted. Empty if there is no such folder."""

    def is_behind_link(self) -> bool:
        """Whether a symbolic link leads to the file, so that it may belong to others. True for a local folder, too."""

    def now(self) -> float:
        """The present time, in seconds since 1970, by the clock that sets the times of files."""

    def probe(self) -> None:
        """Make a file in the folder, or in a folder above if it is missing, and remove the file.

        Raises OSError or an error of lakeingest if that fails.
        """

    def free_bytes(self) -> int | None:
        """The bytes that are free for files of the folder; None if there is no limit."""

    # data files

    def draft(self) -> Path:
        """A path of this machine, where the caller writes the data file. `take` turns the written draft into this file.

        The caller makes sure that no other process writes the file.
        """

    def take(self, draft: Path) -> None:
        """Turn the draft into the file. Its contents are durable."""

    def source(self) -> Any:
        """The file in a form that PyArrow opens."""

    def open_lasting(self) -> BinaryIO:
        """The data file, open. Its contents can be read even after the file is removed."""


def state_of(config: "Config") -> File:
    """The folder of a pipeline's state."""
    return at(config.state, config.target.storage)


def at(place: "Place", storage: "Storage") -> File:
    """The folder at a place, on this machine or in an object store."""
    return Local(place.path) if place.scheme is None else Stored.of(place, storage)


class Head:
    """A document that only the owner of the lease replaces. A store refuses the put of a run without the lease."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._seen: Any = None

    def read(self) -> Any:
        """The document. `move` replaces only the version that this call has read."""
        contents, self._seen = self._file.read_seen()
        return parsed(contents)

    def begin(self, doc: Mapping[str, Any]) -> None:
        """Make or replace the document, whatever version exists."""
        self._seen = self._file.put_document(doc)

    def move(self, doc: Mapping[str, Any]) -> bool:
        """Replace the version that this object has read or written last, and return True.

        If a store has another version, nothing is changed, and False is returned.
        """
        new_seen = self._file.put_after(doc, self._seen)
        if new_seen is not None:
            self._seen = new_seen
        return new_seen is not None


def document(file: File) -> Any:
    """The document in a file.

    Raises FileNotFoundError if the file does not exist, another OSError or ValueError if it cannot be read.
    """
    return parsed(file.read())


def parsed(contents: bytes) -> Any:
    """The document in the contents of a file, without the nonce.

    Raises ValueError if the contents are not JSON, or nested too deeply.
    """
    try:
        doc = json.loads(contents)
    except RecursionError as error:
        raise ValueError("the document is nested too deeply") from error
    if isinstance(doc, dict):
        doc.pop(NONCE, None)
    return doc


def read_all(files: Sequence[File]) -> list[bytes]:
    """The contents of several files of one bucket or machine, in their order; [] for no file."""
    return files[0].read_together(files) if files else []


def delete_all(files: Iterable[File]) -> None:
    """Remove files of one bucket, or files and folders of this machine. Missing files are no error."""
    if all_files := list(files):
        all_files[0].delete_together(all_files)


def looked_at(files: Iterable[File]) -> list[File]:
    """The files as a listing would return them: a file in a store has its present metadata."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda file: file.looked_at(), files))


def total(files: Iterable[File]) -> int:
    """The total size of data files, in bytes. Missing files count as 0."""
    return sum(map(_size, files))


def _size(file: File) -> int:
    """The size of a data file, from the cache if it is there; 0 if the file is missing."""
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
        """The draft of a data file. Nothing is written yet."""
        return cls(file, file.draft())

    def finish(self) -> None:
        """Turn the draft into `file`, with durable contents. A local name is durable once its folder is synced."""
        try:
            self.file.take(self.path)
        finally:
            self.drop()

    def drop(self) -> None:
        """Remove the temporary file of an upload. A local draft is the data file itself, and stays."""
        if str(self.path) != str(self.file):
            self.path.unlink(missing_ok=True)


@contextmanager
def written(file: File, finish: Callable[[Draft], None] = Draft.finish) -> Iterator[Path]:
    """The path where the block writes a data file. Then `finish` gets its draft; after an error, a part may stay."""
    draft = Draft.of(file)
    try:
        yield draft.path
    except BaseException:
        draft.drop()
        raise
    finish(draft)


def parquet(file: File, numbered: Sequence[str] = ()) -> "pq.ParquetFile":
    """Open a data file, which the caller closes. The columns `numbered` are read as numbers of their values.

    There is a dictionary of these values. Raises FileNotFoundError if the file does not exist, and ArrowException of
    PyArrow if it is damaged.
    """
    import pyarrow.parquet as pq  # here, so that commands that only show a text start fast

    dictionaries = list(numbered)
    size = file.size() if isinstance(file, Local) else None  # None: the file is in a store
    if isinstance(file, Local) and size is not None and size <= WHOLE_BYTES:
        import pyarrow as pa

        return pq.ParquetFile(pa.BufferReader(file.read_bytes()), read_dictionary=dictionaries)
    return pq.ParquetFile(file.source(), read_dictionary=dictionaries, pre_buffer=size is None or size >= THREADS_BYTES)


def is_large(parquet: "pq.ParquetFile") -> bool:
    """Whether threads should decode a data file: for a small one they take longer than the work that they share."""
    groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
    return sum(int(group.total_byte_size) for group in groups) >= THREADS_BYTES


def all_rows(parquet: "pq.ParquetFile", names: Sequence[str]) -> "pa.Table":
    """The columns `names` of a data file."""
    return parquet.read(list(names), use_threads=is_large(parquet))


def first_rows(parquet: "pq.ParquetFile", names: Sequence[str], most: int) -> "pa.Table":
    """The columns `names` of about the first `most` rows of a data file. Later pages of the file are not decoded."""
    import pyarrow as pa

    first = next(parquet.iter_batches(most, columns=list(names)), None)  # None: the file has no rows
    return all_rows(parquet, names) if first is None else pa.Table.from_batches([first])


def rows_of_size(parquet: "pq.ParquetFile", size: int) -> int:
    """How many rows of a data file have about `size` bytes before compression; at least 1."""
    groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
    file_size = max(1, sum(int(group.total_byte_size) for group in groups))
    return max(1, int(parquet.metadata.num_rows) * size // file_size)


def parquet_metadata(file: File) -> "pq.FileMetaData":
    """The metadata of a data file. Raises as `parquet`."""
    import pyarrow.parquet as pq

    return pq.read_metadata(file.source())


def sweep(files: Iterable[File], age: timedelta) -> tuple[int, int]:
    """Delete the files that are older than `age`, but no file behind a link.

    Returns the numbers of deleted files and bytes.
    """
    not_linked = [file for file in files if not file.is_behind_link()]
    if not not_linked:  # without a file, there is no folder that tells the time
        return 0, 0
    limit = not_linked[0].parent.now() - age.total_seconds()
    removed, freed = 0, 0
    for file in not_linked:
        if file.changed() < limit:
            bytes_ = file.size()
            file.delete()
            removed += 1
            freed += bytes_
    return removed, freed
