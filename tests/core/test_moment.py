"""How much time has certainly passed between two moments, whatever is done to clocks."""

import pytest

from lakeingest.core.figures.moment import Moment

DAY = 86_400.0


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        (Moment(1e9, "a", 50), Moment(1e9 + 10, "a", 60), 10),
        (Moment(1e9, "a", 50), Moment(1e9 + DAY, "a", 60), 10),
        (Moment(1e9 + DAY, "a", 50), Moment(1e9, "a", 60), 10),
        (Moment(1e9, "a", 50), Moment(1e9 + DAY, "b", 3 * DAY), DAY),
        (Moment(1e9, "a", 50), Moment(1e9 + DAY, "b", 60), 60),
        (Moment(1e9 + DAY, "a", 50), Moment(1e9, "b", 60), 0),
        (Moment(1e9, "a", 50), Moment(1e9 + 5, "a", 40), 0),
    ],
    ids=["the same start", "set ahead", "set back", "another start", "ahead after it", "behind after it", "impossible"],
)
def test_only_time_that_has_certainly_passed_counts(earlier: Moment, later: Moment, seconds: float) -> None:
    """A clock that is set changes nothing while the machine runs; after its restart at most the time since then."""
    assert later.seconds_since(earlier) == seconds


def test_a_moment_of_a_clock_that_was_ahead_is_recognised() -> None:
    """While the machine runs the other clock tells."""
    now = Moment(1e9, "a", 50)
    moments = [Moment(1e9 + 1, "b", 60), Moment(1e9, "b", 60), Moment(1e9 + 1, "a", 40)]
    assert [one.is_ahead_of(now) for one in moments] == [True, False, False]


def test_a_moment_is_stored_as_a_document() -> None:
    """And read back."""
    moment = Moment(1.5, "a", 2.5)
    assert Moment.from_json(moment.to_json()) == moment
