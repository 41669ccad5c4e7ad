"""A cache of small data files of object stores that this process has read or written. Nobody replaces a data file."""

from collections import OrderedDict
from collections.abc import Hashable

SMALL_BYTES = 1 << 20  # a data file of at most this size is read whole, and kept
_KEPT_BYTES = 64 << 20
_kept: OrderedDict[Hashable, bytes] = OrderedDict()


def contents_of(file: Hashable) -> bytes | None:
    """The contents of a file in the cache; None where it is not there."""
    return _kept.get(file)


def keep(file: Hashable, contents: bytes) -> None:
    """Keep the contents of a file. Where there is no room, the oldest entries are dropped."""
    _kept[file] = contents
    while sum(map(len, _kept.values())) > _KEPT_BYTES:
        _kept.popitem(last=False)
