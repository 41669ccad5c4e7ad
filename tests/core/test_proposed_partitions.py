"""Which partitions are proposed for a table, from what is known of its dates."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.proposed_partitions import PARTS, Dates, dates_of, propose, starts

MILLION = 1_000_000
EVEN = (10,) * PARTS


def dates(least: str, greatest: str, parts: tuple[int, ...] = EVEN, undated: int = 0, column: str = "at") -> Dates:
    """The spread of a column."""
    return Dates(column, date.fromisoformat(least), date.fromisoformat(greatest), parts, undated, "by its index")


@pytest.mark.parametrize(
    ("rows", "least", "greatest", "proposed"),
    [
        (60 * MILLION, "2024-01-01", "2025-12-31", "day(at)"),
        (10 * MILLION, "2024-01-01", "2025-12-31", "month(at)"),
        (1_200_000, "2024-01-31", "2025-12-01", "month(at)"),  # 24 months with 50,000 rows each
        (1_199_999, "2024-01-31", "2025-12-01", None),  # two years are too few partitions
        (1_199_999, "2021-12-31", "2024-01-01", "year(at)"),
        (200_000, "2024-01-30", "2024-02-02", "day(at)"),
        (199_999, "2024-01-30", "2024-02-02", None),
        (MILLION, "2024-01-01", "2024-01-03", None),
        (MILLION, "0001-01-01", "9999-12-31", None),
    ],
)
def test_the_finest_unit_is_proposed_that_leaves_enough_rows(
    rows: int, least: str, greatest: str, proposed: str | None
) -> None:
    """At least 50,000 rows on average, in at least four partitions."""
    found = propose(rows, [dates(least, greatest)])
    assert (str(found.field) if found else None) == proposed


def test_the_reason_has_the_figures() -> None:
    """Rows, dates, how they are known, partitions, and the rows of one."""
    found = propose(2_400_007, [dates("2024-01-15", "2025-12-31", column="made (at)")])
    assert found is not None
    assert str(found.field) == "month(`made (at)`)"
    assert found.reason == (
        "about 2,400,007 rows from 2024-01-15 to 2025-12-31, by its index: 24 months with about 100,000 rows each"
    )


@pytest.mark.parametrize(
    ("parts", "undated"),
    [
        ((200, *(0,) * (PARTS - 2), 1), 0),  # all rows but one have the date of a default
        ((10,) * (PARTS // 2) + (0,) * (PARTS // 2), 0),  # half of the time is empty
        ((191, *(10,) * (PARTS - 1)), 0),
        (EVEN, 201),  # most rows have no date
    ],
)
def test_a_column_whose_rows_are_not_spread_is_passed_over(parts: tuple[int, ...], undated: int) -> None:
    """Its partitions would be one large one and some small ones. The next column counts."""
    poor = dates("2024-01-01", "2025-12-31", parts, undated)
    assert propose(10 * MILLION, [poor]) is None
    found = propose(10 * MILLION, [poor, dates("2024-01-01", "2025-12-31", column="other")])
    assert found is not None
    assert found.field.column == "other"


def test_half_of_the_rows_in_a_part_is_not_too_many() -> None:
    """The limits themselves are sound."""
    for parts, undated in (((190, *(10,) * (PARTS - 1)), 0), (EVEN, 200), ((10,) * 11 + (0,) * 9, 0)):
        assert propose(10 * MILLION, [dates("2024-01-01", "2025-12-31", parts, undated)]) is not None


@given(st.dates(), st.dates())
def test_parts_are_equal_and_cover_the_time(one: date, other: date) -> None:
    """Up to a day, from the first day to the last one, whatever dates there are."""
    least, greatest = sorted((one, other))
    begins = starts(least, greatest)
    days = (greatest - least).days + 1
    assert begins[0] == least
    assert begins[-1] <= greatest
    assert len(begins) == min(PARTS, days)
    lengths = [(high - low).days for low, high in pairwise(begins)] + [(greatest - begins[-1]).days + 1]
    assert sum(lengths) == days
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.none() | st.dates(), max_size=50))
def test_values_that_were_read_are_counted(values: list[date | None]) -> None:
    """Each once: in its part of the time, or among those without a date."""
    found = dates_of("at", values, "in 50 rows that were read")
    dated = [value for value in values if value]
    if not dated:
        assert found is None
        return
    assert found is not None
    assert (found.least, found.greatest, found.undated) == (min(dated), max(dated), len(values) - len(dated))
    begins = starts(found.least, found.greatest)
    ends = [*(begin - timedelta(1) for begin in begins[1:]), found.greatest]
    counted = [sum(low <= value <= high for value in dated) for low, high in zip(begins, ends, strict=True)]
    assert list(found.parts) == counted
