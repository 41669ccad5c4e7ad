"""Segments: the parts of the binlog that readers decode in parallel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from lakeingest.core.history import History
from lakeingest.core.position import FilePosition, GtidSet, Position, is_before, is_within, offsets

LEAST_BYTES = 16 << 20  # fewer bytes are decoded within 0.3 s, and the start of a Spark job takes longer


@dataclass(frozen=True, slots=True)
class Segment:
    """The transactions after `start` that end at or before `stop`; both are transaction boundaries.

    `skip`: transactions that are not decoded, because the spool has them or was opened after them. `history`: the
    binlog's history at `start`, which the reader of the segment proves; None if the reader proves nothing.
    """

    server_uuid: str
    epoch: int
    start: FilePosition
    stop: FilePosition
    skip: GtidSet
    history: History | None = None

    def __post_init__(self) -> None:
        if is_before(self.stop, self.start):
            raise ValueError(f"a segment ends before it begins: {self.start} to {self.stop}")

    @classmethod
    def after(cls, position: Position, stop: FilePosition) -> Self:
        """The segment from a position up to `stop`."""
        gtids = position.gtids or GtidSet()
        return cls(position.server_uuid, position.epoch, position.at, stop, gtids, position.history)

    @property
    def empty(self) -> bool:
        """Whether the segment has no bytes, and so no transaction."""
        return self.start == self.stop


def cut(
    whole: Segment, boundaries: Iterable[FilePosition], sizes: Mapping[str, int], pieces: int, least: int
) -> list[Segment]:
    """Cut a segment at transaction boundaries into at most `pieces` segments of about as many bytes, in order.

    `boundaries`: known ends of transactions, in any order. A boundary outside the segment, or after the end of its
    file, is ignored. `sizes`: the bytes of all binlog files of the segment. If the segment is cut, no piece has fewer
    than `least` bytes. Each piece ends at the boundary that is nearest to its equal share.
    """
    if whole.empty:
        return []
    offset = offsets(sizes)
    first, last = offset(whole.start), offset(whole.stop)
    existing = [at for at in boundaries if is_within(at, sizes)]
    inside = {at: offset(at) for at in existing if first < offset(at) < last}
    count = min(pieces, (last - first) // least) if inside else 1
    ends = [whole.start]
    for piece in range(1, count):
        share_end = first + (last - first) * piece // count
        nearest = min(inside, key=lambda at: abs(inside[at] - share_end))
        if inside[nearest] - offset(ends[-1]) >= least and last - inside[nearest] >= least:
            ends.append(nearest)
    ends.append(whole.stop)
    return [
        replace(whole, start=start, stop=stop, history=whole.history if start == whole.start else None)
        for start, stop in pairwise(ends)
    ]
