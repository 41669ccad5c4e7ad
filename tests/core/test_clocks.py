"""Clocks that disagree are named, and by how much."""

import re
from datetime import timedelta

import pytest

from lakeingest.core.figures.clocks import disagreement, lead, spoken
from lakeingest.core.tables.schema import TableId

A, B = TableId("shop", "a"), TableId("shop", "b")
DAY = 86_400.0


@pytest.mark.parametrize(
    ("now", "source", "changed", "said"),
    [
        (DAY, DAY + 59, {A: DAY + 59}, None),
        (DAY, DAY - 59, {}, None),
        (DAY, DAY, {A: 0.0, B: DAY + 180}, "3.0 minutes behind the last commit of shop.b, so that commits get the"),
        (DAY, 3 * DAY, {A: 0.0}, "clock is 2.0 days behind the clock of the source; set"),
        (DAY, DAY - 7200, {A: 0.0}, "clock is 2.0 hours ahead of the clock of the source; set"),
        (
            DAY,
            DAY + 90,
            {A: DAY + 61},
            "1.0 minutes behind the last commit of shop.a, .*, and 1.5 minutes behind the clock",
        ),
    ],
)
def test_a_difference_of_more_than_a_minute_is_named(
    now: float, source: float, changed: dict[TableId, float], said: str | None
) -> None:
    """To the source, and to the copy that was changed last."""
    found = disagreement(now, source, changed)
    assert (found is None) == (said is None)
    assert said is None or re.search(said, str(found))


def test_only_a_clock_that_is_ahead_lets_things_be_kept_for_longer() -> None:
    """By as much."""
    assert lead(DAY + 90, DAY) == timedelta(seconds=90)
    assert lead(DAY + 59, DAY) == timedelta(0)
    assert lead(DAY, 2 * DAY) == timedelta(0)


def test_a_time_is_spoken_of_in_the_largest_unit() -> None:
    """With one digit."""
    assert [spoken(seconds) for seconds in (0, 59, 60, 5400, 2 * DAY)] == [
        "0.0 seconds",
        "59.0 seconds",
        "1.0 minutes",
        "1.5 hours",
        "2.0 days",
    ]
