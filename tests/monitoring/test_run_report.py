"""The report of a run in the state folder: private, bounded in number, and never able to fail a run."""

import stat
import time
from pathlib import Path

import pytest

from lakeingest.commands.run import RunResult
from lakeingest.config import Config, parse_config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LeaseHeld, NotOurState, SourceAway, StorageFailed, UsageError
from lakeingest.files.file import File, state_of
from lakeingest.monitoring import run_report
from lakeingest.monitoring.course import Course
from lakeingest.monitoring.ending import Ending
from lakeingest.monitoring.reporting import reported
from lakeingest.monitoring.run_report import RunReport
from lakeingest.pipeline.events import Event, Following, Observer, Published, Undelivered
from lakeingest.state.run_reports import FOLDER, KEPT, Kind, report_name, store_report

ORDERS = TableId("shop", "orders")
PUBLISHED = Published(ORDERS, 7, "f:4", 0.1)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A pipeline with a state folder that is not there yet."""
    doc = {"name": "nightly", "source": {"host": "db.example.com", "user": "lake"}, "state": str(tmp_path / "state")}
    return parse_config(doc | {"tables": {"include": ["shop.*"]}}, tmp_path, {})


def reports(config: Config) -> list[File]:
    """The reports, the oldest first."""
    return (state_of(config) / FOLDER).listed("*")


@pytest.mark.parametrize("error", [SourceAway("away"), KeyboardInterrupt(), RuntimeError("boom")])
def test_a_run_that_fails_has_a_report(config: Config, error: BaseException) -> None:
    """Its error is raised, whatever it is; and only this user can read the report."""

    def run(observe: Observer) -> None:
        observe(PUBLISHED)
        raise error

    seen: list[Event] = []
    with pytest.raises(type(error)):
        reported(config, seen.append, run, follow=False)
    assert seen == [PUBLISHED]
    [report] = reports(config)
    assert b"shop.orders" in report.read()
    folder = Path(str(report)).parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("error", [LeaseHeld("held"), NotOurState("theirs"), UsageError("typed")])
def test_the_state_of_another_run_gets_no_report(config: Config, error: BaseException) -> None:
    """Nor does one that could not begin."""

    def run(observe: Observer) -> None:
        raise error

    with pytest.raises(type(error)):
        reported(config, lambda _: None, run, follow=False)
    assert not state_of(config).exists()


def test_a_run_that_cannot_store_its_report_goes_on(config: Config) -> None:
    """It says so once, and returns its result."""
    Path(str(state_of(config))).write_text("no folder")
    seen: list[Event] = []
    assert reported(config, seen.append, lambda observe: observe(PUBLISHED), follow=False) is None
    [published, undelivered] = seen
    assert published == PUBLISHED
    assert isinstance(undelivered, Undelivered)
    assert undelivered.what == "state/reports"


def test_an_event_that_cannot_be_collected_is_passed_on(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the report is no fault of the run."""
    monkeypatch.setattr(Course, "take", lambda *_: 1 / 0)
    seen: list[Event] = []
    report = RunReport(config, seen.append)
    for _ in range(2):
        report.observe(PUBLISHED)
    report.end(Ending(75, "SourceAway", "away"))
    assert [type(event) for event in seen] == [Undelivered, Published, Published]
    assert not state_of(config).exists()  # a report that lacks events would be wrong


def test_a_store_that_hangs_holds_up_nothing(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits for its report for a limited time."""
    monkeypatch.setattr(run_report, "END_SECONDS", 0.2)
    monkeypatch.setattr(run_report, "store_report", lambda *_: time.sleep(5))
    seen: list[Event] = []
    began = time.monotonic()
    RunReport(config, seen.append).end(Ending(75, "SourceAway", "away"))
    assert time.monotonic() - began < 3
    assert [type(event) for event in seen] == [Undelivered]


def test_a_run_that_lasts_has_one_report_which_is_replaced(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is at work, the report says so."""
    monkeypatch.setattr(run_report, "EVERY_SECONDS", 0.0)
    report = RunReport(config, lambda _: None)
    report.observe(Following(1.0))
    for _ in range(100):
        if reports(config):
            break
        time.sleep(0.05)
    [first] = reports(config)
    assert b"at work, as of" in first.read()
    report.end(Ending(75, "SourceAway", "the source is away"))
    [last] = reports(config)
    assert last.name == first.name
    assert b"failed with exit code 75" in last.read()


def test_old_reports_are_removed(any_folder: File) -> None:
    """The last hundred stay. A clock that is set back removes none but old ones, and never the new one."""
    for number in range(KEPT[""] + 3):
        store_report(any_folder, report_name(1_000.0 + number), "page")
    kept = (any_folder / FOLDER).listed("*.html")
    assert len(kept) == KEPT[""]
    assert kept[0].name == report_name(1_003.0)
    store_report(any_folder, report_name(5.0), "new")
    kept = (any_folder / FOLDER).listed("*.html")
    assert len(kept) == KEPT[""]
    assert kept[0].read() == b"new"


@pytest.mark.parametrize(("code", "kind"), [(0, "-nothing-new"), (75, "-to-retry"), (3, ""), (130, "")])
def test_a_report_is_named_by_how_its_run_ended(config: Config, code: int, kind: str) -> None:
    """A run that fails was not idle, although it has changed nothing."""
    RunReport(config, lambda _: None).end(Ending(code, result=RunResult((), caught_up=True, seconds=1.0)))
    [report] = reports(config)
    assert report.name.partition("Z")[2] == f"{kind}.html"


@pytest.mark.parametrize("kind", ["nothing-new", "to-retry"])
def test_a_night_without_work_or_of_retries_hides_no_other_report(any_folder: File, kind: Kind) -> None:
    """Of these, only the last ones stay, and they remove none of another kind."""
    store_report(any_folder, report_name(11.0), "page")
    for number in range(KEPT[kind] + 4):
        store_report(any_folder, report_name(20.0 + number, kind), "page")
    assert [file.name for file in (any_folder / FOLDER).listed("*.html")] == [
        report_name(11.0),
        *(report_name(24.0 + number, kind) for number in range(KEPT[kind])),
    ]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As for other files of the state."""
    (tmp_path / "state").write_text("no folder")
    with pytest.raises(StorageFailed, match="state folder cannot be written"):
        store_report(tmp_path / "state", report_name(1.0), "page")  # type: ignore[arg-type] # `tmp_path` is a Local
