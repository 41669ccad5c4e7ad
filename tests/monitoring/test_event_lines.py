"""The lines of events: how serious each is, and a heartbeat where nothing happens."""

import time
from dataclasses import replace

import pytest

from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.monitoring.event_lines import HEARTBEAT_SECONDS, Level, level, line_maker
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Published,
    Quarantined,
    ShownApart,
    Spooled,
    TableStopped,
    TookBack,
    Undelivered,
)

ORDERS = TableId("shop", "orders")


def measured(*measures: Measure) -> Measured:
    """A measurement."""
    return Measured(measures, Load(), None)


def measure(**values: object) -> Measure:
    """A healthy table that is as of four seconds ago."""
    known = Measure(ORDERS, 7, "f:4", time.time() - 4, 12, 1.5, "", paused=False, max_staleness=None)
    return replace(known, **values)  # type: ignore[arg-type] # the fields of a Measure


def test_a_run_that_follows_says_once_a_minute_that_it_is_at_work() -> None:
    """Not before it follows, and not within a minute after another line."""
    now = 0.0
    line_of = line_maker(lambda: now)
    quiet = measured(measure(), measure(lag_bytes=900), measure(lag_bytes=None, as_of=None, error="GateFailed"))
    now = 10 * HEARTBEAT_SECONDS
    assert line_of(quiet) is None  # it does not follow yet
    assert line_of(Following(1.0)) is not None
    now += HEARTBEAT_SECONDS - 1
    assert line_of(quiet) is None
    now += 1
    assert line_of(quiet) == (
        "following, nothing to say for 1.0 minutes: 3 tables, at most 900 bytes behind, readers see them as of 4.0"
        " seconds ago or later, 1 with an unknown lag, 1 stopped"
    )
    now += HEARTBEAT_SECONDS - 1
    assert line_of(quiet) is None
    assert line_of(Published(ORDERS, 1, "f:5", 0.1)) is not None
    now += HEARTBEAT_SECONDS - 1
    assert line_of(quiet) is None
    now += 1
    assert line_of(measured(measure(paused=True))) is not None


def test_nothing_is_said_of_what_is_not_known() -> None:
    """No number stands for it."""
    now = 0.0
    line_of = line_maker(lambda: now)
    line_of(Following(1.0))
    now = 120.0
    said = line_of(measured(measure(lag_bytes=None, as_of=None)))
    assert said == "following, nothing to say for 2.0 minutes: 1 tables, 1 with an unknown lag"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Spooled("f:4", 1, 1, 0.1), "info"),
        (GateRun(ORDERS, "before publish", 3, 0, 0, 0.1), "info"),
        (GateRun(ORDERS, "before publish", 3, 0, 1, 0.1), "warning"),
        (GateRun(ORDERS, "before publish", 3, 1, 0, 0.1), "warning"),
        (Quarantined(ORDERS, 1, 1), "warning"),
        (TookBack(ORDERS, ("20261130010203004",)), "warning"),
        (Undelivered("metrics.push", "away"), "warning"),
        (ShownApart(3, "the request is too long"), "warning"),
        (TableStopped(ORDERS, GateFailed("x"), again=True), "warning"),
        (TableStopped(ORDERS, GateFailed("x")), "error"),
    ],
)
def test_each_line_has_a_level(event: Event, expected: Level) -> None:
    """An error stops a table; a warning is for a person to look at."""
    assert level(event) == expected


def test_a_run_that_follows_says_that_tables_are_not_published_at_once() -> None:
    """Readers were promised that they are."""
    line_of = line_maker(lambda: 0.0)
    line_of(Following(1.0))
    assert line_of(ShownApart(3, "the request is\ntoo long")) is not None
