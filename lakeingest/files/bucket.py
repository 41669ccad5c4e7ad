"""A bucket of an object store, its client, and the state of an object as the store says it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Self

from obstore.store import MemoryStore, ObjectStore, from_url

from lakeingest.files.credentials import provider_of

PATIENCE_SECONDS = 15.0  # of all tries of one request: a lease is void after twice as long


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store says of an object: `version` is another one after each put."""

    version: tuple[tuple[str, str], ...]
    size: int
    changed: datetime

    @classmethod
    def of(cls, meta: Any) -> Self:
        """What a listing, or the answer to a request, has."""
        return cls(version_of(meta), meta["size"], meta["last_modified"])


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where objects are, and how the store is reached; pickled to use it on executors."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # credentials may be among them

    @property
    def store(self) -> ObjectStore:
        """The client. Its threads do not live on in a process that is forked from one that has used it."""
        return _client(self.uri, self.options)


def version_of(meta: Any) -> tuple[tuple[str, str], ...]:
    """The version that a store gives an object."""
    return tuple((key, str(meta[key])) for key in ("e_tag", "version") if meta.get(key) is not None)


@lru_cache(maxsize=16)
def _client(uri: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    if uri.startswith("memory://"):
        return MemoryStore()
    config: Any = dict(options)
    client: Any = {"allow_http": True, "timeout": "30s", "connect_timeout": "5s"}
    retries: Any = {
        "max_retries": 20,  # the time is the limit
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
        "retry_timeout": timedelta(seconds=PATIENCE_SECONDS),
    }
    credentials = provider_of(uri, config)
    more: Any = {} if credentials is None else {"credential_provider": credentials}
    return from_url(uri, config=config, client_options=client, retry_config=retries, **more)
