"""The traffic of this process with object stores and disks.

For stores, the requests of `Bucket` are counted, and the bytes of the contents that these requests moved. A request
that the client repeats, splits or pages counts once. Bytes of listings and of protocols are not counted. For stores and
disks, the files that were written are counted.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub
from typing import Self


@dataclass(frozen=True, slots=True)
class Traffic:
    """Numbers of requests to stores, of bytes read and written there, of files written anywhere, and of their bytes."""

    requests: int = 0
    read: int = 0
    written: int = 0
    files: int = 0
    of_files: int = 0

    def __add__(self, other: Self, /) -> "Traffic":
        return self._with(add, other)

    def __sub__(self, other: Self, /) -> "Traffic":
        return self._with(sub, other)

    def _with(self, change: Callable[[int, int], int], other: Self) -> "Traffic":
        # `dataclasses.astuple` copies each value: with thousands of tables, that took a thirtieth of a run
        return Traffic(
            change(self.requests, other.requests),
            change(self.read, other.read),
            change(self.written, other.written),
            change(self.files, other.files),
            change(self.of_files, other.of_files),
        )


NONE = Traffic()

_lock = threading.Lock()
_total = NONE


def so_far() -> Traffic:
    """The traffic of this process so far. A fork begins with the traffic of its parent."""
    return _total


def count_file(size: int) -> None:
    """Add a written file of `size` bytes."""
    count(files=1, of_files=size)


def count(**numbers: int) -> None:
    """Add to the traffic of this process. `numbers`: by the fields of `Traffic`."""
    global _total  # noqa: PLW0603 - threads of the process share it
    with _lock:
        _total += Traffic(**numbers)
