"""The course of a run: bounded, however long the run, and right in what it counts."""

import math

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed
from lakeingest.monitoring.course import HAPPENINGS_MAX, SAMPLES_MAX, SPANS_MAX, Course, Samples
from lakeingest.pipeline.events import (
    Event,
    GateRun,
    Merged,
    Opened,
    Planned,
    Published,
    RowsReread,
    SourceLost,
    TableStopped,
    WaveCommitted,
)
from tests.monitoring.test_event_lines import measure, measured

ORDERS = TableId("shop", "orders")


@pytest.mark.parametrize("count", [0, 1, SAMPLES_MAX - 1, SAMPLES_MAX, SAMPLES_MAX + 1, 10 * SAMPLES_MAX + 7])
def test_samples_are_few_and_keep_their_peaks(count: int) -> None:
    """The first and the last are there, and so is the greatest value."""
    samples = Samples()
    for at in range(count):
        samples.add(float(at), 1e9 if at == count // 2 else float(at % 7))
    points = samples.points
    assert len(points) == len(samples) <= SAMPLES_MAX
    assert [at for at, _ in points] == sorted({at for at, _ in points})
    if count:
        assert points[-1][0] == count - 1
        assert max(value for _, value in points) == 1e9


def test_a_value_that_is_not_known_hides_no_value() -> None:
    """NaN stays only where neither neighbour is known."""
    samples = Samples()
    for at in range(SAMPLES_MAX):
        samples.add(float(at), math.nan if at % 2 or at < 4 else float(at))
    assert [math.isnan(value) for _, value in samples.points][:4] == [True, True, False, False]


def test_spans_and_happenings_are_bounded() -> None:
    """Of a run that follows for weeks."""
    course = Course()
    for number in range(10_000):
        course.take(Published(ORDERS, 1, "f:4", 0.1), float(number), 0.0)
        course.take(SourceLost("away", 1.0), float(number), 0.0)
    assert all(len(spans) <= 2 * SPANS_MAX for spans in course.spans.values())
    assert (len(course.happenings), course.happened) == (HAPPENINGS_MAX, 10_000)
    assert course.tables[str(ORDERS)].publishes == 10_000


def test_effects_are_counted_by_table() -> None:
    """Rows of waves and of reads again, keys of merges, publishes."""
    course, items = Course(), TableId("shop", "items")
    taken: list[Event] = [
        Opened(2, 1.0),
        Planned(ORDERS, 90),
        WaveCommitted(ORDERS, 1, 2, 60, 0.5, complete=False, chunk_seconds=(0.1, 0.2)),
        WaveCommitted(ORDERS, 2, 2, 40, 0.5, complete=True, chunk_seconds=(0.1, 0.2)),
        RowsReread(ORDERS, 1, 3, 0.1, is_last=True),
        Merged(ORDERS, read=9, applied=8, inserted=3, updated=2, deleted=1, seconds=0.1),
        GateRun(ORDERS, "after wave", 5, 0, 0, 0.1),
        GateRun(ORDERS, "before publish", 5, 1, 2, 0.1),
        Published(ORDERS, 102, "f:4", 0.2),
        TableStopped(items, GateFailed("items: rows fail")),
    ]
    for at, event in enumerate(taken, 1):
        course.take(event, float(at), 0.0)
    orders = course.tables["shop.orders"]
    assert (orders.rows, orders.waves, orders.estimated, orders.reread, orders.applied) == (100, 2, 100, 3, 8)
    assert (orders.inserted, orders.updated, orders.deleted, orders.publishes, orders.effects) == (3, 2, 1, 1, 109)
    assert orders.gate == "before publish: 1 of 5 failed, 2 warnings"
    assert (orders.readers, course.tables["shop.items"].readers) == ("102 rows as of f:4", "stopped, GateFailed")
    assert course.spans["waves"] == [(2.5, 3.0), (3.5, 4.0)]
    assert course.spans["opening"] == [(0.0, 1.0)]
    assert list(course.chunk_seconds) == [0.1, 0.2, 0.1, 0.2]
    course.take(GateRun(ORDERS, "after wave", 5, 0, 0, 0.1), 20.0, 0.0)
    assert orders.gate == "after wave: passed"  # the last one of all
    course.take(Published(items, 1, "f:5", 0.2), 21.0, 0.0)
    assert course.tables["shop.items"].error is None


def test_the_rate_of_changes_is_that_between_two_measurements() -> None:
    """And the greatest lag of a table counts."""
    course = Course()
    course.take(measured(measure(lag_bytes=5), measure(lag_bytes=9)), 1.0, 0.0)
    course.take(Merged(ORDERS, read=30, applied=20, inserted=20, updated=0, deleted=0, seconds=0.1), 2.0, 0.0)
    course.take(measured(measure(lag_bytes=None)), 3.0, 0.0)
    assert course.rates.points == ((3.0, 10.0),)
    assert course.lags.points[0] == (1.0, 9.0)
    assert math.isnan(course.lags.points[1][1])


def test_a_run_is_idle_if_it_has_changed_nothing_and_nothing_happened() -> None:
    """A gate or a measurement changes nothing; a problem is worth a report."""
    course = Course()
    for event in (Opened(1, 1.0), measured(measure()), GateRun(ORDERS, "before publish", 5, 0, 0, 0.1)):
        course.take(event, 1.0, 0.0)
    assert course.is_idle
    course.take(SourceLost("away", 1.0), 2.0, 0.0)
    assert not course.is_idle
