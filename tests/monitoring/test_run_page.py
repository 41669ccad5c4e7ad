"""The page of a run: what it says, that names are data, its size, and how it looks in a real browser."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeingest.commands.run import RunResult, TableResult
from lakeingest.config import Config, parse_config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, SourceAway
from lakeingest.monitoring.course import Course
from lakeingest.monitoring.ending import Ending
from lakeingest.monitoring.run_page import TABLES_SHOWN, RunPage
from lakeingest.pipeline.events import (
    Event,
    GateRun,
    Merged,
    Opened,
    Planned,
    Published,
    SourceLost,
    Spooled,
    TableStopped,
    WaveCommitted,
)
from lakeingest.pipeline.run.profile import StageCost
from lakeingest.state.stopped import Stopped
from tests.monitoring.test_event_lines import measure, measured
from tests.security.test_terminal import assert_harmless, events
from tests.servers.browser import Tab, browser

NAMES = ("orders", "<script>alert(1)</script>", "Bestellungen 2026 🧾", 'say "it\'s" & go', "x" * 64)
ERROR = GateFailed("shop.orders was not published: it failed the gate before publish")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A pipeline that is called like nobody's."""
    doc = {"name": "nightly", "source": {"host": "db.example.com", "user": "lake", "password": "pass-word"}}
    return parse_config(doc | {"tables": {"include": ["shop.*"]}}, tmp_path, {})


def course_of(*taken: Event) -> Course:
    """The course after these events, two a second."""
    course = Course()
    for number, event in enumerate(taken, 1):
        course.take(event, number / 2, time.time())
    return course


def a_busy_run(names: tuple[str, ...] = NAMES) -> Iterator[Event]:
    """The events of a run that copies tables, follows, and has a table that fails. Few tables are measured often."""
    yield Opened(len(names), 0.4)
    tables = [TableId("shop", name) for name in names]
    for at, table in enumerate(tables):
        yield Planned(table, 9_000)
        for wave in range(1, 4):
            yield WaveCommitted(table, wave, 2, 3_000 - 9 * at, 0.4, complete=wave == 3, chunk_seconds=(0.1, 0.3))
        yield Spooled("binlog.000001:4", 5, 60, 0.2)
        yield Merged(table, 60, 50, 30, 15, 5, 0.3)
        yield GateRun(table, "before publish", 12, 2 if at == 0 else 0, at, 0.1)
        if at:
            yield Published(table, 9_000, "binlog.000001:920", 0.2)
        if at and len(names) <= len(NAMES):
            yield measured(*(measure(table=each, lag_bytes=500 * at, lag_seconds=1.5) for each in tables))
    yield SourceLost("the source db:3306 is away: gone", 2.0)
    yield TableStopped(tables[0], ERROR)
    yield measured(*(measure(table=each, error="GateFailed" if each == tables[0] else "") for each in tables))


def result(*stopped: Stopped) -> RunResult:
    """The result of that run."""
    tables = tuple(TableResult(TableId("shop", name), 9_000, 3, None, published=True) for name in NAMES)
    profile = (StageCost("chunks", 15, 6.0, 4.5), StageCost("publishes", 4, 0.8, 0.4))
    return RunResult(tables, caught_up=True, seconds=30.0, stopped=stopped, profile=profile)


def a_failed_run(config: Config) -> str:
    """The page of the busy run, which has ended with the error of one table."""
    stopped = Stopped.of(TableId("shop", "orders"), ERROR)
    ending = Ending(1, "GateFailed", str(ERROR), result(stopped))
    return str(RunPage(config, course_of(*a_busy_run()), time.time() - 40, 31.5, ending))


def text_of(page: str) -> str:
    """The text of a page, without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_the_page_says_what_the_run_did(config: Config) -> None:
    """Its verdict, effects by table with their sum, gates, errors with their runbook, stages; and no secret."""
    page = a_failed_run(config)
    text = text_of(page)
    for part in (
        "failed with exit code 1: GateFailed",
        "mysql at db.example.com:3306",
        "44,730 rows copied in 15 waves, 0 rows read again, 250 change rows applied: 150 keys inserted, 75 updated, 25"
        " deleted; 4 publishes",
        "shop.orders: GateFailed",
        "shop.orders was not published: it failed the gate before publish",
        "lakeingest explain GateFailed",
        "# GateFailed",  # the runbook itself
        "before publish: 2 of 12 failed",
        "0 of 5 gates passed without a warning.",
        "stopped, GateFailed",
        "lag of the slowest table, bytes",
        "rows of each wave",
        "the source db:3306 is away: gone; trying again in 2.0 s",
        "CPU seconds",
    ):
        assert part in text, part
    for stage in ("opening", "waves", "binlog", "merges", "gates", "publishes", "source away"):
        assert f">{stage}</div>" in page
    assert "pass-word" not in page
    assert page.index("shop.orders") < page.index("Bestellungen")  # what has stopped comes first


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (None, "at work, as of"),
        (Ending(0, result=result()), "caught up with the source in 30.0 s"),
        (Ending.of(None, SourceAway("the source is away")), "failed with exit code 75: SourceAway"),
        (Ending.of(None, KeyboardInterrupt()), "interrupted, exit code 130"),
        (Ending.of(None, RuntimeError("boom")), "failed with exit code 70: InternalError"),
    ],
)
def test_each_ending_has_its_verdict(config: Config, ending: Ending | None, said: str) -> None:
    """Also of a run that has done nothing."""
    assert said in text_of(str(RunPage(config, Course(), time.time(), 0.0, ending)))


@pytest.mark.parametrize("event", [*events()], ids=lambda event: type(event).__name__)
def test_names_and_messages_are_data(config: Config, event: Event) -> None:
    """Of each event: none of them makes a tag, or has an effect."""
    page = str(RunPage(config, course_of(event), time.time(), 1.0, None))
    assert_harmless(page, 0)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=|href=|url\(|@import", page.replace("http://e]", ""))


def test_a_page_of_many_tables_is_small_and_soon_drawn(config: Config) -> None:
    """The others are counted, and the one that has stopped is shown."""
    names = tuple(f"table_{number:04}_{'n' * 40}" for number in range(2_000))
    course = course_of(*a_busy_run(names))
    began = time.process_time()
    page = str(RunPage(config, course, time.time(), 1_000.0, None))
    assert time.process_time() - began < 1.0  # a run that copies 2,000 tables takes minutes
    assert len(page) < 1_000_000
    assert f"and {2_000 - TABLES_SHOWN:,} more rows" in page
    assert page.count("· shop.table_") < 40
    assert "shop.table_0000_" in page[: page.index("Effects by table")]


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """A tab of a real browser."""
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1_280, 400])
def test_a_browser_shows_the_page(config: Config, tab: Tab, tmp_path: Path, width: int, dark: bool) -> None:  # noqa: FBT001
    """It asks for nothing else, complains of nothing, is not wider than its window, and is legible."""
    file = tmp_path / "run.html"
    file.write_text(a_failed_run(config))
    tab.open(file, width, dark=dark)
    assert tab.requests == [file.absolute().as_uri()]
    assert tab.problems == []
    page = "document.documentElement"
    assert tab.value(f"{page}.scrollWidth") <= tab.value(f"{page}.clientWidth") <= width
    assert tab.value("document.scripts.length") == 0
    assert tab.value("[...document.querySelectorAll('td')].some(cell => cell.textContent.includes('<script>'))")
    assert tab.value("document.querySelectorAll('svg rect').length") > 20
    assert tab.value("Math.min(...[...document.querySelectorAll('svg')].map(one => one.clientWidth))") >= 100
    tab.screenshot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_a_click_sorts_and_other_scripts_do_not_run(config: Config, tab: Tab, tmp_path: Path) -> None:
    """The policy of the page lets the browser run that script alone."""
    file = tmp_path / "run.html"
    forged = '<p id="forged" onclick="this.textContent = 1">0</p><script>document.title = "forged"</script></body>'
    file.write_text(a_failed_run(config).replace("</body>", forged))
    tab.open(file, 1_280)
    names = "[...document.querySelectorAll('h2')].find(one => one.textContent === 'Effects by table')"
    column = f"[...{names}.nextSibling.querySelectorAll('td:nth-child(2)')].map(cell => +cell.dataset.value)"
    tab.value(f"{names}.nextSibling.querySelectorAll('button')[1].click()")
    first = tab.value(column)
    tab.value(f"{names}.nextSibling.querySelectorAll('button')[1].click()")
    assert first == sorted(first)
    assert tab.value(column) == first[::-1]
    tab.value("document.getElementById('forged').click()")
    assert tab.value("document.getElementById('forged').textContent") == "0"
    assert tab.value("document.title") != "forged"
