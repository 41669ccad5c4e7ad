"""The traffic of this process with object stores: requests of `Bucket`, and bytes of the contents that they moved.

A request that the client repeats, splits or pages counts once. Bytes of listings and of protocols are not counted.
"""

import threading
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Traffic:
    """Numbers of requests, and of bytes read and written."""

    requests: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: Self, /) -> "Traffic":
        return Traffic(self.requests + other.requests, self.read + other.read, self.written + other.written)

    def __sub__(self, other: Self, /) -> "Traffic":
        return Traffic(self.requests - other.requests, self.read - other.read, self.written - other.written)


NONE = Traffic()

_lock = threading.Lock()
_total = NONE


def so_far() -> Traffic:
    """The traffic of this process so far. A fork begins with that of its parent."""
    return _total


def count(requests: int = 0, read: int = 0, written: int = 0) -> None:
    """Add to the traffic of this process."""
    global _total  # noqa: PLW0603 - threads of the process share it
    with _lock:
        _total += Traffic(requests, read, written)
