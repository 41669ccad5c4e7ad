"""A cache of small data files of object stores that this process has read or written.

An entry never becomes outdated, because a data file is never replaced.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable

SMALL_BYTES = 1 << 20  # a data file of at most this size is read completely, and kept
_KEPT_BYTES = 64 << 20  # the size of the cache
_kept: OrderedDict[Hashable, bytes] = OrderedDict()
_LOCK = threading.Lock()  # for changes of the cache: files are read in threads, too


def contents_of(file: Hashable) -> bytes | None:
    """The contents of a file; None if the cache does not have the file."""
    return _kept.get(file)


def keep(file: Hashable, contents: bytes) -> None:
    """Keep the contents of a file. If the cache is full, the oldest entries are dropped."""
    with _LOCK:
        _kept[file] = contents
        while sum(map(len, _kept.values())) > _KEPT_BYTES:
            _kept.popitem(last=False)
