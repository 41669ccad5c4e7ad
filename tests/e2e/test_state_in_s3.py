"""A pipeline whose state is in S3: runs on machines that share nothing else, as a scheduler starts them."""

import json
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.files import file as files
from lakeingest.files.file import File, state_of
from tests.e2e.job import Job, descendants, signal_all, until
from tests.e2e.signalled import soon
from tests.servers.catalog_servers import hudi_on_s3, rest_on_s3
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

PAUSES = 10  # tries to pause a run within its publish
STEP_SECONDS = 0.005

ROWS, CHUNK_ROWS = 4_000, 100


@pytest.fixture(params=["iceberg", "hudi"])
def job(request: pytest.FixtureRequest, tmp_path: Path, mysql_server: LocalServer) -> Iterator[Job]:
    """A pipeline with a table of many waves; catalog, tables and state are not on this machine."""
    with (rest_on_s3 if request.param == "iceberg" else hudi_on_s3)(tmp_path) as target:
        stored = target["warehouse"].replace("warehouse", "state/of a job")
        first = tmp_path / "first"
        lake = request.param
        job = Job(first, mysql_server, "state_in_s3", CHUNK_ROWS, lake_format=lake, target=target, stored=stored)
        job.write()
        values = ", ".join(f"({number}, 'row {number}')" for number in range(ROWS))
        job.sql(f"USE {job.database}", "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO t VALUES {values}")
        yield job
        job.sql(f"DROP DATABASE {job.database}")


@pytest.fixture
def hudi_job(tmp_path: Path, mysql_server: LocalServer) -> Iterator[Job]:
    """A pipeline of Hudi with all that it has in S3."""
    with hudi_on_s3(tmp_path) as target:
        stored = target["warehouse"].replace("warehouse", "state")
        job = Job(tmp_path / "first", mysql_server, "hudi_in_s3", lake_format="hudi", target=target, stored=stored)
        job.write()
        values = ", ".join(f"({number}, 'row {number}')" for number in range(ROWS))
        job.sql(f"USE {job.database}", "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO t VALUES {values}")
        yield job
        job.sql(f"DROP DATABASE {job.database}")


def said(job: Job, *arguments: str) -> str:
    """What a command says, which must succeed."""
    process = job.start(*arguments)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


@pytest.mark.long("starts several processes with a Spark each")
def test_a_killed_run_is_continued_on_another_machine(job: Job, tmp_path: Path) -> None:
    """Nothing is copied twice; signals, changelog, verify and status find there what the first machine left."""
    assert "state folder" in said(job, "check")
    run = job.start("run")
    until(run, "wave 2,")
    signal_all(list(descendants(run.pid)), signal.SIGKILL)
    run.communicate(timeout=60)
    second = job.on_another_machine(tmp_path / "second")
    job.sql(f"DELETE FROM {job.database}.t WHERE id % 9 = 0")
    output = said(second, "run")
    assert ": wave 1," not in output
    assert second.published("t") == job.source("t")

    third = job.on_another_machine(tmp_path / "third")
    job.sql(f"UPDATE {job.database}.t SET v = 'changed' WHERE id % 7 = 0")
    said(third, "run")
    assert third.published("t") == job.source("t")
    job.unlogged(f"UPDATE {job.database}.t SET v = 'lost' WHERE id = 1")
    said(second, "resnapshot", f"{job.database}.t", "--no-wait")
    assert "resnapshot" in said(third, "status")
    said(third, "run")
    assert third.published("t") == job.source("t")
    said(second, "verify")
    copy = {}
    for line in map(json.loads, said(job, "changelog", f"{job.database}.t").splitlines()):
        if line["op"] in {"+I", "+U"}:
            copy[line["data"]["id"]] = line["data"]["v"]
        else:
            del copy[line["data"]["id"]]
    assert sorted(copy.items()) == job.source("t")

    state = state_of(job.config)
    [asked, *_] = (state / "audit.jsonl").lines()
    assert files.parsed(asked)["event"] == "asked"
    last = files.document(state / "last_run.json")
    assert last["exit"] == 0
    bill = last["bill"]
    assert bill["requests"] > 10
    assert min(bill["bytes_read"], bill["bytes_written"]) > 1_000
    assert bill["not_counted"] != []  # requests of other clients
    for machine in (job, second, third):
        assert [file.name for file in machine.folder.iterdir()] == ["pipeline.yml"]


@pytest.mark.long("waits until a lease has expired")
def test_one_machine_works_at_a_time(job: Job, tmp_path: Path) -> None:
    """A second run is refused; once the first is paused past its lease the second works, and the first is refused."""
    second = job.on_another_machine(tmp_path / "second")
    first = job.start("run", "--follow")
    try:
        until(first, "caught up")
        code, lines = second.run()
        assert code == 75, lines
        assert "another run of this pipeline is at work" in lines[-1]
        first.send_signal(signal.SIGSTOP)
        job.sql(f"UPDATE {job.database}.t SET v = 'changed' WHERE id % 7 = 0")
        soon(lambda: second.run()[0] == 0)
        assert second.published("t") == job.source("t")
        first.send_signal(signal.SIGCONT)
        output, _ = first.communicate(timeout=120)
        assert first.returncode == 75, output
        assert "LeaseLost" in output
        assert second.published("t") == job.source("t")
    finally:
        first.kill()
    job.sql(f"UPDATE {job.database}.t SET v = 'again' WHERE id % 5 = 0")
    began = time.monotonic()
    assert second.run()[0] == 0
    assert time.monotonic() - began < 120
    assert second.published("t") == job.source("t")


def has_begun(timeline: File, done: Collection[str]) -> bool:
    """Whether a commit has begun that is none of the `done`."""
    return any(file.name not in done for file in timeline.listed("*.inflight"))


@pytest.mark.long("waits until a lease has expired")
def test_a_run_that_is_paused_within_a_publish_of_hudi_changes_nothing_after_it(hudi_job: Job, tmp_path: Path) -> None:
    """The next run rolls back what it was writing, which cannot be completed then."""
    job, second = hudi_job, hudi_job.on_another_machine(tmp_path / "second")
    assert job.run()[0] == 0
    target = job.config.target
    timeline = files.at(target.folder(TableId(job.database, "t")), target.storage) / ".hoodie" / "timeline"
    done = {file.name for file in timeline.listed("*.inflight")}
    paused: list[int] = []
    try:
        for number in range(PAUSES):  # a publish takes less than a second, so it may be over
            commits = len(timeline.listed("*_*.commit"))
            job.sql(f"UPDATE {job.database}.t SET v = 'changed {number}' WHERE id % 7 = 0")
            first = job.start("run")
            while not has_begun(timeline, done):  # the run goes on for milliseconds at a time
                signal_all(paused, signal.SIGCONT)
                time.sleep(STEP_SECONDS)
                paused = list(descendants(first.pid))
                signal_all(paused, signal.SIGSTOP)
            if len(timeline.listed("*_*.commit")) == commits:
                break
            signal_all(paused, signal.SIGCONT)
            first.communicate(timeout=300)
            paused = []
            done = {file.name for file in timeline.listed("*.inflight")}
        within = len(timeline.listed("*_*.commit")) - commits
        job.sql(f"UPDATE {job.database}.t SET v = 'again' WHERE id % 5 = 0")
        soon(lambda: second.run()[0] == 0)
        assert second.published("t") == job.source("t")
        signal_all(paused, signal.SIGCONT)
        output, _ = first.communicate(timeout=300)
        assert within == 0, "it was paused too late"
        assert first.returncode == 75, output
        assert second.published("t") == job.source("t")
    finally:
        signal_all(paused, signal.SIGKILL)
        first.kill()
    job.sql(f"UPDATE {job.database}.t SET v = 'last' WHERE id % 3 = 0")
    assert second.run()[0] == 0
    assert second.published("t") == job.source("t")


@pytest.mark.long("whole runs with Spark's event log")
def test_no_secret_is_in_the_store_nor_in_what_spark_shows(job: Job, tmp_path: Path) -> None:
    """Spark's pages show what its event log has: settings, plans and jobs. The store has the tables and the state."""
    events = tmp_path / "events"
    events.mkdir()
    file = job.folder / "pipeline.yml"
    doc = json.loads(file.read_text())
    doc["spark"]["conf"] |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    suites = job.folder / "quality"  # Spark evaluates them; without one, no run needs Spark
    suites.mkdir()
    is_given = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}
    (suites / f"{job.database}.t.yml").write_text(json.dumps({"expectations": [is_given]}))
    file.write_text(json.dumps(doc | {"quality": {"suites": "quality"}}))
    key = doc["target"]["storage"]["properties"]["s3.secret-access-key"]
    secrets = {"the password": job.server.password.encode(), "the key of the store": key.encode()}
    said(job, "run")
    job.sql(f"UPDATE {job.database}.t SET v = 'changed' WHERE id % 2 = 0")
    printed = said(job, "run") + said(job, "verify")
    warehouse = files.at(job.config.target.warehouse, job.config.target.storage)
    every = [one for one in [*everything(warehouse), *everything(job.state)] if one.exists()]  # no folders
    stored = {str(one): one.read() for one in every}
    shown = {str(path): path.read_bytes() for path in events.iterdir()}
    assert any(b"SparkListenerEnvironmentUpdate" in content for content in shown.values())
    assert len(stored) > 10
    found = [
        (what, name)
        for name, content in (stored | shown | {"the output": printed.encode()}).items()
        for what, secret in secrets.items()
        if secret in bytes(content)
    ]
    assert found == []
