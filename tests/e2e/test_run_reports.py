"""What a run leaves for people: its report, lines of its log, and the page of `status`."""

import json
import re
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed
from lakeingest.monitoring import event_lines, run_report
from lakeingest.pipeline.events import Measured
from lakeingest.pipeline.rounds import measuring
from lakeingest.state.run_reports import FOLDER
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, soon
from tests.monitoring.test_run_page import text_of

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]
ODD = "<script>☃ a.b</script>"
SUITE = {"expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "max_value": 99}}]}


def odd(pipe: Pipe) -> str:
    """An odd name that the format takes: Hudi refuses most signs."""
    return ODD if pipe.config.target.format == "iceberg" else "a.b$c-d"


def reports(pipe: Pipe) -> list[str]:
    """The reports of the pipeline, the oldest first."""
    return [file.read().decode() for file in (pipe.state / FOLDER).listed("*.html")]


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_each_run_leaves_a_report(pipe: Pipe, tmp_path: Path) -> None:
    """Of a copy, of changes with a table that fails its gate, and of nothing: of such runs only the last one."""
    name = odd(pipe)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        f"CREATE TABLE `{name}` (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO `{name}` VALUES (1, 1), (2, 2)",
    )
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / f"{pipe.database}.t.json").write_text(json.dumps(SUITE))
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(suites))})
    pipe.run()
    [first] = reports(pipe)
    assert "caught up with the source in" in text_of(first)
    assert "5 rows copied in 2 waves" in text_of(first)
    pipe.sql("UPDATE t SET v = 1000 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    pipe.sql(f"INSERT INTO `{name}` VALUES (3, 3)", f"UPDATE `{name}` SET v = 20 WHERE id = 2")
    with pytest.raises(GateFailed):
        pipe.run()
    _, second = reports(pipe)
    text = text_of(second)
    assert "failed with exit code 1: GateFailed" in text
    assert re.search(r"\d change rows applied: 1 keys inserted, 2 updated, 1 deleted; 1 publishes", text)
    assert f"{pipe.database}.t: GateFailed" in text
    assert "<script" not in second
    assert escape(name) in second
    pipe.sql("UPDATE t SET v = 10 WHERE id = 1")
    pipe.run()
    for _ in range(3):
        pipe.run()
    assert len(reports(pipe)) == 4
    assert "0 rows copied in 0 waves, 0 rows read again, 0 change rows applied" in text_of(reports(pipe)[-1])


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_the_page_of_status_is_that_of_its_table(pipe: Pipe) -> None:
    """With the same values and notes; names are data, and nothing is loaded."""
    name = odd(pipe)
    pipe.sql(f"CREATE TABLE `{name}` (id INT PRIMARY KEY)", f"INSERT INTO `{name}` VALUES (1), (2)")
    pipe.run()
    found = status(pipe.config)
    page = found.to_html("nightly: status")
    assert "<script" not in page
    assert all(note in text_of(page).replace("&#x27;", "'") for note in found.notes)
    assert f"{pipe.database}.{escape(name)}" in page
    assert not re.search(r"https?:|src=|href=", page)


@pytest.fixture
def job(mysql_server: LocalServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A pipeline for processes, with one table."""
    made = Job(tmp_path_factory.mktemp("said"), mysql_server, "said_job").write()
    made.sql(f"CREATE TABLE {made.database}.t (id INT PRIMARY KEY)", f"INSERT INTO {made.database}.t VALUES (1)")
    yield made
    made.sql(f"DROP DATABASE {made.database}")


@pytest.mark.local("looks into folders of this machine")
@pytest.mark.long("starts Python several times")
def test_each_line_of_a_log_has_its_date_its_zone_and_its_level(job: Job) -> None:
    """As a text and as JSON; and status writes its page, which whoever may list its folder may read."""
    code, lines = job.run()
    assert code == 0
    logged = [
        line for line in lines if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 (info   |warning|error  ) ", line)
    ]
    assert any(f"{job.database}.t: published 1 rows" in line for line in logged)
    job.sql(f"INSERT INTO {job.database}.t VALUES (2)")
    code, said = job.call("run", "--json", "--log-format", "json")
    assert code == 0
    documents: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    published = next(doc for doc in documents if doc.get("event") == "Published")
    assert (published["table"], published["rows"], published["level"]) == (f"{job.database}.t", 2, "info")
    assert datetime.fromisoformat(published["at"]).utcoffset() == timedelta(0)
    last = json.loads((job.state / "last_run.json").read())
    assert last["lag"][f"{job.database}.t"]["bytes"] == 0
    assert last["published_at"][f"{job.database}.t"] <= published["at"]
    page = job.folder / "status.html"
    code, said = job.call("status", "--html", str(page))
    assert (code, "said_job.t" in said) == (0, True)
    assert "job: status" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600 | stat.S_IMODE(job.folder.stat().st_mode) & 0o044
    code, said = job.call("--log-format", "json", "status", "--html", str(job.folder / "nowhere" / "status.html"))
    [doc] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert (code, doc["exit"], doc["error"], doc["level"]) == (2, 2, "UsageError", "error")


@pytest.mark.formats("iceberg")
@pytest.mark.long("waits for a run that follows")
def test_a_run_that_follows_has_a_line_where_nothing_happens(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the measurements that it makes anyway; and its report is there while it is at work."""
    monkeypatch.setattr(measuring, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(run_report, "EVERY_SECONDS", 0.5)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")

    def work() -> None:
        measured = len(pipe.seen(Measured))
        soon(lambda: len(pipe.seen(Measured)) > measured + 3)
        soon(lambda: "at work, as of" in "".join(map(text_of, reports(pipe))))

    follow_while(pipe, work)
    minutes = count(0.0, event_lines.HEARTBEAT_SECONDS)
    line_of = event_lines.line_maker(lambda: next(minutes))
    assert any("1 tables, at most 0 bytes behind, readers see" in (line_of(event) or "") for event in pipe.events)
    assert "caught up with the source and followed it" in text_of(reports(pipe)[-1])
