"""When figures are delivered: within a part of the run's CPU seconds, and at once if a table fails or recovers."""

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakeingest.config import parse_config
from lakeingest.core.figures import budget
from lakeingest.core.figures.budget import SHARE
from lakeingest.core.figures.freshness import Measure
from lakeingest.monitoring import export
from lakeingest.monitoring.export import Export
from lakeingest.monitoring.exposition import Exposition, write_textfile
from lakeingest.monitoring.figures import Figures
from lakeingest.pipeline.events import Event, Measured, Spooled
from tests.monitoring.test_exposition import LOAD, NAMES, measure

EVENT = Spooled("binlog.000001:4", 1, 1, 0.1)


class Exporting:
    """An export with a text file, and how often that was replaced."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.prom"
        doc = {"name": "shop", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
        config = parse_config(doc | {"state": str(folder), "metrics": {"textfile": str(self.file)}}, folder, {})
        self.export = Export(config, lambda _: None, follow=True)
        self.replaced = 0

    def observe(self, event: Event) -> bool:
        """Let it observe an event. Returns whether the file was replaced."""
        before = self.file.stat().st_mtime_ns if self.file.exists() else None
        self.export.observe(event)
        is_replaced = self.file.stat().st_mtime_ns != before
        self.replaced += is_replaced
        return is_replaced

    def is_late(self, look: Callable[[], bool]) -> bool:
        """Whether something becomes so before a second is over."""
        until = time.monotonic() + 1
        while time.monotonic() < until:
            if look():
                return False
            time.sleep(0.01)
        return True


@pytest.fixture
def exporting(tmp_path: Path) -> Exporting:
    """An export that has delivered the first measurement: the process has computed too little since for another one."""
    made = Exporting(tmp_path)
    assert made.observe(EVENT)
    assert not made.is_late(lambda: made.observe(measured()))
    return made


def measured(*others: Measure) -> Measured:
    """A measurement: these tables, and healthy ones."""
    now = time.time()
    return Measured((*(measure(name, now) for name in NAMES[len(others) :]), *others), LOAD, 3600)


def test_without_news_the_budget_decides(exporting: Exporting) -> None:
    """However often tables are measured, and however much has happened."""
    for _ in range(100):
        assert not exporting.observe(EVENT)
        assert not exporting.observe(measured())


@pytest.mark.parametrize("change", [{"error": "GateFailed"}, {"companions": {"history": "CompanionFailed"}}])
def test_a_table_that_fails_or_recovers_is_told_at_once(exporting: Exporting, change: dict[str, object]) -> None:
    """Whatever was spent before; and it is told once."""
    sick = replace(measure("sick", time.time()), **change)  # type: ignore[arg-type] # the fields have many types
    [error] = {"GateFailed", "CompanionFailed"} & {str(value) for value in change.values() for value in _flat(value)}
    assert not exporting.is_late(lambda: exporting.observe(measured(sick)))
    assert f'error="{error}"' in exporting.file.read_text()
    assert not any(exporting.observe(measured(sick)) for _ in range(20))
    assert not exporting.is_late(lambda: exporting.observe(measured(replace(sick, error="", companions={}))))
    assert f'error="{error}"' not in exporting.file.read_text()


def _flat(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [value]


def test_the_figures_are_never_older_than_a_minute(exporting: Exporting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a run that does nothing."""
    monkeypatch.setattr(budget, "MOST_SECONDS", 0.3)
    assert not exporting.observe(measured())
    time.sleep(0.3)
    assert exporting.observe(measured())
    assert not exporting.observe(measured())


def test_a_run_that_computes_delivers_within_its_share(exporting: Exporting) -> None:
    """It has a budget, and uses no more of it."""
    cpu = time.thread_time()
    for _ in range(10):
        write_textfile(exporting.file, Exposition("shop", Figures()))  # with less than what the run writes
    cost, began, exporting.replaced = (time.thread_time() - cpu) / 10, time.process_time(), 0
    while (run := time.process_time() - began) < 2:
        sum(range(5_000_000))
        exporting.observe(measured())
    assert exporting.replaced >= 2
    assert exporting.replaced * cost <= SHARE * run


def test_the_last_delivery_waits_for_no_place_that_hangs_and_is_not_begun_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads would send by one client."""
    monkeypatch.setattr(export, "LAST_SECONDS", 0.2)
    told = list[Event]()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        doc = {"name": "shop", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
        push = f"http://127.0.0.1:{silent.getsockname()[1]}"
        exporting = Export(parse_config(doc | {"metrics": {"push": push}}, tmp_path, {}), told.append, follow=True)
        exporting.observe(measured())
        client, _ = silent.accept()
        with client:  # nobody answers it
            exporting.end(0, caught_up=True, stages=())
            silent.settimeout(0.5)
            with pytest.raises(TimeoutError):  # nobody else connects
                silent.accept()
    assert [type(event).__name__ for event in told if not isinstance(event, Measured)] == ["Undelivered"]
