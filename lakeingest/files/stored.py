"""A file or folder of an object store: its name, which is a value, and the requests that concern it.

A request whose answer is lost may have been carried out. So a document that is put on a condition has a nonce, and what
the store has then says who put it: a success is never reported as a refusal, nor repeated after others have gone on.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import obstore
from obstore import exceptions
from obstore.store import MemoryStore, ObjectStore, from_url

from lakeingest.errors import StorageAway, StorageFailed
from lakeingest.files.credentials import provider_of

if TYPE_CHECKING:
    from lakeingest.config.place import Place
    from lakeingest.config.storage import Storage

NONCE = "nonce"
_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_PATIENCE_SECONDS = 15.0  # of all tries of one request: a lease is void after twice as long
_TRIES = 20  # of replacing a document that others replace, too
_FORBIDDEN = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.NotSupportedError,
    exceptions.InvalidPathError,
)
_REFUSED = (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store says of an object: `version` is another one after each put."""

    version: tuple[tuple[str, str], ...]
    size: int
    changed: datetime

    @classmethod
    def of(cls, meta: Any) -> Self:
        """What a listing, or the answer to a request, has."""
        return cls(_version(meta), meta["size"], meta["last_modified"])


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where objects are, and how the store is reached; pickled to use it on executors."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # credentials may be among them

    @property
    def store(self) -> ObjectStore:
        """The client. Its threads do not live on in a process that is forked from one that has used it."""
        return _client(self.uri, self.options)

    def delete(self, keys: list[str]) -> None:
        """Remove those objects that are there, many with a request."""
        with Stored(self, "")._errors(), suppress(FileNotFoundError):  # noqa: SLF001 - of the same module
            obstore.delete(self.store, keys)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file or folder of an object store. A folder exists while it has files. `seen` is what a listing has said."""

    bucket: Bucket
    key: str
    seen: Seen | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, place: "Place", storage: "Storage") -> Self:
        """The folder at a place that has a scheme."""
        from lakeingest.config.stores import store_of  # not with the module: commands that only show a text import it

        scheme, _, rest = place.written.partition("://")
        bucket, _, key = rest.partition("/")
        options = tuple(sorted(store_of(scheme).obstore(storage, bucket).items()))
        return cls(Bucket(f"{scheme}://{bucket}", options), key.strip("/"))

    def __truediv__(self, name: str) -> Self:
        return replace(self, key=f"{self.key}/{name}".lstrip("/"), seen=None)

    def __str__(self) -> str:
        return f"{self.bucket.uri}/{self.key}"

    def __lt__(self, other: Self) -> bool:
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
        """The folder."""
        return replace(self, key=self.key.rpartition("/")[0], seen=None)

    def with_suffix(self, suffix: str) -> Self:
        """The file beside it with another suffix."""
        return self.parent / f"{self.stem}{suffix}"

    def look(self) -> Seen | None:
        """What the store says of the file now; None where it is not there."""
        try:
            with self._errors():
                return Seen.of(obstore.head(self.bucket.store, self.key))
        except FileNotFoundError:
            return None

    def looked_at(self) -> Self:
        """The file as a listing has it, with what the store says of it now."""
        return replace(self, seen=self.look())

    def known(self) -> Seen:
        """The answer of the listing, else what the store says now; FileNotFoundError where the file is not there."""
        found = self.seen or self.look()
        if found is None:
            raise FileNotFoundError(str(self))
        return found

    def get(self) -> tuple[bytes, Seen]:
        """The contents; FileNotFoundError where it is not there."""
        with self._errors():
            found = obstore.get(self.bucket.store, self.key)
            return bytes(found.bytes()), Seen.of(found.meta)

    def get_small(self, most: int) -> tuple[bytes | None, int]:
        """The contents if they are not larger than `most`, and the size; FileNotFoundError where it is not there."""
        with self._errors():
            found = obstore.get(self.bucket.store, self.key)
            size = found.meta["size"]
            return (bytes(found.bytes()) if size <= most else None), size

    def part(self, start: int, end: int) -> bytes:
        """Some bytes of the contents."""
        with self._errors():
            return bytes(obstore.get_range(self.bucket.store, self.key, start=start, end=end))

    def put(self, contents: bytes | Path) -> None:
        """Make or replace the file. It is for names that only this process writes."""
        with self._errors(), self._in_bucket():
            obstore.put(self.bucket.store, self.key, contents)

    def put_if(self, doc: Mapping[str, Any], seen: Seen | None) -> Seen | None:
        """Put a document if the file is as it was `seen`, with None if it is not there; None where it is otherwise."""
        body = json.dumps({**doc, NONCE: uuid.uuid4().hex}).encode()
        mode: Any = "create" if seen is None else dict(seen.version)
        why: Exception | None = None
        began = time.monotonic()
        for pause in _PAUSES_SECONDS:
            refused = False
            try:
                put = obstore.put(self.bucket.store, self.key, body, mode=mode, use_multipart=False)
                return Seen(_version(put), len(body), datetime.now().astimezone())
            except _REFUSED as error:
                if isinstance(error, FileNotFoundError) and seen is None:  # there is no such bucket
                    raise self._failed(error) from error
                why, refused = error, True
            except _FORBIDDEN as error:
                raise self._failed(error) from error
            except (exceptions.BaseError, OSError) as error:
                why = error
            there = self._there()
            if there is not None and there[0] == body:
                return there[1]
            if refused or (there and there[1].version) != (seen and seen.version):
                return None
            if time.monotonic() - began > _PATIENCE_SECONDS:
                break
            time.sleep(pause)  # it was not done, unless it is still under way
        raise self._away(why)

    def replace(self, doc: Mapping[str, Any]) -> Seen:
        """Make or replace a document. A request that is still under way cannot undo what comes after it."""
        for _ in range(_TRIES):
            if (put := self.put_if(doc, self.look())) is not None:
                return put
        raise StorageAway(f"{self}: others replace it all the time; run the same command again")

    def delete(self) -> None:
        """Remove the file if it is there."""
        try:
            with self._errors():
                obstore.delete(self.bucket.store, self.key)
        except FileNotFoundError:
            pass

    def copy(self, to: Self) -> None:
        """Make a copy within the bucket; FileNotFoundError where the file is not there."""
        with self._errors():
            obstore.copy(self.bucket.store, self.key, to.key)

    def listed(self, pattern: str) -> list[Self]:
        """The files of this folder whose names match; `*` is within one part of a name."""
        parts = pattern.split("/")
        if len(parts) == 1:
            with self._errors():
                beside: Any = obstore.list_with_delimiter(self.bucket.store, self._prefix)["objects"]
            return sorted(one for one in map(self._found, beside) if fnmatchcase(one.name, pattern))
        return [
            one
            for one in self.tree()
            if len(names := one.key[len(self.key) :].lstrip("/").split("/")) == len(parts)
            and all(map(fnmatchcase, names, parts))
        ]

    def tree(self) -> list[Self]:
        """The files at any depth below this folder."""
        with self._errors():
            pages = obstore.list(self.bucket.store, self._prefix)
            return sorted(self._found(meta) for page in pages for meta in page)

    def subfolders(self) -> list[str]:
        """The names of the folders in this folder."""
        with self._errors():
            found = obstore.list_with_delimiter(self.bucket.store, self._prefix)["common_prefixes"]
        return sorted(str(one).rpartition("/")[2] for one in found)

    def has_files(self) -> bool:
        """Whether something is below this folder."""
        with self._errors():
            return any(True for page in obstore.list(self.bucket.store, self._prefix, chunk_size=1) for _ in page)

    def now(self) -> datetime:
        """The store's clock: when it has written a file of this folder that is removed again."""
        probe = self / f"clock-{uuid.uuid4().hex}"
        probe.put(b"")
        try:
            return probe.known().changed
        finally:
            probe.delete()

    @property
    def _prefix(self) -> str | None:
        return f"{self.key}/" if self.key else None

    def _found(self, meta: Any) -> Self:
        return replace(self, key=str(meta["path"]), seen=Seen.of(meta))

    def _there(self) -> tuple[bytes, Seen] | None:
        try:
            return self.get()
        except FileNotFoundError:
            return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """StorageAway when the store does not answer, StorageFailed when it does not let us in."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(str(self)) from error
        except _FORBIDDEN as error:
            raise self._failed(error) from error
        except (exceptions.BaseError, OSError) as error:
            raise self._away(error) from error

    @contextmanager
    def _in_bucket(self) -> Iterator[None]:
        """StorageFailed where there is no such bucket to put a file into."""
        try:
            yield
        except FileNotFoundError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StorageFailed:
        return StorageFailed(
            f"{self} cannot be read or written: {_first_line(error)}; correct target.storage, the credentials or the"
            " rights"
        )

    def _away(self, error: Exception | None) -> StorageAway:
        return StorageAway(
            f"{self}: the store does not answer, or fails: {_first_line(error)}; run the same command again"
        )


def _version(meta: Any) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(meta[key])) for key in ("e_tag", "version") if meta.get(key) is not None)


def _first_line(error: Exception | None) -> str:
    """What happened, without the dump of the client's own structures."""
    return str(error).partition("\n")[0]


@lru_cache(maxsize=16)
def _client(uri: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    if uri.startswith("memory://"):
        return MemoryStore()
    config: Any = dict(options)
    client: Any = {"allow_http": True, "timeout": "30s", "connect_timeout": "5s"}
    retries: Any = {
        "max_retries": 20,  # the time is the limit
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
        "retry_timeout": timedelta(seconds=_PATIENCE_SECONDS),
    }
    credentials = provider_of(uri, config)
    more: Any = {} if credentials is None else {"credential_provider": credentials}
    return from_url(uri, config=config, client_options=client, retry_config=retries, **more)
