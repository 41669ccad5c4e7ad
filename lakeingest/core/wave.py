"""Waves, and the filter: which change is applied to which split, and from where a merge must read.

A chunk is a row set seen by one read view, with a low watermark that the view contains and a high watermark that
contains the view. Rows of the view followed by the changes of the window (low, high], in binlog order, are the chunk
as of high; each later change then applies once. (DBLog, section 4; Flink CDC 2.0, `shouldEmit`; here the window's
changes are upserted by the next merge, so one rule covers both.)
"""

from dataclasses import dataclass

from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import Place
from lakeingest.core.splits import Splits
from lakeingest.core.transactions import TransactionLog
from lakeingest.errors import SpoolGap

Mark = tuple[KeyRange, Place]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """One merge: the frozen splits it covers, the mark of each, and the stop that it lifts them to.

    A merge reads the spool from the *least* mark, never simply from the previous stop: splits of a later wave need
    changes that earlier merges dropped.
    """

    splits: Splits
    marks: tuple[Mark, ...]
    stop: Place

    @property
    def start(self) -> Place:
        """The spool is read from here, not included, to the stop, included."""
        return min(mark for _, mark in self.marks)

    def should_apply(self, place: Place, key: Key) -> bool:
        """Whether the change of `key` in the transaction that ends at `place` is to be applied.

        The key's split unmerged: iff the transaction is not in its low watermark. Merged: iff it is after the stop of
        its last merge. In no finished split: never, its chunk will see it.
        """
        return any(key in keys and mark < place for keys, mark in self.marks) and place <= self.stop


def marks_of(splits: Splits, log: TransactionLog, covered_from: Place) -> list[Place]:
    """Of each split the place up to which its rows hold every change: its low, then the stop of its last merge."""
    lows = log.places({split.low for split in splits.all if split.low is not None}, covered_from)
    marks: list[Place] = []
    for split in splits.all:
        mark = split.merged_at
        if mark is None:
            assert split.low is not None  # noqa: S101 - held by Split
            mark = lows[split.low]
        elif mark < covered_from:
            raise SpoolGap(f"the spool begins at {covered_from}, a split needs it from {mark}")
        marks.append(mark)
    return marks


def plan_merge(splits: Splits, stop: Place, log: TransactionLog, covered_from: Place) -> MergePlan:
    """Plan the merge of all finished splits to `stop`.

    The spool holds every change of the table from `covered_from` to `stop`, and `log` its transactions. ValueError when
    `stop` is before a split's high watermark or last stop, or when chunks are missing and only the server knows of
    which keys; SpoolGap when a mark is older than the spool, so that
    changes would be missing.
    """
    if not splits.all:
        raise ValueError("nothing to merge: no split is finished")
    if not splits.ordered:
        raise ValueError("a merge before the last chunk, of keys whose order only the server knows")
    late = max(split.floor for split in splits.all)
    if stop < late:
        raise ValueError(f"a merge to {stop} would end before {late}, which a split has already seen")
    marks: list[Mark] = []
    for split, mark in zip(splits.all, marks_of(splits, log, covered_from), strict=True):
        if marks and marks[-1][1] == mark:
            marks[-1] = (KeyRange(marks[-1][0].lower, split.range.upper), mark)
        else:
            marks.append((split.range, mark))
    return MergePlan(splits, tuple(marks), stop)
