"""Segments: the parts of the binlog that readers decode side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Self

from lakeingest.core.history import History
from lakeingest.core.position import FilePosition, GtidSet, Position, file_number

LEAST_BYTES = 16 << 20  # worth a reader of their own: fewer are decoded within 0.3 s, and a job of Spark takes longer


@dataclass(frozen=True, slots=True)
class Segment:
    """The transactions after `start`, up to and with the one that ends at `stop`; both are transaction boundaries.

    Transactions in `skip` are passed over undecoded: they were executed before the spool opened. Where `history` is
    given, it is that of `start`, and is proven while the segment is read.
    """

    server_uuid: str
    epoch: int
    start: FilePosition
    stop: FilePosition
    skip: GtidSet
    history: History | None = None

    def __post_init__(self) -> None:
        if (self.stop.number, self.stop.pos) < (self.start.number, self.start.pos):
            raise ValueError(f"a segment ends before it begins: {self.start} to {self.stop}")

    @classmethod
    def after(cls, position: Position, stop: FilePosition) -> Self:
        """What comes after a position, up to `stop`."""
        gtids = position.gtids or GtidSet()
        return cls(position.server_uuid, position.epoch, position.at, stop, gtids, position.history)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.start == self.stop


def cut(
    whole: Segment, boundaries: Iterable[FilePosition], sizes: Mapping[str, int], pieces: int, least: int
) -> list[Segment]:
    """Cut a segment at transaction boundaries into at most `pieces` segments of about as many bytes, in order.

    `boundaries` are known ends of transactions, in any order; those outside the segment, and behind the end of their
    file, are ignored. `sizes` are the bytes of files, all that the segment is in among them. No piece of several is
    shorter than `least`; each is as long as its share, but for the gap between boundaries and for `least` at either
    end.
    """
    if whole.empty:
        return []
    files = sorted(sizes, key=file_number)
    before = dict(zip(files, accumulate((sizes[file] for file in files), initial=0), strict=False))

    def offset(at: FilePosition) -> int:
        return before[at.file] + at.pos

    first, last = offset(whole.start), offset(whole.stop)
    known = [at for at in boundaries if at.pos <= sizes.get(at.file, -1)]
    inside = {at: offset(at) for at in known if first < offset(at) < last}
    wanted = min(pieces, (last - first) // least) if inside else 1
    ends = [whole.start]
    for piece in range(1, wanted):
        share_ends = first + (last - first) * piece // wanted
        nearest = min(inside, key=lambda at: abs(inside[at] - share_ends))
        if inside[nearest] - offset(ends[-1]) >= least and last - inside[nearest] >= least:
            ends.append(nearest)
    ends.append(whole.stop)
    return [
        replace(whole, start=start, stop=stop, history=whole.history if start == whole.start else None)
        for start, stop in pairwise(ends)
    ]
