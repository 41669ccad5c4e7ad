"""The pace of rounds: how long the next publish waits."""

from datetime import timedelta

import pytest

from lakeingest.core.figures.pace import LEAST, MOST_SECONDS
from lakeingest.pipeline.rounds import pace
from lakeingest.pipeline.rounds.pace import Pace


class Clock:
    """Clocks that a test sets."""

    now, cpu = 1_000.0, 50.0

    def monotonic(self) -> float:
        """The time of the test."""
        return self.now

    def process_time(self) -> float:
        """The CPU seconds of the test."""
        return self.cpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the pace."""
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "cpu", "pause"),
    [(0.1, 0.1, 0.1), (2.0, 1.5, 1.0), (2.0, 0.1, 2.0 * LEAST), (60.0, 60.0, MOST_SECONDS)],
)
def test_auto_pauses_as_the_last_round_asks(clock: Clock, seconds: float, cpu: float, pause: float) -> None:
    """By its seconds and its CPU seconds; then the next one is due."""
    rounds = Pace("auto")
    assert rounds.seconds_left == 0
    rounds.begin()
    clock.now += seconds
    clock.cpu += cpu
    rounds.worked()
    assert rounds.seconds_left == pytest.approx(pause)
    clock.now += pause + 0.01
    assert rounds.seconds_left == 0


def test_with_a_duration_rounds_begin_so_far_apart(clock: Clock) -> None:
    """A round that takes longer is followed by the next at once."""
    rounds = Pace(timedelta(seconds=10))
    for seconds, left in ((2.0, 8.0), (11.0, 0.0)):
        rounds.begin()
        clock.now += seconds
        rounds.worked()
        assert rounds.seconds_left == pytest.approx(left)


def test_a_new_copy_need_not_wait(clock: Clock) -> None:
    """Readers see it with the next round, whatever the pace is."""
    rounds = Pace(timedelta(hours=1))
    rounds.begin()
    rounds.worked()
    assert rounds.seconds_left > 3_000
    rounds.hurry()
    assert rounds.seconds_left == 0
