"""Keys and ranges of keys. Only this module knows the order of keys, which end of a range is closed, and a range's SQL.

MySQL, Python and Spark agree on the order of integers. Only the server knows the order of other values, such as texts
with a collation. In a key, such a value is a literal of MySQL, and literals are never compared here.
"""

import re
from dataclasses import dataclass
from typing import Self

Key = tuple[int | str, ...]  # integers, and literals of MySQL
# In this order: numbers; times, UUIDs and addresses; bytes, with a charset if they are a text; and `n/m`, which is
# number n of an ENUM or SET whose last member has the number m
_LITERAL = re.compile(r"-?\d+(\.\d+)?|'[-\da-f:. ]+'|(_\w+ )?x'[\dA-F]*'|(?P<number>\d+)/(?P<last>\d+)")


def quote(identifier: str) -> str:
    """An identifier as MySQL and Spark both take it."""
    return "`" + identifier.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `lower` (included) up to `upper` (not included); None means no bound on that side.

    A range whose bounds are integers is `ordered`. For other ranges only the server can tell which keys are in them:
    `in` raises ValueError. So does the constructor, for a range that is known to be empty or bounds of two lengths.
    """

    lower: Key | None = None
    upper: Key | None = None

    def __post_init__(self) -> None:
        if () in {self.lower, self.upper}:
            raise ValueError("a bound has at least one column")
        for part in (*(self.lower or ()), *(self.upper or ())):
            if isinstance(part, str) and not _LITERAL.fullmatch(part):
                raise ValueError(f"not a literal: {part!r}")
        if self.lower is None or self.upper is None:
            return
        if len(self.lower) != len(self.upper):
            raise ValueError(f"bounds of different keys: {self.lower}, {self.upper}")
        if self.lower == self.upper or (self.ordered and self.lower > self.upper):
            raise ValueError(f"an empty range: [{self.lower}, {self.upper})")

    @property
    def ordered(self) -> bool:
        """Whether the order of the bounds is known without the server: all their parts are integers."""
        return not any(isinstance(part, str) for bound in (self.lower, self.upper) for part in bound or ())

    def __contains__(self, key: Key) -> bool:
        if not self.ordered:
            raise ValueError(f"only the server knows whether a key is in {self}")
        return (self.lower is None or key >= self.lower) and (self.upper is None or key < self.upper)

    def touches(self, following: Self) -> bool:
        """Whether the `following` range begins exactly where this range ends."""
        return self.upper is not None and self.upper == following.lower

    def covers(self, other: Self) -> bool:
        """True if it is known, without asking the server, that every key of the range `other` is in this range."""
        if self in {other, KeyRange()}:
            return True
        if not (self.ordered and other.ordered):
            return False
        begins_within = self.lower is None or (other.lower is not None and other.lower >= self.lower)
        ends_within = self.upper is None or (other.upper is not None and other.upper <= self.upper)
        return begins_within and ends_within

    def parted(self, by: Self) -> tuple[Self | None, Self | None, Self | None]:
        """Three parts of this range: its keys before `by`, in `by`, and after `by`; None for a part without keys.

        Raises ValueError if `by` is not the range of all keys, and only the server knows the order of keys.
        """
        if by == KeyRange():  # no order is needed
            return None, self, None
        if not (self.ordered and by.ordered):
            raise ValueError(f"only the server knows which keys of {self} are in {by}")
        before, inside_lower = None, self.lower
        if by.lower is not None:
            before = self._between(self.lower, _lesser(self.upper, by.lower))
            inside_lower = _greater(self.lower, by.lower)
        after, inside_upper = None, self.upper
        if by.upper is not None:
            after = self._between(_greater(self.lower, by.upper), self.upper)
            inside_upper = _lesser(self.upper, by.upper)
        return before, self._between(inside_lower, inside_upper), after

    def _between(self, lower: Key | None, upper: Key | None) -> Self | None:
        """The range with these bounds; None if it has no keys."""
        is_empty = lower is not None and upper is not None and lower >= upper
        return None if is_empty else type(self)(lower, upper)

    def predicate(self, columns: tuple[str, ...]) -> str:
        """The SQL condition on `columns` that holds for exactly the keys of this range.

        It is for MySQL. If the range is ordered, it is for Spark, too. Comparisons of several columns are written out
        column by column, because MySQL reads the whole table for `(a, b) > (x, y)`.
        """
        terms = []
        if self.lower is not None:
            terms.append(_at_or_after(columns, self.lower))
        if self.upper is not None:
            terms.append(_before(columns, self.upper))
        return " AND ".join(terms) or "TRUE"


EVERY_KEY = KeyRange()


def _lesser(upper: Key | None, other: Key) -> Key:
    """The lesser of two upper bounds. If `upper` is None, which is no bound, the result is `other`."""
    return other if upper is None else min(upper, other)


def _greater(lower: Key | None, other: Key) -> Key:
    """The greater of two lower bounds. If `lower` is None, which is no bound, the result is `other`."""
    return other if lower is None else max(lower, other)


def _at_or_after(columns: tuple[str, ...], key: Key) -> str:
    """The SQL condition for the keys from this key on."""
    column, value = quote(columns[0]), key[0]
    if len(key) == 1:
        return _compared(column, ">=", value)
    # the first term, `>=`, bounds the part of the index that MySQL reads. It excludes lesser values, so the result
    # would be the same without `=` in the OR. But only with `=`, MySQL reads no other keys than the wanted ones,
    # because a condition on a later column then stands beside conditions on all columns before it
    on_other_columns = _at_or_after(columns[1:], key[1:])
    exact = f"({_compared(column, '>', value)} OR ({_compared(column, '=', value)} AND {on_other_columns}))"
    return f"{_compared(column, '>=', value)} AND {exact}"


def _before(columns: tuple[str, ...], key: Key) -> str:
    """The SQL condition for the keys before this key."""
    column, value = quote(columns[0]), key[0]
    if len(key) == 1:
        return _compared(column, "<", value)
    on_other_columns = _before(columns[1:], key[1:])  # the terms are those of `_at_or_after`, turned round
    exact = f"({_compared(column, '<', value)} OR ({_compared(column, '=', value)} AND {on_other_columns}))"
    return f"{_compared(column, '<=', value)} AND {exact}"


def _compared(column: str, operator: str, value: int | str) -> str:
    """The SQL condition that compares a column with a part of a key."""
    literal = _LITERAL.fullmatch(str(value))
    if literal is None or literal["number"] is None:
        return f"{column} {operator} {value}"
    # `n/m`, a member of an ENUM or SET: MySQL uses the index for a list of numbers, but not for an operator such as `<`
    number, last = int(literal["number"]), int(literal["last"])
    numbers = {
        "<": range(number),
        "<=": range(number + 1),
        "=": range(number, number + 1),
        ">=": range(number, last + 1),
        ">": range(number + 1, last + 1),
    }[operator]
    return f"{column} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"
