"""Small data files of object stores that this process has read or written. Nobody replaces a data file."""

from collections import OrderedDict
from collections.abc import Hashable

SMALL_BYTES = 1 << 20  # a data file that is read whole, and kept
_KEPT_BYTES = 64 << 20
_kept: OrderedDict[Hashable, bytes] = OrderedDict()


def contents_of(file: Hashable) -> bytes | None:
    """The contents of a file that is kept; None where it is not."""
    return _kept.get(file)


def keep(file: Hashable, contents: bytes) -> None:
    """Keep the contents of a file; where there is no room, those that were kept first are forgotten."""
    _kept[file] = contents
    while sum(map(len, _kept.values())) > _KEPT_BYTES:
        _kept.popitem(last=False)
