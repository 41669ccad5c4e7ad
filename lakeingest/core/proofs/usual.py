"""What is usual for a table: how many keys change, how often, and how many of the written values are NULL.

What a run has counted is compared with what earlier runs have counted: with the median, and with the usual distance
from it. A finding is a warning. It stops nothing, because an unusual day is not wrong.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any, Self

from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.shown import iso_time

MOST_COUNTS = 30  # that are kept of a table
LEAST_COUNTS = 8  # fewer say nothing about what is usual
LEAST_SECONDS = 600.0  # shorter spans are joined
LEAST_ROWS = 20  # of fewer written rows, the share of NULLs says nothing
DISTANCES = 6.0  # up to so many median distances from the median are usual
# However small the median distance is, these are usual, too:
TIMES = 3.0  # a number of changed keys from the median divided by this to the median multiplied by this
SHARE_OF_ROWS = 0.2  # a change of the number of rows by up to this share
SHARE_OF_NULLS = 0.05  # a difference of the shares of NULLs in a column up to this
# A pause is usual if it is not longer than one of these:
PAUSES = 2.0  # times the longest earlier pause
LEAST_PAUSE = 3_600.0  # seconds
COLUMNS_SHOWN = 3  # in the findings about NULLs


@dataclass(frozen=True, slots=True)
class Written:
    """What merges have written.

    `changed`: how many keys they inserted, updated or deleted. `rows`: how many rows they wrote. `nulls`: by column,
    how many of these rows have NULL there. A column for which this number is not known is missing.
    """

    changed: int = 0
    rows: int = 0
    nulls: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Self) -> Self:
        """What both have written. The NULLs of a column are known only if they are known for the rows of both."""
        if not self.rows or not other.rows:  # a side without rows has no NULLs
            nulls = self.nulls if self.rows else other.nulls
        else:
            nulls = {name: self.nulls[name] + count for name, count in other.nulls.items() if name in self.nulls}
        return replace(self, changed=self.changed + other.changed, rows=self.rows + other.rows, nulls=nulls)

    def share_of_nulls(self, column: str) -> float | None:
        """The share of a column's values that are NULL; None if it is not known, or for fewer than LEAST_ROWS rows."""
        return self.nulls[column] / self.rows if column in self.nulls and self.rows >= LEAST_ROWS else None


@dataclass(frozen=True, slots=True)
class Counts:
    """What was written into a copy from the time `since` to the time `until` (seconds since 1970).

    `rows`: the number of rows that the copy has in the end.
    """

    since: float
    until: float
    rows: int
    written: Written

    @property
    def seconds(self) -> float:
        """The length of the span."""
        return max(0.0, self.until - self.since)

    @property
    def an_hour(self) -> float:
        """How many keys have changed in an hour, on average."""
        return self.written.changed * 3_600.0 / max(1.0, self.seconds)

    def joined(self, later: Self) -> Self:
        """Both spans, this one and `later`, as one."""
        return replace(later, since=self.since, written=self.written + later.written)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        written = {"changed": self.written.changed, "rows": self.written.rows, "nulls": dict(self.written.nulls)}
        return {"since": self.since, "until": self.until, "rows": self.rows, "written": written}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for another document."""
        written = doc["written"]
        nulls = {str(name): int(count) for name, count in written["nulls"].items()}
        known = Written(int(written["changed"]), int(written["rows"]), nulls)
        return cls(float(doc["since"]), float(doc["until"]), int(doc["rows"]), known)


@dataclass(frozen=True, slots=True)
class Usual:
    """The last counts of a table, the oldest first. Each span begins where the one before ended."""

    counts: tuple[Counts, ...] = ()

    @property
    def last(self) -> Counts | None:
        """The newest counts; None if there are none."""
        return self.counts[-1] if self.counts else None

    def after(self, new: Counts) -> Self:
        """The counts with one more. A span that is too short to say anything is joined with the next one."""
        last = self.last
        if last is not None and last.seconds < LEAST_SECONDS:
            return replace(self, counts=(*self.counts[:-1], last.joined(new)))
        return replace(self, counts=(*self.counts, new)[-MOST_COUNTS:])

    def findings(self) -> list[str]:
        """What is unusual about the last counts, in words with the numbers.

        Empty while too few counts are known, and while the span of the last counts is too short.
        """
        # the last counts are compared with at least LEAST_COUNTS earlier ones
        if len(self.counts) <= LEAST_COUNTS or self.counts[-1].seconds < LEAST_SECONDS:
            return []
        *earlier, last = self.counts
        return [*_of_changes(earlier, last), *_of_rows(self.counts), *_of_nulls(earlier, last)]

    def pause(self, now: float) -> str | None:
        """The finding about the time from the last counts until `now`, in which no key has changed.

        None if a pause of this length is usual, or if too few counts are known.
        """
        if len(self.counts) < LEAST_COUNTS:
            return None
        since = self.counts[-1].until
        # counts are added only when something has changed, so no pause was longer than the span of the next counts
        longest = max(counts.seconds for counts in self.counts)
        if now - since <= max(LEAST_PAUSE, PAUSES * longest):
            return None
        return (
            f"no key has changed for {spoken(now - since)}, since {iso_time(since)}; the longest of the last"
            f" {len(self.counts)} pauses was {spoken(longest)}"
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {"counts": [counts.to_json() for counts in self.counts]}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for another document."""
        return cls(tuple(map(Counts.from_json, doc["counts"])))


def _of_changes(earlier: Sequence[Counts], last: Counts) -> Iterator[str]:
    """A finding if unusually many or few keys have changed. Numbers are compared by their ratio, so by logarithms."""
    usual = [counts.an_hour for counts in earlier]
    if _is_far(math.log1p(last.an_hour), [math.log1p(number) for number in usual], math.log(TIMES)):
        yield (
            f"{last.written.changed:,} keys have changed within {spoken(last.seconds)}, {last.an_hour:,.0f} an hour;"
            f" usual are {median(usual):,.0f} an hour, {min(usual):,.0f} to {max(usual):,.0f} in the last {len(usual)}"
            " spans"
        )


def _of_rows(counts: Sequence[Counts]) -> Iterator[str]:
    """A finding if the number of rows has changed by an unusual share."""
    shares = [(new.rows - old.rows) / max(1, old.rows) for old, new in pairwise(counts)]
    *usual, last = shares
    if _is_far(last, usual, SHARE_OF_ROWS):
        yield (
            f"it has {counts[-1].rows:,} rows, and had {counts[-2].rows:,}, {last:+.1%}; usual is {median(usual):+.1%},"
            f" {min(usual):+.1%} to {max(usual):+.1%} in the last {len(usual)} spans"
        )


def _of_nulls(earlier: Sequence[Counts], last: Counts) -> Iterator[str]:
    """Findings about columns with an unusual share of NULLs in written rows; of many columns, the first are named."""
    found = list[str]()
    for column in last.written.nulls:
        share = last.written.share_of_nulls(column)
        usual = [known for counts in earlier if (known := counts.written.share_of_nulls(column)) is not None]
        if share is not None and len(usual) >= LEAST_COUNTS and _is_far(share, usual, SHARE_OF_NULLS):
            found.append(
                f"column {column}: {share:.1%} of {last.written.rows:,} written values are NULL; usual are"
                f" {median(usual):.1%}, {min(usual):.1%} to {max(usual):.1%} in the last {len(usual)} spans"
            )
    yield from found[:COLUMNS_SHOWN]
    if len(found) > COLUMNS_SHOWN:
        yield f"the share of NULLs of {len(found) - COLUMNS_SHOWN} more columns is unusual"


def _is_far(number: float, usual: Sequence[float], least: float) -> bool:
    """Whether a number is farther from the median of `usual` than `least`, and than DISTANCES median distances."""
    middle = median(usual)
    distance = median(abs(each - middle) for each in usual)
    return abs(number - middle) > max(least, DISTANCES * distance)
