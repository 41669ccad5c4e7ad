"""Proposed partitions: whether a copy would profit from partitions, and by which dates, from a few facts of its table.

A proposal is text for a person. It is never in force until the person writes it into pipeline.yml.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from lakeingest.core.tables.partitioning import PartitionField, Transform

PARTS = 20  # of the time from the first to the last date: the rows of each are estimated
PARTITION_ROWS = 50_000  # with fewer rows in a partition, its files are small
FEWEST = 4  # with fewer partitions, readers skip too few files
LEAST_ROWS = FEWEST * PARTITION_ROWS  # no smaller table profits
_UNITS = {Transform.DAY: "days", Transform.MONTH: "months", Transform.YEAR: "years"}  # the finest first


@dataclass(frozen=True, slots=True)
class Dates:
    """How the values of a column are spread over time.

    `least` and `greatest`: the first and the last day. `parts`: the weight of the rows in each of several equal parts
    of the time between these days. `undated`: the weight of the rows without a date. `seen`: how all this is known.
    """

    column: str
    least: date
    greatest: date
    parts: tuple[int, ...]
    undated: int
    seen: str


@dataclass(frozen=True, slots=True)
class ProposedPartitions:
    """A partition that would be sound, and why, in one line."""

    field: PartitionField
    reason: str


def starts(least: date, greatest: date) -> list[date]:
    """The first days of PARTS equal parts of the time from one day to another; of fewer parts if the days are few."""
    first, days = least.toordinal(), (greatest - least).days + 1
    return [date.fromordinal(first + number) for number in sorted({days * part // PARTS for part in range(PARTS)})]


def dates_of(column: str, days: Iterable[date | None], seen: str) -> Dates | None:
    """The spread of these values, each with the weight 1; None if none of them is a date."""
    values = list(days)
    dated = [day for day in values if day is not None]
    if not dated:
        return None
    least, greatest = min(dated), max(dated)
    begins = starts(least, greatest)
    parts = [0] * len(begins)
    for day in dated:
        parts[bisect_right(begins, day) - 1] += 1
    return Dates(column, least, greatest, tuple(parts), len(values) - len(dated), seen)


def propose(rows: int, columns: Iterable[Dates]) -> ProposedPartitions | None:
    """The first sound partition of a table with about `rows` rows; None if no column has one.

    A column is divided into days; into months or years if a partition would have fewer than PARTITION_ROWS rows on
    average. The division is sound if it has FEWEST partitions or more, and the rows are spread over the column's dates.
    """
    for dates in columns:
        if not _is_spread(dates):
            continue
        for transform, name in _UNITS.items():
            number = _number(transform, dates.least, dates.greatest)
            if number >= FEWEST and rows >= number * PARTITION_ROWS:
                return ProposedPartitions(
                    PartitionField(transform, dates.column),
                    f"about {rows:,} rows from {dates.least} to {dates.greatest}, {dates.seen}:"
                    f" {number:,} {name} with about {rows // number:,} rows each",
                )
    return None


def _is_spread(dates: Dates) -> bool:
    """Whether rows are in most of the parts, at most half of them in one part, and at most half without a date."""
    half = (sum(dates.parts) + dates.undated) / 2
    filled = sum(weight > 0 for weight in dates.parts)
    return 2 * filled > len(dates.parts) and max(*dates.parts, dates.undated) <= half


def _number(transform: Transform, least: date, greatest: date) -> int:
    """The number of days, months or years from one day to another, both included."""
    if transform is Transform.DAY:
        return (greatest - least).days + 1
    years = greatest.year - least.year
    return years + 1 if transform is Transform.YEAR else 12 * years + greatest.month - least.month + 1
