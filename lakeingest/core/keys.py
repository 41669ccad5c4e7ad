"""Keys and ranges of keys: the one place that knows key order, which end of a range is closed, and its SQL.

Keys here are tuples of integers, whose order MySQL, Python and Spark agree on.
"""

from dataclasses import dataclass
from typing import Self

Key = tuple[int, ...]


def quote(identifier: str) -> str:
    """An identifier as MySQL and Spark both take it."""
    return "`" + identifier.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `lower` (included) up to `upper` (not included); None is without bound on that side."""

    lower: Key | None = None
    upper: Key | None = None

    def __post_init__(self) -> None:
        if () in {self.lower, self.upper}:
            raise ValueError("a bound has at least one column")
        if self.lower is None or self.upper is None:
            return
        if len(self.lower) != len(self.upper):
            raise ValueError(f"bounds of different keys: {self.lower}, {self.upper}")
        if self.lower >= self.upper:
            raise ValueError(f"an empty range: [{self.lower}, {self.upper})")

    def __contains__(self, key: Key) -> bool:
        return (self.lower is None or key >= self.lower) and (self.upper is None or key < self.upper)

    def touches(self, after: Self) -> bool:
        """Whether the other range begins exactly where this one ends."""
        return self.upper is not None and self.upper == after.lower

    def predicate(self, columns: tuple[str, ...]) -> str:
        """The condition on `columns` that holds for exactly the keys of this range, in MySQL and in Spark.

        Comparisons of several columns are expanded: MySQL reads the whole table for `(a, b) > (x, y)`.
        """
        terms = []
        if self.lower is not None:
            terms.append(_from(columns, self.lower))
        if self.upper is not None:
            terms.append(_before(columns, self.upper))
        return " AND ".join(terms) or "TRUE"


def _from(columns: tuple[str, ...], key: Key) -> str:
    column, value = quote(columns[0]), key[0]
    if len(key) == 1:
        return f"{column} >= {value}"
    # MySQL follows its index to exactly these keys only where each branch names all columns before its own
    rest = _from(columns[1:], key[1:])
    return f"{column} >= {value} AND ({column} > {value} OR ({column} = {value} AND {rest}))"


def _before(columns: tuple[str, ...], key: Key) -> str:
    column, value = quote(columns[0]), key[0]
    if len(key) == 1:
        return f"{column} < {value}"
    rest = _before(columns[1:], key[1:])
    return f"{column} <= {value} AND ({column} < {value} OR ({column} = {value} AND {rest}))"
