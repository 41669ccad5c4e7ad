"""The live progress of a run, from events: what is shown, how large it is, and that names are data."""

import re
from collections.abc import Iterator

import pytest

from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.drawing.frontend import in_notebook
from lakeingest.errors import GateFailed
from lakeingest.notebook.progress import TABLES_SHOWN, Progress
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Merged,
    Planned,
    Published,
    TableStopped,
    WaveCommitted,
)
from tests.security.test_terminal import assert_harmless, events

ORDERS = TableId("shop", "orders")


def waves(count: int) -> Iterator[WaveCommitted]:
    """So many waves of 100 rows, in two chunks each."""
    for number in range(1, count + 1):
        yield WaveCommitted(ORDERS, number, 2, 100, 0.5, complete=number == count, chunk_seconds=(0.1, 0.2))


def shown(*taken: Event) -> Progress:
    """The progress after these events, one a second."""
    progress = Progress()
    for seconds, event in enumerate(taken, 1):
        progress.take(event, float(seconds))
    return progress


def measured(lag: int | None) -> Measured:
    """A measurement of the table, which is so many bytes behind."""
    measure = Measure(ORDERS, 5, "f:1", None, lag, None, "", paused=False, max_staleness=None)
    return Measured((measure,), Load(), None)


@pytest.mark.parametrize("count", [1, 1_000])
def test_waves_and_their_rate_are_shown(count: int) -> None:
    """With one wave and with a thousand; the page stays small."""
    progress = shown(Planned(ORDERS, 70), *waves(count))
    page = progress._repr_html_()
    assert f"{100 * count:,} rows copied in {count:,} waves at 200 rows/s" in repr(progress)
    assert repr(progress) in re.sub("</?b>", "", page)
    assert "rows of each wave" in page
    assert "seconds of each chunk" in page
    assert 'data-value="70"' not in page  # the estimate has ended with the last wave
    assert len(page) < 60_000


def test_a_run_that_follows_shows_lag_and_changes() -> None:
    """The rate is that of the changes between two measurements; a lag that is not known is no zero."""
    merged = Merged(ORDERS, read=30, applied=20, inserted=20, updated=0, deleted=0, seconds=0.1)
    progress = shown(measured(500), Following(1.0), merged, measured(None), Published(ORDERS, 25, "f:9", 0.1))
    page = progress._repr_html_()
    assert "follows its source" in repr(progress)
    assert "20 changes applied" in repr(progress)
    assert "lag of the slowest table" in page
    assert "25 rows as of f:9" in page
    assert "changes applied, per second" in page


def test_gates_and_stops_are_shown() -> None:
    """And how the run ended."""
    error = GateFailed("shop.orders was not published")
    progress = shown(GateRun(ORDERS, "before publish", 9, 2, 1, 0.1), TableStopped(ORDERS, error))
    progress.end(3.0, error)
    page = progress._repr_html_()
    assert "before publish: 2 of 9 failed, 1 warnings" in page
    assert "stopped, GateFailed" in page
    assert "the run ended with GateFailed" in page
    progress.end(4.0, None)
    assert repr(progress) == "the run has ended, 4.0 seconds"


def test_many_tables_are_counted_and_not_listed() -> None:
    """A notebook stays readable."""
    page = shown(*(Planned(TableId("shop", f"t{number}"), 1) for number in range(500)))._repr_html_()
    assert page.count("<tr>") == 1 + TABLES_SHOWN
    assert "and 470 more tables" in page


@pytest.mark.parametrize("event", [*events()], ids=lambda event: type(event).__name__)
def test_each_event_is_taken_and_its_names_are_data(event: Event) -> None:
    """Nothing of a name or a message has an effect on the page."""
    assert_harmless(shown(event)._repr_html_(), 0)


def test_this_process_is_no_notebook() -> None:
    """So runs of tests draw nothing."""
    assert not in_notebook()
