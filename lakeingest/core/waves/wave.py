"""Waves, and the filter: which change is applied to which split, and from where a merge must read.

A chunk is the set of rows that one read view contains, with a low watermark that the view contains and a high watermark
that contains the view. If the changes of the window (low, high] are applied to these rows in binlog order, the result
is the chunk as of `high`. Then each later change is applied once. Sources: DBLog, section 4; Flink CDC 2.0,
`shouldEmit`. Here, the next merge also applies the changes of the window. So one rule decides about all changes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.transactions import TransactionLog
from lakeingest.core.tables.change import REREAD, ChangeRow
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.rereads import Patch
from lakeingest.core.waves.splits import Splits
from lakeingest.errors import SpoolGap

Mark = tuple[KeyRange, Place]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """One merge: the splits that it merges, the mark of each, and the stop to which it brings them.

    A merge reads the spool from the *least* mark, and not from the stop of the last merge, because splits of a later
    wave need changes that earlier merges did not apply.

    `patches`: the patches that the merge takes in, each with the place of its low. For a key in a patch, this is the
    order: the key's changes up to that place, its row in the patch, its changes after that place. So within the key
    range of a patch, each mark is at most the place of the patch's low, even if the split was merged further.
    """

    splits: Splits
    marks: tuple[Mark, ...]
    stop: Place
    patches: tuple[tuple[Patch, Place], ...] = ()

    @property
    def start(self) -> Place:
        """The least mark: the merge reads the spool after this place, up to and including the stop. It needs a mark."""
        return min(mark for _, mark in self.marks)

    def should_apply(self, place: Place, key: Key) -> bool:
        """Whether the change of `key` in the transaction that ends at `place` is to be applied.

        The change is applied if it is after the mark that holds for the key, and not after this merge's stop. If no
        finished split has the key, the change is not applied, because the read view of the key's chunk will contain it.
        """
        return any(key in range_ and mark < place for range_, mark in self.marks) and place <= self.stop

    def patched(self, rows: Mapping[str, Iterable[ChangeRow]]) -> list[ChangeRow]:
        """The rows of all patches, each with its place in the order of changes. `rows`: the rows by the patch's name.

        All these rows are given to `collapse`; `should_apply` is not asked about them. Raises KeyError if `rows` lacks
        a patch, because the patch's file is lost.
        """
        return [replace(row, place=low, ordinal=REREAD) for patch, low in self.patches for row in rows[patch.name]]


def marks_of(splits: Splits, log: TransactionLog, covered_from: Place) -> list[Place]:
    """For each split, its mark: the place up to which the split's rows have every change.

    The mark is the place of the low watermark or, if the split was merged, the stop of the last merge. Raises SpoolGap
    if a mark is before `covered_from`, and StateUnreadable as `TransactionLog.places` does.
    """
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

    The spool has every change of the table from `covered_from` to `stop`; `log` has the transactions of the spool.

    Raises:
        ValueError: `stop` is before the high watermark of a split or a patch, or before the stop of a split's last
            merge; or no chunk was read; or chunks are missing, although there are patches or only the server knows the
            order of keys.
        SpoolGap: a mark or the low of a patch is before `covered_from`, so that changes are missing in the spool.
        StateUnreadable: a low has no place (`TransactionLog.places`).

    """
    if not splits.all:
        raise ValueError("nothing to merge: no split is finished")
    if not splits.ordered:  # a complete copy of such keys has one split without bounds, which counts as ordered
        raise ValueError("a merge before the last chunk, of keys whose order only the server knows")
    if patches and not splits.complete:  # a patch may have rows of a missing chunk
        raise ValueError("a patch before the last chunk, which would bring its rows once more")
    # the rows may contain changes up to this place, so an earlier stop would not be the state of one place
    least_stop = max([*(split.floor for split in splits.all), *(patch.high for patch in patches)])
    if stop < least_stop:
        raise ValueError(f"a merge to {stop} would end before {least_stop}, which a split has already seen")
    low_places = log.places({patch.low for patch in patches}, covered_from)
    marks: Iterable[Mark] = zip((split.range for split in splits.all), marks_of(splits, log, covered_from), strict=True)
    for patch in patches:  # all changes of its keys after its low are applied, even those that were merged already
        # the list keeps the generators of many patches from being nested
        marks = _lowered(list(marks), patch.within, low_places[patch.low])
    return MergePlan(splits, _joined(marks), stop, tuple((patch, low_places[patch.low]) for patch in patches))


def _lowered(marks: Iterable[Mark], within: KeyRange, low: Place) -> Iterator[Mark]:
    """The same marks, but for keys in `within` no mark is after `low`. Ranges are cut at the bounds of `within`."""
    for range_, mark in marks:
        before, inside, after = range_.parted(within)
        if before is not None:
            yield before, mark
        if inside is not None:
            yield inside, min(mark, low)
        if after is not None:
            yield after, mark


def _joined(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """The same marks, whose ranges touch, in key order. Neighbouring ranges with the same place become one range."""
    joined: list[Mark] = []
    for range_, mark in marks:
        if joined and joined[-1][1] == mark:
            last_range, _ = joined[-1]
            joined[-1] = (KeyRange(last_range.lower, range_.upper), mark)
        else:
            joined.append((range_, mark))
    return tuple(joined)
