"""The limits of reads: `throttle` of pipeline.yml."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeingest.config import Config, parse_config
from lakeingest.errors import ConfigError

SOURCE = {"host": "db.example.com", "user": "lake"}


def parsed(throttle: Any, **source: Any) -> Config:
    """A pipeline with these limits."""
    doc = {"name": "shop", "source": SOURCE | source, "tables": {"include": ["shop.*"]}, "throttle": throttle}
    return parse_config(doc, Path("/shop"), {})


def moment(text: str, zone: str = "UTC") -> datetime:
    """A moment by the clocks of a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def test_limits_are_read() -> None:
    """Each alone or together, and the same again from its own text."""
    limits = {"threads_running": 50, "history_list_length": 1_000_000, "replica_lag": "30s", "mb_per_second": 2.5}
    throttle = parsed(limits | {"window": "22:00-06:00"}, replica={"host": "replica.example.com"}).throttle
    assert throttle.replica_lag == timedelta(seconds=30)
    assert (throttle.threads_running, throttle.history_list_length, throttle.mb_per_second) == (50, 1_000_000, 2.5)
    assert str(throttle.window) == "22:00-06:00 UTC"
    assert type(throttle).model_validate(throttle.model_dump()) == throttle


@pytest.mark.parametrize(
    ("window", "at", "is_in"),
    [
        ("22:00-06:00", moment("2026-03-01 21:59:59"), False),
        ("22:00-06:00", moment("2026-03-01 22:00"), True),
        ("22:00-06:00", moment("2026-03-02 00:00"), True),
        ("22:00-06:00", moment("2026-03-02 05:59:59"), True),
        ("22:00-06:00", moment("2026-03-02 06:00"), False),
        ("01:30-04:00", moment("2026-03-02 01:29"), False),
        ("01:30-04:00", moment("2026-03-02 03:00"), True),
        ("01:30-04:00", moment("2026-03-02 04:00"), False),
        # the hour of the clocks there, also after they were put forward
        ("22:00-06:00 Europe/Rome", moment("2026-01-10 21:00"), True),
        ("22:00-06:00 Europe/Rome", moment("2026-01-10 20:59"), False),
        ("22:00-06:00 Europe/Rome", moment("2026-07-10 20:00"), True),
        ("22:00-06:00 Europe/Rome", moment("2026-07-10 04:00"), False),
        ("22:00-06:00 Europe/Rome", moment("2026-07-10 23:00", "America/New_York"), True),
    ],
)
def test_a_window_contains_times_of_day(window: str, at: datetime, is_in: bool) -> None:  # noqa: FBT001 - of a table
    """From its start up to its end, by the clocks of its zone."""
    throttle = parsed({"window": window}).throttle
    assert throttle.window is not None
    assert throttle.window.contain(at) is is_in


@pytest.mark.parametrize(
    ("throttle", "reason"),
    [
        ({"threads_running": 0}, "throttle.threads_running"),
        ({"mb_per_second": 0}, "throttle.mb_per_second"),
        ({"history_list_length": -1}, "throttle.history_list_length"),
        ({"replica_lag": "30s"}, "throttle.replica_lag is the lag of source.replica, which is not set"),
        ({"replica_lag": 30}, "throttle.replica_lag: .*a duration is a number and its unit"),
        ({"window": "22-06"}, "throttle.window: .*two times of day"),
        ({"window": "24:00-06:00"}, "throttle.window"),
        ({"window": "06:00-06:00"}, "throttle.window: .*two different times"),
        ({"window": "22:00-06:00 Mars/Olympus"}, "does not know the time zone Mars/Olympus"),
        ({"window": "22:00-06:00 ../../etc/passwd"}, "throttle.window"),
        ({"windows": "22:00-06:00"}, "throttle.windows"),
    ],
)
def test_limits_that_mean_nothing_are_refused(throttle: Any, reason: str) -> None:
    """By the name of the key."""
    with pytest.raises(ConfigError, match=reason):
        parsed(throttle)
