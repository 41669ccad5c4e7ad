"""Splits: finished chunks. A split has the watermarks of its read or, once merged, the stop of its last merge."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Self

from lakeingest.core.binlog.position import GtidSet, Low, Place, low_from_json, low_to_json
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.errors import DAMAGED, StateUnreadable


@dataclass(frozen=True, slots=True)
class Split:
    """A finished chunk: either read, with `low` and `high`, or merged, with `merged_at`, the stop of its last merge."""

    range: KeyRange
    low: Low | None = None
    high: Place | None = None
    merged_at: Place | None = None

    def __post_init__(self) -> None:
        is_read, is_merged = self.low is not None, self.merged_at is not None
        has_both_or_neither = is_read == (self.high is not None)
        if is_read == is_merged or not has_both_or_neither:
            raise ValueError(f"a split is read or merged: {self}")
        if isinstance(self.low, Place) and self.high is not None and self.high < self.low:
            raise ValueError(f"a window ends before it begins: {self}")

    @property
    def floor(self) -> Place:
        """The least stop that is allowed for a merge of this split: the rows may contain changes up to this place."""
        floor = self.high if self.merged_at is None else self.merged_at
        assert floor is not None  # noqa: S101 - held by __post_init__
        return floor

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        doc: dict[str, Any] = {"lower": self.range.lower, "upper": self.range.upper}
        if self.merged_at is not None:
            return doc | {"at": str(self.merged_at)}
        assert self.low is not None  # noqa: S101 - held by __post_init__
        return doc | {"low": low_to_json(self.low), "high": str(self.high)}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable if a part is missing or wrong."""
        try:
            bounds = range_from_json(doc)
            if "at" in doc:
                return cls(bounds, merged_at=Place.parse(doc["at"]))
            return cls(bounds, low_from_json(doc["low"]), Place.parse(doc["high"]))
        except DAMAGED as error:
            raise StateUnreadable(f"not a split: {doc!r}") from error


@dataclass(frozen=True, slots=True)
class Splits:
    """The finished splits of a table, in key order: they tile the keys from the least key up to `copied_up_to`.

    If only the server knows the order of keys, all splits are joined to one split, because nobody else can tell which
    of several splits has a key. The low of this one split is the least low. So a merge may apply changes again that a
    chunk has seen already. That does not change the last row of a key. The one split cannot be merged before it has
    every key of the table: otherwise the merge would apply changes of keys that a later chunk brings.
    """

    all: tuple[Split, ...] = ()

    def __post_init__(self) -> None:
        if self.all and self.all[0].range.lower is not None:
            raise ValueError("the first split has no lower bound")
        for split, following in pairwise(self.all):
            if not split.range.touches(following.range):
                raise ValueError(f"a gap or an overlap between {split.range} and {following.range}")

    @property
    def complete(self) -> bool:
        """Whether every key of the table is in a finished split."""
        return bool(self.all) and self.all[-1].range.upper is None

    @property
    def copied_up_to(self) -> Key | None:
        """The least key that is in no finished split; None if no chunk is finished yet, or if all are finished."""
        return self.all[-1].range.upper if self.all else None

    @property
    def stop(self) -> Place | None:
        """The stop of the last merge of each split, if no chunk is missing and all stops are equal; else None."""
        stops = {split.merged_at for split in self.all}  # with None for a split that was not merged
        return stops.pop() if self.complete and len(stops) == 1 else None

    def find(self, key: Key) -> Split | None:
        """The split that has the key; None if the chunk with the key is still to be read."""
        uppers = [split.range.upper for split in self.all if split.range.upper is not None]
        index = bisect_right(uppers, key)  # right: a split does not have its upper bound
        return self.all[index] if index < len(self.all) else None

    def finish(self, wave: Iterable[Split]) -> Self:
        """These splits and those of one more wave; if only the server knows the order of keys, joined to one split.

        Raises ValueError if no chunk is missing, or if the wave does not begin where these splits end. Raises
        ValueError also if these splits must be joined, but were merged already.
        """
        if self.complete:
            raise ValueError("the table has no more chunks")
        finished = type(self)(self.all + _joined(wave))
        return finished if finished.ordered else type(self)((_as_one(finished.all),))

    @property
    def ordered(self) -> bool:
        """Whether it is known, without asking the server, which split has a given key."""
        return all(split.range.ordered for split in self.all)

    def merged_to(self, planned: Self, stop: Place) -> Self:
        """The splits after a merge of the `planned` splits to `stop`. The other splits keep their watermarks.

        Raises ValueError if a planned split is not among these splits: then the merge was recorded already, or another
        run has changed the splits.
        """
        merged = set(planned.all)
        if not merged <= set(self.all):
            raise ValueError("the merge was planned on other splits")
        return type(self)(
            _joined(Split(split.range, merged_at=stop) if split in merged else split for split in self.all)
        )

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON document that `from_json` reads back."""
        return [split.to_json() for split in self.all]

    @classmethod
    def from_json(cls, doc: Iterable[Mapping[str, Any]]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for anything else, or if the splits do not tile the keys."""
        try:
            return cls(tuple(Split.from_json(split) for split in doc))
        except DAMAGED as error:
            raise StateUnreadable(f"not the splits of a table: {error}") from error


def range_from_json(doc: Mapping[str, Any]) -> KeyRange:
    """The range with the bounds `lower` and `upper` of a document.

    Raises KeyError if a bound is missing, and ValueError for a wrong bound.
    """
    return KeyRange(*(None if doc[end] is None else key_from_json(doc[end]) for end in ("lower", "upper")))


def key_from_json(doc: object) -> Key:
    """A key, which JSON has as a list. Raises ValueError for anything else."""
    if not (isinstance(doc, list) and all(isinstance(part, int | str) for part in doc)):
        raise ValueError(f"not a key: {doc!r}")
    return tuple(doc)


def _as_one(splits: Sequence[Split]) -> Split:
    """One split with the keys of all splits, their least low and their greatest high.

    The least of several GTID sets is the set of the transactions that all of them contain. Raises ValueError if a split
    was merged, or if some lows have GTIDs and others do not.
    """
    lows = [split.low for split in splits if split.low is not None]
    highs = [split.high for split in splits if split.high is not None]
    if len(lows) < len(splits):
        raise ValueError("a wave after a merge, of keys whose order only the server knows")
    return Split(KeyRange(splits[0].range.lower, splits[-1].range.upper), reduce(_least, lows), max(highs))


def _least(low: Low, other: Low) -> Low:
    """The low with the transactions that both lows contain. Raises ValueError if only one of them is a GTID set."""
    if isinstance(low, GtidSet) and isinstance(other, GtidSet):
        return low & other
    if isinstance(low, Place) and isinstance(other, Place):
        return min(low, other)
    raise ValueError("lows with GTIDs and without")


def _joined(splits: Iterable[Split]) -> tuple[Split, ...]:
    """The same splits, but neighbours with the same watermarks or stop become one split.

    So there are few splits, however large the table is.
    """
    joined: list[Split] = []
    for split in splits:
        last = joined[-1] if joined else None
        has_same_marks = last is not None and replace(last, range=split.range) == split
        if last is not None and has_same_marks and last.range.touches(split.range):
            joined[-1] = replace(split, range=KeyRange(last.range.lower, split.range.upper))
        else:
            joined.append(split)
    return tuple(joined)
