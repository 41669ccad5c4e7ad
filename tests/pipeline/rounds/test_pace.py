"""The pace of rounds: how long the next publish waits."""

from datetime import timedelta

import pytest

from lakeingest.pipeline.rounds import pace
from lakeingest.pipeline.rounds.pace import MOST_SECONDS, Pace


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def monotonic(self) -> float:
        """The time of the test."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the pace."""
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0.1, 0.1), (2.0, 2.0), (MOST_SECONDS, MOST_SECONDS), (60.0, MOST_SECONDS)]
)
def test_auto_pauses_as_long_as_the_round_took(clock: Clock, seconds: float, pause: float) -> None:
    """At most some seconds: a run that does not keep up with its source must not wait."""
    rounds = Pace("auto")
    assert rounds.seconds_left == 0
    began = clock.now
    clock.now += seconds
    rounds.worked(began)
    assert rounds.seconds_left == pytest.approx(pause)
    clock.now += pause + 0.01
    assert rounds.seconds_left == 0


def test_with_a_duration_rounds_begin_so_far_apart(clock: Clock) -> None:
    """A round that takes longer is followed by the next at once."""
    rounds = Pace(timedelta(seconds=10))
    for seconds, left in ((2.0, 8.0), (11.0, 0.0)):
        began = clock.now
        clock.now += seconds
        rounds.worked(began)
        assert rounds.seconds_left == pytest.approx(left)


def test_a_new_copy_need_not_wait(clock: Clock) -> None:
    """Readers see it with the next round, whatever the pace is."""
    rounds = Pace(timedelta(hours=1))
    rounds.worked(clock.now)
    assert rounds.seconds_left > 3_000
    rounds.hurry()
    assert rounds.seconds_left == 0
