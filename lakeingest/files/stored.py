"""A file or folder of an object store: its name, which is a value, and the requests for it.

A request whose answer is lost may have been carried out. So each document that is put on a condition has a nonce. By
the nonce, a request recognises its own document in the store. So a success is never reported as a refusal, and a
request is never repeated after another writer has replaced the document.
"""

import json
import os
import tempfile
import time
import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import obstore
from obstore import exceptions

from lakeingest.errors import StorageAway
from lakeingest.files import kept
from lakeingest.files.bucket import PATIENCE_SECONDS, Bucket, Seen, counted, version_of
from lakeingest.files.ranges import Ranges
from lakeingest.files.store_errors import away, failed

if TYPE_CHECKING:
    from lakeingest.config.place import Place
    from lakeingest.config.storage import Storage

NONCE = "nonce"  # the key of a document's nonce
AT_ONCE = 16  # how many requests for several files are sent at the same time
_PIECE_BYTES = 16 << 20  # how many bytes are copied at once
_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # after each failed try
_TRIES = 20  # how often `put_document` tries while other writers replace the document, too
_FORBIDDEN = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.NotSupportedError,
    exceptions.InvalidPathError,
)
_REFUSED = (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file or folder of an object store, as `File` describes it. `seen`: the metadata from a listing, or None."""

    bucket: Bucket
    key: str
    seen: Seen | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, place: "Place", storage: "Storage") -> Self:
        """The folder at a configured place with a scheme, such as s3."""
        from lakeingest.config.stores import store_of  # here, so that commands that only show a text start fast

        scheme, _, bucket_and_key = place.written.partition("://")
        bucket, _, key = bucket_and_key.partition("/")
        options = tuple(sorted(store_of(scheme).obstore(storage, bucket).items()))
        return cls(Bucket(f"{scheme}://{bucket}", options), key.strip("/"))

    def __truediv__(self, name: str, /) -> Self:
        return replace(self, key=f"{self.key}/{name}".lstrip("/"), seen=None)

    def __str__(self) -> str:
        return f"{self.bucket.uri}/{self.key}"

    def __lt__(self, other: Self, /) -> bool:
        return self.key < other.key

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part of the name, without its suffix."""
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        """The suffix of the name, such as .json."""
        return Path(self.name).suffix

    @property
    def parent(self) -> Self:
        """The folder that the file is in."""
        return replace(self, key=self.key.rpartition("/")[0], seen=None)

    def with_suffix(self, suffix: str) -> Self:
        """The file with the same stem and another suffix in the same folder."""
        return self.parent / f"{self.stem}{suffix}"

    def look(self) -> Seen | None:
        """The file's present metadata; None if the file does not exist."""
        try:
            with self._errors():
                return Seen.of(obstore.head(self.bucket.store, self.key))
        except FileNotFoundError:
            return None

    def exists(self) -> bool:
        """Whether the file exists. A folder does not count."""
        return self.look() is not None

    def looked_at(self) -> Self:
        """The file with its present metadata in `seen`."""
        return replace(self, seen=self.look())

    def metadata(self) -> Seen:
        """`seen`, or the present metadata if `seen` is None. Raises FileNotFoundError if the file is missing."""
        seen = self.seen or self.look()
        if seen is None:
            raise FileNotFoundError(str(self))
        return seen

    def size(self) -> int:
        """The size in bytes, according to `metadata`."""
        return self.metadata().size

    def changed(self) -> float:
        """The time of the last put, by the clock of the store."""
        return self.metadata().changed.timestamp()

    def set_changed(self, moment: float) -> None:
        """Do nothing: a store cannot set this time."""

    def version(self) -> Hashable:
        """The store's version, according to `metadata`. Each put changes it."""
        return self.metadata().version

    def get(self) -> tuple[bytes, Seen]:
        """The contents and their metadata. Raises FileNotFoundError if the file does not exist."""
        with self._errors():
            return self.bucket.get(self.key)

    def read(self) -> bytes:
        """The contents, with one request."""
        return self.get()[0]

    def read_seen(self) -> tuple[bytes, Seen]:
        """The contents and their metadata, which have the version, with one request."""
        return self.get()

    def read_together(self, files: Sequence[Self]) -> list[bytes]:
        """The contents of the files, by several requests at the same time."""
        if len(files) == 1:
            return [files[0].read()]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(Stored.read, files))

    def lines(self) -> list[bytes]:
        """The contents of the files in the folder, in order: their names begin with the time."""
        return [line.strip() for line in self.read_together(self.listed("*.json"))]

    def part(self, start: int, end: int) -> bytes:
        """The bytes of the contents from one offset up to another."""
        with self._errors():
            return self.bucket.get_range(self.key, start, end)

    def create(self, doc: Mapping[str, Any]) -> bool:
        """Put the document, and return True. If the file exists, change nothing, and return False."""
        return self.put_if(doc, None) is not None

    def put_after(self, doc: Mapping[str, Any], seen: Any) -> Any:
        """Put the document if the store still has the version `seen`."""
        return self.put_if(doc, seen)

    def append(self, doc: Mapping[str, Any]) -> None:
        """Put the document as a file into the folder of the log. The file's name begins with the time."""
        line = self / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex}.json"
        line.put(json.dumps(doc).encode() + b"\n")

    def write(self, contents: bytes) -> None:
        """Put the contents. A store never has a part of them."""
        self.put(contents)

    def make(self) -> bool:
        """Put an empty file if there is none. False also if the client repeats a put whose answer is lost."""
        with self._errors(), self._in_bucket(), suppress(exceptions.AlreadyExistsError, exceptions.PreconditionError):
            self.bucket.put(self.key, b"", mode="create", use_multipart=False)
            return True
        return False

    def put(self, contents: bytes | Path) -> None:
        """Put these contents, or the contents of a file of this machine."""
        with self._errors(), self._in_bucket():
            self.bucket.put(self.key, contents)

    def create_from(self, contents: bytes) -> bool:
        """Put the contents if there is no such file. True also if the file has the same contents already."""
        return self._put_bytes_if(contents, None) is not None

    def put_if(self, doc: Mapping[str, Any], seen: Seen | None) -> Seen | None:
        """Put a document if the store still has the version `seen` of the file, or no such file if `seen` is None.

        Returns the metadata of the new version; None if the store has another version than `seen`. Raises StorageAway
        if the store does not answer, and StorageFailed if it denies access or has no such bucket.
        """
        return self._put_bytes_if(json.dumps({**doc, NONCE: uuid.uuid4().hex}).encode(), seen)

    def _put_bytes_if(self, body: bytes, seen: Seen | None) -> Seen | None:
        """As `put_if`, but put these contents. If they are stored already, this call counts as the put."""
        mode: Any = "create" if seen is None else dict(seen.version)
        last_error: Exception | None = None
        began = time.monotonic()
        for pause in _PAUSES_SECONDS:
            is_refused = False  # whether the store answers that it has another version than `seen`
            try:
                put = self.bucket.put(self.key, body, mode=mode, use_multipart=False)
                # the answer has no time, so this machine's clock gives one
                return Seen(version_of(put), len(body), datetime.now().astimezone())
            except _REFUSED as error:
                if isinstance(error, FileNotFoundError) and seen is None:  # there is no such bucket
                    raise failed(self, error) from error
                last_error, is_refused = error, True
            except _FORBIDDEN as error:
                raise failed(self, error) from error
            except (exceptions.BaseError, OSError) as error:
                last_error = error
            # Even a put that failed or was refused may have succeeded: its client repeats a put whose answer is lost.
            stored, stored_seen = self._get_or_none() or (None, None)
            if stored == body:  # the nonce of a document tells that this call put it
                return stored_seen
            if is_refused or (stored_seen and stored_seen.version) != (seen and seen.version):  # None: there is no file
                return None  # another writer has replaced the document
            if time.monotonic() - began > PATIENCE_SECONDS:
                break
            time.sleep(pause)  # a repetition is safe: the store still has the version `seen`
        raise away(self, last_error)

    def put_document(self, doc: Mapping[str, Any]) -> Seen:
        """Replace the present version, on a condition: a late request cannot undo a later one. Raises as `put_if`."""
        for _ in range(_TRIES):  # a try fails if another writer has replaced the document since `look`
            if (put := self.put_if(doc, self.look())) is not None:
                return put
        raise StorageAway(f"{self}: others replace it all the time; run the same command again")

    def delete(self) -> None:
        """Delete the file. No error if it is missing, which some stores report."""
        with self._errors(), suppress(FileNotFoundError):
            obstore.delete(self.bucket.store, self.key)

    def delete_together(self, files: Sequence[Self]) -> None:
        """Delete the files, many with one request."""
        for bucket in {file.bucket for file in files}:
            root = replace(self, bucket=bucket, key="")  # so that an error names the bucket, and not one file
            with root._errors(), suppress(FileNotFoundError):  # noqa: SLF001 - of the same class
                obstore.delete(bucket.store, [file.key for file in files if file.bucket == bucket])

    def move_to(self, to: Self) -> None:
        """Copy the file, then delete it. For a moment it has both names. The copy has a new time."""
        self.copy_to(to)
        self.delete()

    def copy_to(self, to: Self) -> None:
        """Let the store copy the file within the bucket."""
        with self._errors():
            obstore.copy(self.bucket.store, self.key, to.key)

    def make_folder(self, *, private: bool = False) -> None:
        """Do nothing: a folder exists while it has files."""

    def sync(self) -> None:
        """Do nothing: a name is durable when the store has answered."""

    def is_there(self) -> bool:
        """Whether there is a file at any depth below the folder."""
        with self._errors():
            return any(True for page in obstore.list(self.bucket.store, self._prefix, chunk_size=1) for _ in page)

    def listed(self, pattern: str) -> list[Self]:
        """The matching files. Folders are not listed."""
        patterns = pattern.split("/")  # one for each level of folders
        if len(patterns) == 1:
            with self._errors():
                objects: Any = obstore.list_with_delimiter(self.bucket.store, self._prefix)["objects"]
            return sorted(file for file in map(self._found, objects) if fnmatchcase(file.name, pattern))
        matching = []
        for file in self.tree():
            names = file.key[len(self.key) :].lstrip("/").split("/")  # one for each level below this folder
            if len(names) == len(patterns) and all(map(fnmatchcase, names, patterns)):
                matching.append(file)
        return matching

    def tree(self) -> list[Self]:
        """The files at any depth, and empty objects that some programs make for folders."""
        with self._errors():
            pages = obstore.list(self.bucket.store, self._prefix)
            return sorted(self._found(meta) for page in pages for meta in page)

    def subfolders(self) -> list[str]:
        """The names of the folders in the folder. A folder exists while files are below it."""
        with self._errors():
            prefixes = obstore.list_with_delimiter(self.bucket.store, self._prefix)["common_prefixes"]
        return sorted(str(prefix).rpartition("/")[2] for prefix in prefixes)

    def is_behind_link(self) -> bool:
        """False: a store has no links."""
        return False

    def now(self) -> float:
        """The time that the store gives to a new file in this folder. The file is then removed."""
        probe = self / f"clock-{uuid.uuid4().hex}"
        probe.put(b"")
        try:
            return probe.changed()
        finally:
            probe.delete()

    def probe(self) -> None:
        """Make a file in the folder and remove it."""
        file = self / f".lakeingest-{uuid.uuid4().hex}"
        if not file.create({}):
            raise FileExistsError(f"{file} exists already")
        file.delete()

    def free_bytes(self) -> int | None:
        """None: a store has no limit."""
        return None

    def draft(self) -> Path:
        """A new temporary file of this machine."""
        descriptor, path = tempfile.mkstemp(prefix="lakeingest-", suffix=self.suffix)
        os.close(descriptor)
        return Path(path)

    def take(self, draft: Path) -> None:
        """Upload the draft. The contents of a small draft go into the cache, too."""
        self.put(draft)
        if draft.stat().st_size <= kept.SMALL_BYTES:
            kept.keep(self, draft.read_bytes())

    def source(self) -> Any:
        """An open file for PyArrow. A small file is kept in the cache as a whole. A large file is read in parts."""
        import pyarrow as pa  # here, so that commands that only show a text start fast

        contents = kept.contents_of(self)
        if contents is None:
            with self._errors():
                answer = obstore.get(self.bucket.store, self.key)
                bytes_ = answer.meta["size"]
                if bytes_ > kept.SMALL_BYTES:
                    return pa.PythonFile(Ranges(self.part, bytes_), mode="r")
                contents = counted(answer.bytes())
            kept.keep(self, contents)
        return pa.BufferReader(contents)

    def open_lasting(self) -> BinaryIO:
        """An open copy of the contents, in a temporary file of this machine without a name."""
        source = self.source()
        with ExitStack() as stack:
            copy = stack.enter_context(tempfile.TemporaryFile(prefix="lakeingest-"))
            while piece := source.read(_PIECE_BYTES):
                copy.write(piece)
            copy.seek(0)
            stack.pop_all()  # without an error, the copy stays open: the caller closes it
        return copy

    @property
    def _prefix(self) -> str | None:
        """The text with which the keys of all files in this folder begin; None for the whole bucket."""
        return f"{self.key}/" if self.key else None

    def _found(self, meta: Any) -> Self:
        """The file of an entry in a listing."""
        return replace(self, key=str(meta["path"]), seen=Seen.of(meta))

    def _get_or_none(self) -> tuple[bytes, Seen] | None:
        """The contents and their metadata; None if the file does not exist."""
        try:
            return self.get()
        except FileNotFoundError:
            return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the block into StorageFailed if access is denied, else StorageAway; not FileNotFoundError."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(str(self)) from error  # with the name of this file
        except _FORBIDDEN as error:
            raise failed(self, error) from error
        except (exceptions.BaseError, OSError) as error:
            raise away(self, error) from error

    @contextmanager
    def _in_bucket(self) -> Iterator[None]:
        """Turn FileNotFoundError of a put in the block into StorageFailed: it means that the bucket is missing."""
        try:
            yield
        except FileNotFoundError as error:
            raise failed(self, error) from error
