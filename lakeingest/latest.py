"""Values that are needed often: each value is made once from stored contents, and kept until the contents change."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
MOST = 20_000  # the most keys, such as tables: beyond them, the value that was asked for longest ago is dropped


class Latest(Generic[Key, Value]):
    """For each key, the value of the contents that were last given for it. All callers get the same, frozen value."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._made: OrderedDict[Key, tuple[bytes, Value]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Key, contents: bytes, make: Callable[[], Value]) -> Value:
        """The value of these contents: the kept one, or else the one that `make` returns. Raises as `make` does."""
        digest = hashlib.blake2b(contents, digest_size=16).digest()
        with self._lock:
            made = self._made.get(key)
            if made is not None and made[0] == digest:
                self._made.move_to_end(key)
                return made[1]
        value = make()  # without the lock, so that other threads need not wait; two threads may make the same value
        with self._lock:
            self._made[key] = digest, value
            self._made.move_to_end(key)
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        return value
