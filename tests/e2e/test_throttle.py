"""`throttle`: chunks wait while the source is busy, and its changes are copied all the time."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from lakeingest.commands.run import run
from lakeingest.commands.signal import ask
from lakeingest.config import Throttle
from lakeingest.config.throttle import TimesOfDay
from lakeingest.core.waves.scope import WHOLE
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import connect, query
from lakeingest.pipeline.events import Event, Following, LeftAsItIs, Published, Spooled, Throttled, WaveCommitted
from lakeingest.state.signals import SignalFolder
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ROWS = 200  # in chunks of 10
BUSY = 12  # threads of a busy source


def limited(pipe: Pipe, **limits: Any) -> Pipe:
    """The same pipeline with these limits."""
    return replace(pipe, config=pipe.config.model_copy(update={"throttle": Throttle.model_validate(limits)}))


def fill(pipe: Pipe, table: str) -> None:
    """A table of 20 chunks."""
    values = ", ".join(f"({i}, {i})" for i in range(ROWS))
    pipe.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {values}")


@contextmanager
def busy(pipe: Pipe, seconds: float) -> Iterator[None]:
    """The source has so many running threads for some time."""

    def work() -> None:
        with connect(pipe.administrator) as one:
            query(one, f"SELECT SLEEP({seconds})")

    with ThreadPoolExecutor(BUSY) as pool:
        done = [pool.submit(work) for _ in range(BUSY)]
        time.sleep(0.5)
        yield
        for each in done:
            each.result()


@contextmanager
def window(monkeypatch: pytest.MonkeyPatch, is_open: Callable[[], bool]) -> Iterator[None]:
    """It is a time of day within the window, or not."""
    with monkeypatch.context() as patch:
        patch.setattr(TimesOfDay, "contain", lambda *_: is_open())
        yield


@pytest.mark.long("waits for a source that is busy; tests/mysql/test_load has the figures")
def test_a_copy_waits_while_the_source_is_busy(pipe: Pipe) -> None:
    """The run says why, copies the changes meanwhile, and goes on by itself."""
    fill(pipe, "later")
    pipe = limited(pipe, threads_running=BUSY - 2)
    seen: list[tuple[float, Event]] = []

    def watch(event: Event) -> None:
        seen.append((time.monotonic(), event))
        if isinstance(event, Throttled):
            pipe.sql("UPDATE later SET v = -1 WHERE id = 7")

    with busy(pipe, 6.0):
        pipe.run(observe=watch)
    [(waited_at, waited)] = [(at, event) for at, event in seen if isinstance(event, Throttled)]
    assert f"more than {BUSY - 2} threads are running on the source" in waited.reason
    first_wave = min(at for at, event in seen if isinstance(event, WaveCommitted))
    spooled = [at for at, event in seen if isinstance(event, Spooled) and event.transactions]
    assert first_wave - waited_at > 1.0
    assert any(waited_at < at < first_wave for at in spooled)
    assert (7, -1) in pipe.rows("later")
    pipe.assert_equal()


@pytest.mark.long("waits for a window; the decision has tests of its own")
def test_a_bounded_run_leaves_chunks_to_the_next_run_if_the_window_is_closed(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from the middle of a copy; the complete tables are brought up to date."""
    fill(pipe, "complete")
    pipe.run()
    fill(pipe, "later")
    pipe.sql("INSERT INTO complete VALUES (1000, 1)")
    pipe = limited(pipe, window="22:00-06:00")
    waves: list[WaveCommitted] = []

    def watch(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            waves.append(event)

    with window(monkeypatch, lambda: not waves):
        result = pipe.run(observe=watch)
    assert 1 <= len(waves) <= 2  # the second one was begun before
    assert result.caught_up
    assert [(table.name, "throttle.window" in reason) for table, reason in result.left] == [("later", True)]
    assert [one.table.name for one in pipe.events if isinstance(one, LeftAsItIs)] == ["later"]
    assert (1000, 1) in pipe.rows("complete")
    with window(monkeypatch, lambda: False):  # no wave at all
        before = len(waves)
        pipe.sql("INSERT INTO complete VALUES (1001, 1)", "UPDATE later SET v = -1 WHERE id IN (0, 199)")
        result = pipe.run(observe=watch)
    assert len(waves) == before
    assert (1001, 1) in pipe.rows("complete")
    with window(monkeypatch, lambda: True):
        result = pipe.run(observe=watch)
    assert not result.left
    assert {(0, -1), (199, -1)} <= set(pipe.rows("later"))
    pipe.assert_equal()


@pytest.mark.long("waits for a run that follows")
def test_a_run_that_follows_copies_beside_its_rounds(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of other tables do not wait for the window."""
    fill(pipe, "complete")
    pipe.run()
    fill(pipe, "later")
    pipe.events.clear()
    pipe = limited(pipe, window="22:00-06:00")
    is_open: list[bool] = []
    deadline = time.monotonic() + 90

    def published(table: str) -> int:
        return sum(isinstance(one, Published) and one.table.name == table for one in pipe.events)

    def ends() -> bool:
        assert time.monotonic() < deadline
        return bool(published("later"))

    def watch(event: Event) -> None:
        pipe.events.append(event)
        if isinstance(event, Throttled):
            pipe.sql("INSERT INTO complete VALUES (1000, 1)")
        if isinstance(event, Published) and event.table.name == "complete" and pipe.seen(Throttled):
            assert not pipe.seen(WaveCommitted)
            is_open.append(True)

    with window(monkeypatch, lambda: bool(is_open)):
        run(pipe.config, (), None, watch, pipe.spark, follow=True, stopping=ends)
    assert ["throttle.window" in one.reason for one in pipe.events if isinstance(one, Throttled)] == [True]
    assert pipe.seen(Following)
    assert (1000, 1) in pipe.rows("complete")
    pipe.assert_equal()


@pytest.mark.parametrize("limit", ["threads_running", "window"])
@pytest.mark.long("waits as a first copy does")
def test_a_resnapshot_waits(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """A bounded run waits for the load, and leaves the signal to the next run if the window is closed."""
    fill(pipe, "orders")
    pipe.run()
    pipe = limited(pipe, **{limit: {"threads_running": BUSY - 2, "window": "22:00-06:00"}[limit]})
    ask(pipe.config, "resnapshot", [f"{pipe.database}.orders"], scope=WHOLE, wait=False)
    if limit == "window":
        with window(monkeypatch, lambda: False):
            pipe.run()
        [waiting] = SignalFolder(pipe.state).read()
        assert waiting.signal.state == "pending"
        assert waiting.note == "waits: reads begin within 22:00-06:00 UTC (throttle.window)"
        with window(monkeypatch, lambda: True):
            pipe.run()
    else:
        began = time.monotonic()
        with busy(pipe, 4.0):
            pipe.run()
        assert time.monotonic() - began > 3.0
    assert [one.signal.state for one in SignalFolder(pipe.state).read()] == ["done"]
    pipe.assert_equal()


@pytest.mark.long("waits as a first copy does")
def test_rows_are_read_at_a_pace(pipe: Pipe) -> None:
    """The mean of a copy is not above the limit, by the bytes of its rows in Arrow."""
    pipe.sql("CREATE TABLE wide (id INT PRIMARY KEY, v VARCHAR(2000))")
    values = ", ".join(f"({i}, REPEAT('x', 2000))" for i in range(ROWS))
    pipe.sql(f"INSERT INTO wide VALUES {values}")
    pipe = limited(pipe, mb_per_second=0.1)  # 400,000 bytes: 4 seconds, of which the last wave need not be waited for
    began = time.monotonic()
    pipe.run()
    waves = pipe.seen(WaveCommitted)
    assert time.monotonic() - began > 3.0
    assert len(waves) >= 4  # short ones, so that the source is not read at full speed for long
    assert not pipe.seen(Throttled)
    pipe.assert_equal()


@pytest.mark.long("waits; the decision has tests of its own")
def test_a_load_that_cannot_be_measured_stops_no_other_table(pipe: Pipe) -> None:
    """Only the tables whose chunks must be read."""
    fill(pipe, "complete")
    pipe.run()
    fill(pipe, "later")
    pipe.sql("INSERT INTO complete VALUES (1000, 1)")
    pipe = limited(pipe, history_list_length=1_000_000_000)
    with pytest.raises(OperatorNeeded, match="GRANT PROCESS"):
        pipe.run()
    assert (1000, 1) in pipe.rows("complete")
    pipe.sql("GRANT PROCESS ON *.* TO copier")
    try:
        pipe.run()
    finally:
        pipe.sql("REVOKE PROCESS ON *.* FROM copier")
    pipe.assert_equal()
