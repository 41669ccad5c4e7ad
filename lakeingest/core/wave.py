"""Waves, and the filter: which change is applied to which split, and from where a merge must read.

A chunk is a row set seen by one read view, with a low watermark that the view contains and a high watermark that
contains the view. Rows of the view followed by the changes of the window (low, high], in binlog order, are the chunk
as of high; each later change then applies once. (DBLog, section 4; Flink CDC 2.0, `shouldEmit`; here the window's
changes are upserted by the next merge, so one rule covers both.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeingest.core.change import REREAD, ChangeRow
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import Place
from lakeingest.core.rereads import Patch
from lakeingest.core.splits import Splits
from lakeingest.core.transactions import TransactionLog
from lakeingest.errors import SpoolGap

Mark = tuple[KeyRange, Place]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """One merge: the frozen splits that it covers, the mark of each, and the stop that it lifts them to.

    A merge reads the spool from the *least* mark, never simply from the previous stop: splits of a later wave need
    changes that earlier merges dropped.

    `patches` are the patches that the merge takes in, each with the place of its low. The history of a key in a patch
    is, in this order: its changes up to that place, its row of the patch, its changes after that place. So within a
    patch's key range each mark is at most the patch's low, even if the split was merged further.
    """

    splits: Splits
    marks: tuple[Mark, ...]
    stop: Place
    patches: tuple[tuple[Patch, Place], ...] = ()

    @property
    def start(self) -> Place:
        """The merge reads the spool after this place, up to and including its stop."""
        return min(mark for _, mark in self.marks)

    def should_apply(self, place: Place, key: Key) -> bool:
        """Whether the change of `key` in the transaction that ends at `place` is to be applied.

        If the key's split was not merged, a change applies if its transaction is not in the split's low watermark. If
        the split was merged, the change applies if it is after the stop of the last merge. If no finished split has the
        key, no change applies: its chunk will see it.
        """
        return any(key in keys and mark < place for keys, mark in self.marks) and place <= self.stop

    def patched(self, rows: Mapping[str, Iterable[ChangeRow]]) -> list[ChangeRow]:
        """The rows of the patches, with their place in the order of changes. `rows` has them by the patch's name.

        `collapse` takes all of them, without `should_apply`. Raises KeyError if `rows` lacks a patch: it is lost.
        """
        return [replace(row, place=low, ordinal=REREAD) for patch, low in self.patches for row in rows[patch.name]]


def marks_of(splits: Splits, log: TransactionLog, covered_from: Place) -> list[Place]:
    """For each split, the place up to which its rows have every change: its low, or the stop of its last merge."""
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


def plan_merge(
    splits: Splits, stop: Place, log: TransactionLog, covered_from: Place, patches: Sequence[Patch] = ()
) -> MergePlan:
    """Plan the merge of all finished splits, and of all patches, to `stop`.

    The spool has every change of the table from `covered_from` to `stop`, and `log` its transactions.

    Raises:
        ValueError: `stop` is before the high watermark of a split or a patch, or before a split's last stop. Or chunks
            are missing, and there are patches, or only the server knows the order of keys.
        SpoolGap: a mark or the low of a patch is older than the spool, which then lacks changes.

    """
    if not splits.all:
        raise ValueError("nothing to merge: no split is finished")
    if not splits.ordered:
        raise ValueError("a merge before the last chunk, of keys whose order only the server knows")
    if patches and not splits.complete:
        raise ValueError("a patch before the last chunk, which would bring its rows once more")
    late = max([*(split.floor for split in splits.all), *(patch.high for patch in patches)])
    if stop < late:
        raise ValueError(f"a merge to {stop} would end before {late}, which a split has already seen")
    places = log.places({patch.low for patch in patches}, covered_from)
    marks: Iterable[Mark] = zip((split.range for split in splits.all), marks_of(splits, log, covered_from), strict=True)
    for patch in patches:
        marks = _lowered(list(marks), patch.within, places[patch.low])
    return MergePlan(splits, _joined(marks), stop, tuple((patch, places[patch.low]) for patch in patches))


def _lowered(marks: Iterable[Mark], within: KeyRange, low: Place) -> Iterator[Mark]:
    """The marks, where no key in `within` has a mark above `low`."""
    for keys, mark in marks:
        before, inside, after = keys.parted(within)
        if before is not None:
            yield before, mark
        if inside is not None:
            yield inside, min(mark, low)
        if after is not None:
            yield after, mark


def _joined(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """The marks, with neighbours of the same place as one."""
    joined: list[Mark] = []
    for keys, mark in marks:
        if joined and joined[-1][1] == mark:
            joined[-1] = (KeyRange(joined[-1][0].lower, keys.upper), mark)
        else:
            joined.append((keys, mark))
    return tuple(joined)
