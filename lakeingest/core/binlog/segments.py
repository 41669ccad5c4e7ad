"""Segments: the parts of the binlog that readers decode in parallel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position, is_before, is_within, offsets

LEAST_BYTES = 16 << 20  # fewer bytes are decoded within 0.3 s, and the start of a Spark job takes longer


@dataclass(frozen=True, slots=True)
class Segment:
    """The transactions after `start` that end at or before `stop`; both are transaction boundaries.

    `skip`: transactions that are not decoded, because the spool has them or was opened after them. `history`: the
    history that the binlog must have at `start`, which the reader of the segment checks; None: no check.
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
        return cls(position.server_uuid, position.epoch, position.at, stop, skip=gtids, history=position.history)

    @property
    def empty(self) -> bool:
        """Whether the segment has no bytes, and so no transaction."""
        return self.start == self.stop


def cut(
    whole: Segment, boundaries: Iterable[FilePosition], sizes: Mapping[str, int], pieces: int, least: int
) -> list[Segment]:
    """Cut a segment at transaction boundaries into at most `pieces` segments, in order, of about equal size.

    `boundaries`: known ends of transactions, in any order. A boundary outside the segment, or after the end of its
    file, is ignored. `sizes`: the number of bytes of each binlog file of the segment. Each piece ends at the boundary
    that is nearest to the end of an equal share. If a piece would have fewer than `least` bytes, there is no cut at
    that boundary. An empty segment has no pieces.
    """
    if whole.empty:
        return []
    offset_of = offsets(sizes)
    first, last = offset_of(whole.start), offset_of(whole.stop)
    in_files = [at for at in boundaries if is_within(at, sizes)]
    usable = {at: offset_of(at) for at in in_files if first < offset_of(at) < last}
    shares = min(pieces, (last - first) // least) if usable else 1
    cuts = [whole.start]
    for share in range(1, shares):
        share_end = first + (last - first) * share // shares
        nearest = min(usable, key=lambda at: abs(usable[at] - share_end))
        size_before, size_after = usable[nearest] - offset_of(cuts[-1]), last - usable[nearest]
        if size_before >= least and size_after >= least:
            cuts.append(nearest)
    cuts.append(whole.stop)
    # `history` is that at the start of the whole segment, so only the first piece has it
    return [
        replace(whole, start=start, stop=stop, history=whole.history if start == whole.start else None)
        for start, stop in pairwise(cuts)
    ]
