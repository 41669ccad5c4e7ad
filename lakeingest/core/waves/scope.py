"""Scopes: which rows of a table a re-snapshot reads again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.splits import key_from_json, range_from_json


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows of a table to read again: all keys of a `range`, listed `keys`, or the rows for which `where` holds.

    The other two are None. The unbounded range is the whole table. Listed keys are sorted, and no key is listed twice.
    `gap`, only for a whole table: the rows of a stopped copy are kept and compared with the source, and only wrong rows
    are written.
    """

    range: KeyRange | None = None
    keys: tuple[Key, ...] | None = None
    where: str | None = None
    gap: bool = False

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.range, self.keys, self.where)) != 1:
            raise ValueError(f"a range, keys or a condition: {self}")
        if self.gap and not self.whole:
            raise ValueError(f"only a whole table goes on over a gap: {self}")
        if self.where is not None and not self.where.strip():
            raise ValueError("the condition is empty")
        if self.keys is not None:
            if not self.keys:
                raise ValueError("no keys are listed")
            object.__setattr__(self, "keys", tuple(sorted(set(self.keys), key=_sortable)))

    @property
    def whole(self) -> bool:
        """Whether the scope is all rows of the table."""
        return self.range == KeyRange()

    def covers(self, other: Self) -> bool:
        """True if it is known, without asking the server, that this scope has all rows of the scope `other`."""
        if self.whole or self == other:
            return True
        if self.keys is not None:
            return other.keys is not None and set(other.keys) <= set(self.keys)
        if self.range is None or not self.range.ordered:
            return False  # only the server knows the rows of a condition, and the keys of a range that is not ordered
        if other.range is not None:
            return self.range.covers(other.range)
        return other.keys is not None and all(_is_ordered(key) and key in self.range for key in other.keys)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        if self.range is not None:
            return {"lower": self.range.lower, "upper": self.range.upper} | ({"gap": True} if self.gap else {})
        return {"where": self.where} if self.keys is None else {"keys": [list(key) for key in self.keys]}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        if "keys" in doc:
            return cls(keys=tuple(key_from_json(key) for key in doc["keys"]))
        if "where" in doc:
            return cls(where=str(doc["where"]))
        return cls(range=range_from_json(doc), gap=doc.get("gap", False) is True)


WHOLE = Scope(range=KeyRange())
OVER_GAP = Scope(range=KeyRange(), gap=True)


def _is_ordered(key: Key) -> bool:
    """Whether the order of the key among other keys is known without the server: all its parts are integers."""
    return not any(isinstance(part, str) for part in key)


def _sortable(key: Key) -> tuple[tuple[str, int | str], ...]:
    """A form of the key that Python can sort, also beside keys with parts of another type."""
    return tuple((type(part).__name__, part) for part in key)
