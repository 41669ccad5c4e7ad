"""A bucket of an object store, its client, and what the store knows about an object."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import obstore
from obstore.store import MemoryStore, ObjectStore, from_url

from lakeingest.files import traffic
from lakeingest.files.credentials import provider_of

PATIENCE_SECONDS = 15.0  # for all tries of one request together: half of the time after which a lease is void


@dataclass(frozen=True, slots=True)
class Seen:
    """The metadata of an object, as the store reported them; each put gives the object another `version`."""

    version: tuple[tuple[str, str], ...]
    size: int
    changed: datetime

    @classmethod
    def of(cls, meta: Any) -> Self:
        """The values in an entry of a listing, or in the response to a request."""
        return cls(version_of(meta), meta["size"], meta["last_modified"])


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket's address, and how its store is reached. It is pickled, so that executors can use it.

    Methods raise the errors of the store's client, among them FileNotFoundError; `Stored` turns the others into ours.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # credentials may be among them

    @property
    def store(self) -> ObjectStore:
        """The client of the store, for one request, which is counted.

        A client that this process has used does not work in a fork of the process, because a fork has no threads.
        """
        traffic.count(requests=1)
        return _client(self.uri, self.options)

    def get(self, key: str) -> tuple[bytes, Seen]:
        """The contents of an object and their metadata."""
        answer = obstore.get(self.store, key)
        return counted(answer.bytes()), Seen.of(answer.meta)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes of an object from one offset up to another."""
        return counted(obstore.get_range(self.store, key, start=start, end=end))

    def put(self, key: str, contents: bytes | Path, **options: Any) -> Any:
        """Put these contents, or those of a file of this machine. Returns the store's answer."""
        answer = obstore.put(self.store, key, contents, **options)
        size = len(contents) if isinstance(contents, bytes) else contents.stat().st_size
        traffic.count(written=size, files=1, of_files=size)
        return answer


def counted(contents: Any) -> bytes:
    """Count the bytes of contents that a store has sent, and return the contents."""
    read = bytes(contents)
    traffic.count(read=len(read))
    return read


def version_of(meta: Any) -> tuple[tuple[str, str], ...]:
    """The version in an object's metadata: `e_tag` and `version`, as pairs of key and value. () if it has neither."""
    return tuple((key, str(meta[key])) for key in ("e_tag", "version") if meta.get(key) is not None)


@lru_cache(maxsize=16)
def _client(uri: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """The client for an address and options, which this process makes once."""
    if uri.startswith("memory://"):
        return MemoryStore()
    config: Any = dict(options)
    client: Any = {"allow_http": True, "timeout": "30s", "connect_timeout": "5s"}
    retries: Any = {
        "max_retries": 20,  # so many that `retry_timeout` is the limit
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
        "retry_timeout": timedelta(seconds=PATIENCE_SECONDS),
    }
    credentials = provider_of(uri, config)
    more: Any = {} if credentials is None else {"credential_provider": credentials}
    return from_url(uri, config=config, client_options=client, retry_config=retries, **more)
