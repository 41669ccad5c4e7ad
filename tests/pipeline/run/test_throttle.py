"""The limits at which a wave waits."""

from dataclasses import dataclass
from typing import cast

import pytest

from lakeingest.config import Config
from lakeingest.config import Throttle as Limits
from lakeingest.config.throttle import TimesOfDay
from lakeingest.core.figures.load import Load
from lakeingest.mysql.source import Source
from lakeingest.pipeline.run import throttle
from lakeingest.pipeline.run.throttle import Throttle


class Unasked:
    """A source that no test asks."""

    connection = None

    def load_meter(self, _: Load) -> "Unmeasured":
        """A meter without numbers."""
        return Unmeasured()


class Unmeasured:
    """A load of which nothing is limited."""

    def measure(self, _: None) -> Load:
        """No numbers."""
        return Load()


@dataclass(frozen=True)
class Limited:
    """What a throttle takes of a configuration."""

    throttle: Limits


def throttle_of(limits: Limits) -> Throttle:
    """A throttle whose source is not asked."""
    return Throttle(cast("Config", Limited(limits)), cast("Source", Unasked()))


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def monotonic(self) -> float:
        """The time of the test."""
        return self.now


def test_bytes_are_read_at_their_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves may begin so far apart that the mean is right."""
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    paced = throttle_of(Limits(mb_per_second=2))
    assert paced.may_read()
    began = clock.now
    clock.now += 1.0  # the wave took a second
    paced.took(10_000_000, began)
    assert paced.seconds_left == 4.0
    assert "throttle.mb_per_second" in str(paced.reason_to_wait())
    clock.now += 4.0
    assert paced.may_read()
    clock.now += 1.0
    paced.took(1_000_000, clock.now - 1.0)  # slower than the limit by itself
    assert paced.may_read()


def test_no_wave_is_begun_outside_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the source is not asked for its load."""
    closed = throttle_of(Limits.model_validate({"threads_running": 1, "window": "22:00-06:00"}))
    monkeypatch.setattr(TimesOfDay, "contain", lambda *_: False)
    assert closed.is_set
    assert closed.is_window_closed
    assert closed.reason_to_wait() == "reads begin within 22:00-06:00 UTC (throttle.window)"
    monkeypatch.setattr(TimesOfDay, "contain", lambda *_: True)
    assert not closed.is_window_closed
