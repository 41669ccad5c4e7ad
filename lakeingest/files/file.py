"""The operations on a file of the state, in a folder or in an object store. Only the lease also tells them apart.

A file is a `Path` of this machine, or `Stored` in an object store. Both are values, and have `folder / name`,
`name`, `stem`, `suffix`, `parent`, `with_suffix`. What is made is complete when it exists, also after a crash.
"""

import json
import os
import shutil
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from lakeingest import disk
from lakeingest.files import local
from lakeingest.files.ranges import Ranges
from lakeingest.files.stored import NONCE, Seen, Stored

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from lakeingest.config import Config
    from lakeingest.config.place import Place
    from lakeingest.config.storage import Storage

File: TypeAlias = Path | Stored

_DEPTH = 2  # of folders that are swept as one
_AT_ONCE = 16  # documents of a store that are read at the same time
SMALL_BYTES = 1 << 20  # a data file of a store that is read whole, and kept
_KEPT_BYTES = 64 << 20
_PIECE_BYTES = 16 << 20
_kept: OrderedDict[Stored, bytes] = OrderedDict()  # of files that nobody replaces


def state_of(config: "Config") -> File:
    """The folder of a pipeline's state."""
    return at(config.state, config.target.storage)


def at(place: "Place", storage: "Storage") -> File:
    """The folder at a place."""
    return place.path if place.scheme is None else Stored.of(place, storage)


def create(file: File, doc: Mapping[str, Any]) -> bool:
    """Make a document; False, and nothing is changed, where the file exists. Of several writers one makes it."""
    return local.create(file, doc) if isinstance(file, Path) else file.put_if(doc, None) is not None


def replace(file: File, doc: Mapping[str, Any]) -> None:
    """Make or replace a document: a reader sees the old or the new one."""
    local.replace(file, doc) if isinstance(file, Path) else file.replace(doc)


def put(file: File, contents: bytes) -> None:
    """Make or replace a file, durably: a reader sees the old or the new contents. Only this process writes it."""
    local.put(file, contents) if isinstance(file, Path) else file.put(contents)


class Head:
    """A document that the holder of the lease moves on. In a store it is refused to a run that has lost the lease."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._seen: Seen | None = None

    def read(self) -> Any:
        """The document, which is seen now."""
        if isinstance(self._file, Path):
            return document(self._file)
        contents, self._seen = self._file.get()
        return parsed(contents)

    def begin(self, doc: Mapping[str, Any]) -> None:
        """Make or replace the document, whatever is there."""
        if isinstance(self._file, Path):
            local.replace(self._file, doc)
        else:
            self._seen = self._file.replace(doc)

    def move(self, doc: Mapping[str, Any]) -> bool:
        """Replace the document that was seen; False, and nothing is changed, where another run has replaced it."""
        if isinstance(self._file, Path):
            local.replace(self._file, doc)
            return True
        put = self._file.put_if(doc, self._seen)
        self._seen = put or self._seen
        return put is not None


def append(file: File, doc: Mapping[str, Any]) -> None:
    """Add a line with a document to a log. In a store the log is a folder, and the line a file that its time names."""
    if isinstance(file, Path):
        local.append(file, doc)
    else:
        line = file / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex}.json"
        line.put(json.dumps(doc).encode() + b"\n")


def logged(file: File) -> list[bytes]:
    """The lines of a log, in order."""
    if isinstance(file, Path):
        return file.read_bytes().splitlines() if file.exists() else []
    return [line.strip() for line in read_all(listed(file, "*.json"))]


def document(file: File) -> Any:
    """The document that a file has. FileNotFoundError, OSError or ValueError where it does not exist or is damaged."""
    return parsed(read(file))


def parsed(contents: bytes) -> Any:
    """The document that contents are; ValueError where they are none, or one that no writer of ours makes."""
    try:
        doc = json.loads(contents)
    except RecursionError as error:
        raise ValueError("the document is nested too deeply") from error
    if isinstance(doc, dict):
        doc.pop(NONCE, None)
    return doc


def read(file: File) -> bytes:
    """The contents."""
    return local.read(file) if isinstance(file, Path) else file.get()[0]


def read_all(files: Sequence[File]) -> list[bytes]:
    """The contents of several files."""
    if not any(isinstance(file, Stored) for file in files) or len(files) == 1:
        return [read(file) for file in files]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, files))


def write(file: File, contents: bytes) -> None:
    """Make or replace a file that no other process writes; a crash may leave a part of a local one."""
    if isinstance(file, Path):
        file.write_bytes(contents)
    else:
        file.put(contents)


def delete(file: File) -> None:
    """Remove a file if it exists."""
    file.unlink(missing_ok=True) if isinstance(file, Path) else file.delete()


def move(file: File, to: File) -> None:
    """Give a file another name, in the same place. In a store it has both names for a moment, and a new time."""
    if isinstance(file, Path):
        file.replace(str(to))
    else:
        copy(file, to)
        file.delete()


def copy(file: File, to: File) -> None:
    """Make a copy, in the same place; FileNotFoundError where the file is not there."""
    if isinstance(file, Stored) and isinstance(to, Stored):
        file.copy(to)
    else:
        shutil.copyfile(str(file), str(to))


def exists(file: File) -> bool:
    """Whether the file is there; a folder of this machine, too."""
    return file.exists() if isinstance(file, Path) else file.look() is not None


def listed(folder: File, pattern: str) -> list[File]:
    """The files of a folder whose names match, sorted; none where there is no folder."""
    return list[File](sorted(folder.glob(pattern))) if isinstance(folder, Path) else list[File](folder.listed(pattern))


def size(file: File) -> int:
    """How many bytes a file has; FileNotFoundError where it is not there."""
    return file.stat().st_size if isinstance(file, Path) else file.known().size


def looked_at(files: Iterable[File]) -> list[File]:
    """The files as a listing has them: of those in a store it is known what the store says of them now."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda one: one.looked_at() if isinstance(one, Stored) else one, files))


def total(files: Iterable[File]) -> int:
    """How many bytes data files have together; those that are gone have none."""
    return sum(map(_size, files))


def _size(file: File) -> int:
    if isinstance(file, Stored) and (found := _kept.get(file)) is not None:
        return len(found)
    try:
        return size(file)
    except FileNotFoundError:
        return 0


def changed(file: File) -> float:
    """When a file was written, in seconds since 1970; FileNotFoundError where it is not there."""
    return file.stat().st_mtime if isinstance(file, Path) else file.known().changed.timestamp()


def set_changed(file: File, moment: float) -> None:
    """Say that a file was written at a moment. A store cannot: there it stays as young as it is."""
    if isinstance(file, Path):
        os.utime(file, (moment, moment))


def version(file: File) -> Hashable:
    """The same while a file has the same contents; FileNotFoundError where it is not there."""
    if isinstance(file, Stored):
        return file.known().version
    stat = file.stat()
    return stat.st_ino, stat.st_mtime_ns


def now(folder: File) -> float:
    """The time now, by the clock that sets the times of files, in seconds since 1970."""
    return time.time() if isinstance(folder, Path) else folder.now().timestamp()


def make_folder(folder: File, *, private: bool = False) -> None:
    """Make a folder and its missing parents, durably, perhaps for this user alone. A store makes folders by itself."""
    if isinstance(folder, Path):
        disk.make_folder(folder, disk.PRIVATE) if private else disk.make_folder(folder)


def sync(folder: File) -> None:
    """Let the names in a folder be durable. In a store they are."""
    if isinstance(folder, Path):
        disk.sync(folder)


@dataclass(frozen=True, slots=True)
class Draft:
    """A data file that is written at `path`, on this machine; it is `file` once it is finished."""

    file: File
    path: Path

    @classmethod
    def of(cls, file: File) -> "Draft":
        """One that is not begun. The name of the file must be new: no other process may write it."""
        if isinstance(file, Path):
            return cls(file, file)
        descriptor, path = tempfile.mkstemp(prefix="lakeingest-", suffix=file.suffix)
        os.close(descriptor)
        return cls(file, Path(path))

    def finish(self) -> None:
        """The contents are durable then; the name of a local file is once its folder is synced."""
        if isinstance(self.file, Path):
            disk.sync(self.file)
            return
        self.file.put(self.path)
        if self.path.stat().st_size <= SMALL_BYTES:
            _keep(self.file, self.path.read_bytes())
        self.drop()

    def drop(self) -> None:
        """Remove the temporary file of an upload."""
        if isinstance(self.file, Stored):
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


def parquet(file: File | str) -> "pq.ParquetFile":
    """Open a data file; FileNotFoundError where it is not there. To be closed."""
    import pyarrow.parquet as pq  # not with the module: commands that only show a text import it

    return pq.ParquetFile(_source(file))


def parquet_metadata(file: File | str) -> "pq.FileMetaData":
    """The metadata of a data file."""
    import pyarrow.parquet as pq

    return pq.read_metadata(_source(file))


def lasting(file: File) -> BinaryIO:
    """An open data file that can still be read when it is removed."""
    if isinstance(file, Path):
        return file.open("rb")
    source = _source(file)
    with ExitStack() as stack:
        copy = stack.enter_context(tempfile.TemporaryFile(prefix="lakeingest-"))
        while part := source.read(_PIECE_BYTES):
            copy.write(part)
        copy.seek(0)
        stack.pop_all()  # the caller closes it
    return copy


def sweep(files: Iterable[File], age: timedelta) -> tuple[int, int]:
    """Delete those files that are older than `age`; how many files and bytes. What is behind a link is not ours."""
    found, removed, freed = [file for file in files if not _is_behind_link(file)], 0, 0
    oldest = now(found[0].parent) - age.total_seconds() if found else 0.0
    for file in found:
        if changed(file) < oldest:
            bytes_ = size(file)
            delete(file)
            removed, freed = removed + 1, freed + bytes_
    return removed, freed


def _is_behind_link(file: File) -> bool:
    """Whether it is a symbolic link, or in a folder that is one, or whose folder is one; a folder is no file either."""
    return isinstance(file, Path) and (
        file.is_dir() or any(one.is_symlink() for one in (file, *list(file.parents)[:_DEPTH]))
    )


def probe(folder: File) -> None:
    """Make and remove something in a folder or its nearest existing parent; OSError or our error where that fails."""
    if isinstance(folder, Stored):
        file = folder / f".lakeingest-{uuid.uuid4().hex}"
        if not create(file, {}):
            raise FileExistsError(f"{file} exists already")
        delete(file)
    else:
        with tempfile.TemporaryDirectory(prefix=".lakeingest-", dir=_nearest_existing(folder)) as made:
            (Path(made) / "written").write_text("a file can be written")


def free_bytes(folder: File) -> int | None:
    """The room on the disk of a folder; None in a store, which has no end."""
    return shutil.disk_usage(_nearest_existing(folder)).free if isinstance(folder, Path) else None


def _nearest_existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _source(file: File | str) -> Any:
    """What PyArrow reads a file from."""
    if not isinstance(file, Stored):
        return file
    import pyarrow as pa

    if (found := _kept.get(file)) is not None:
        return pa.BufferReader(found)
    contents, bytes_ = file.get_small(SMALL_BYTES)
    if contents is None:
        return pa.PythonFile(Ranges(file, bytes_), mode="r")
    _keep(file, contents)
    return pa.BufferReader(contents)


def _keep(file: Stored, contents: bytes) -> None:
    _kept[file] = contents
    while sum(map(len, _kept.values())) > _KEPT_BYTES:
        _kept.popitem(last=False)
