"""Rows that are read again: patches, which wait for the next merge, and how far a re-snapshot has come."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from lakeingest.core.binlog.position import Low, Place, low_from_json, low_to_json
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.splits import Split, key_from_json, range_from_json
from lakeingest.errors import DAMAGED, StateUnreadable


@dataclass(frozen=True, slots=True)
class Patch:
    """Rows of one read view, and keys that have no row in the view. Files under `name` hold both until the next merge.

    The patch has a `+I` for each row of the view, and a `-D` for each requested key that has no row in the view.
    These keys are requested:

    - If keys are listed: the listed keys.
    - For a range: its keys in the view, and its keys in the target.
    - For a predicate: the keys of the rows for which it holds, in the view and in the target. The target's keys are
      read first, and the view is asked for `(predicate) OR key IN (the target's keys)`. Otherwise a row that was
      changed and no longer matches would look deleted.

    Every requested key is in `within`. If only the server knows the order of keys, `within` is the range of all keys.
    For the keys in `within`, all changes after `low` are applied again, even if the mark of the split is later. That
    does not change the last row of a key.
    """

    name: str
    within: KeyRange
    low: Low
    high: Place

    def __post_init__(self) -> None:
        if not self.within.ordered:
            raise ValueError(f"only the server knows which keys are in {self.within}: `within` must have every key")
        if isinstance(self.low, Place) and self.high < self.low:
            raise ValueError(f"a window ends before it begins: {self}")

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        bounds = {"lower": self.within.lower, "upper": self.within.upper}
        return {"name": self.name, **bounds, "low": low_to_json(self.low), "high": str(self.high)}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable if a part is missing or wrong."""
        try:
            within, low = range_from_json(doc), low_from_json(doc["low"])
            return cls(str(doc["name"]), within, low, Place.parse(doc["high"]))
        except DAMAGED as error:
            raise StateUnreadable(f"not a patch: {doc!r}") from error


@dataclass(frozen=True, slots=True)
class Reread:
    """How far a re-snapshot is on staging. `signals`: the signals that the re-snapshot answers.

    `up_to`: the key before which all requested rows are read again; None if no row is read yet, or if all requested
    rows are read at once.
    """

    signals: tuple[int, ...]
    up_to: Key | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {"signals": list(self.signals), "up_to": self.up_to}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for anything else."""
        up_to = None if doc["up_to"] is None else key_from_json(doc["up_to"])
        return cls(tuple(int(number) for number in doc["signals"]), up_to)


def united(answered: Collection[int], more: Collection[int], done: Collection[int]) -> tuple[int, ...]:
    """The signals in `answered` or `more`, ascending, without those in `done`, whose documents say DONE already."""
    return tuple(sorted({*answered, *more} - set(done)))


Read = TypeVar("Read", Split, Patch)


def with_low_from(read: Read, place: Place) -> Read:
    """The split or patch `read`, its low raised to `place` if the low is an earlier place. A GTID set stays.

    The caller knows that the read view contains all changes up to `place`.
    """
    return replace(read, low=max(read.low, place)) if isinstance(read.low, Place) else read
