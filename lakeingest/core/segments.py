"""Segments: the parts of the binlog that readers decode side by side."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from lakeingest.core.position import FilePosition, GtidSet


@dataclass(frozen=True, slots=True)
class Segment:
    """The transactions after `start`, up to and with the one that ends at `stop`; both are transaction boundaries.

    Transactions in `skip` are passed over undecoded: they were executed before the spool opened.
    """

    server_uuid: str
    epoch: int
    start: FilePosition
    stop: FilePosition
    skip: GtidSet

    def __post_init__(self) -> None:
        if (self.stop.number, self.stop.pos) < (self.start.number, self.start.pos):
            raise ValueError(f"a segment ends before it begins: {self.start} to {self.stop}")

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.start == self.stop


def cut(whole: Segment, boundaries: Iterable[FilePosition], pieces: int) -> list[Segment]:
    """Cut a segment at transaction boundaries into at most `pieces` segments of about the same length, in order.

    `boundaries` are known ends of transactions, in any order; those outside the segment are ignored. File sizes are not
    known here, so length is measured by the count of boundaries passed.
    """
    if whole.empty:
        return []
    inside = sorted(
        {
            at
            for at in boundaries
            if (whole.start.number, whole.start.pos) < (at.number, at.pos) < (whole.stop.number, whole.stop.pos)
        },
        key=lambda at: (at.number, at.pos),
    )
    cuts = min(pieces - 1, len(inside))
    chosen = [inside[(i + 1) * len(inside) // (cuts + 1)] for i in range(cuts)]
    ends = [whole.start, *chosen, whole.stop]
    return [Segment(whole.server_uuid, whole.epoch, start, stop, whole.skip) for start, stop in pairwise(ends)]
