"""Signals beside a run and without one: pause, resume, cancel and maintenance, from processes as people start them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import Retryable, UsageError
from lakeingest.files import file as files
from lakeingest.state.lease import held, is_held
from lakeingest.state.signals import SignalFolder
from tests.e2e.job import Job, until
from tests.e2e.pipe import Pipe
from tests.e2e.signalled import soon, states

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
# an owner of the lease that renews it, and carries nothing out
HOLD = """
import sys, time
from pathlib import Path
from lakeingest.config import load_config
from lakeingest.files.file import state_of
from lakeingest.state.lease import held
with held(state_of(load_config(Path("pipeline.yml"), offline=True))):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_format: str) -> Iterator[Job]:
    """A pipeline with two small tables."""
    job = Job(tmp_path / "job", mysql_server, "signals", lake_format=lake_format).write()
    job.sql(
        f"USE {job.database}",
        "CREATE TABLE busy (id INT PRIMARY KEY, v VARCHAR(40))",
        "CREATE TABLE calm (id INT PRIMARY KEY, v VARCHAR(40))",
        "INSERT INTO busy VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO calm VALUES (1, 'a'), (2, 'b')",
    )
    yield job
    job.sql(f"DROP DATABASE {job.database}")


def stopped(run: "subprocess.Popen[str]") -> tuple[int, str]:
    """Stop a run that follows."""
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=120)
    return run.returncode, said


@pytest.mark.any_format
@pytest.mark.long("several processes, one of which follows")
def test_a_table_is_paused_and_resumed_beside_a_run_that_follows(job: Job) -> None:
    """A paused table stays as it was while the other goes on; nothing that was written meanwhile is lost."""
    paused = f"{job.database}.calm"
    run = job.start("run", "--follow")
    until(run, "caught up with the source")
    code, said = job.call("pause", paused)
    assert (code, f"pause of {paused}: done" in said) == (0, True), said
    before = job.published("calm")
    job.sql(f"INSERT INTO {job.database}.calm VALUES (3, 'c')", f"INSERT INTO {job.database}.busy VALUES (3, 'c')")
    soon(lambda: job.published("busy") == job.source("busy"))
    time.sleep(2)
    assert job.published("calm") == before
    [found] = status(job.config, [paused])
    assert found.paused is not None
    assert (found.paused.spool_bytes or 0) > 0
    assert (found.paused.binlog_seconds or 0) > 3600
    assert f"{paused}: paused by" in repr(status(job.config, [paused]))
    assert job.call("resume", paused)[0] == 0
    soon(lambda: job.published("calm") == job.source("calm"))
    assert status(job.config, [paused])[0].paused is None
    assert stopped(run)[0] == 0
    assert states(job) == [("pause", "done"), ("resume", "done")]


@pytest.mark.any_format
@pytest.mark.long("several processes with a Spark each")
def test_a_paused_table_is_named_by_a_run_and_goes_on_after_its_resumption(job: Job) -> None:
    """Without a run the command takes the lease itself; the next runs leave the table out and end with 0."""
    paused = f"{job.database}.calm"
    assert job.run()[0] == 0
    code, said = job.call("pause", paused, "--json")
    assert code == 0, said
    assert json.loads(said.splitlines()[-1])[0]["state"] == "done"
    job.sql(f"INSERT INTO {job.database}.calm VALUES (3, 'c')", f"INSERT INTO {job.database}.busy VALUES (3, 'c')")
    code, lines = job.run()
    assert code == 0, lines
    assert [line for line in lines if line.startswith(f"{paused}: paused as of ")], lines
    assert job.published("busy") == job.source("busy")
    assert job.published("calm") != job.source("calm")
    assert files.document(job.state / "last_run.json")["paused"] == [{"database": job.database, "name": "calm"}]
    assert job.call("resume")[0] == 0
    assert job.run()[0] == 0
    assert job.published("calm") == job.source("calm")


@pytest.mark.long("whole runs")
def test_no_wait_only_makes_the_signal_and_the_next_run_carries_it_out(pipe: Pipe) -> None:
    """It stays pending, `status` has it, and the next run does as it says before it reads anything."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipe.sql("CREATE TABLE others (id INT PRIMARY KEY)", "INSERT INTO others VALUES (1)")
    name = f"{pipe.database}.items"
    [made] = ask(pipe.config, "pause", [name], wait=False)
    assert (made.state, made.number) == ("pending", 1)
    assert not is_held(pipe.state)
    [found] = status(pipe.config, [name])
    assert [(one.number, one.action, one.state) for one in found.signals] == [(1, "pause", "pending")]
    result = pipe.run()
    assert [table.name for table in result.paused] == ["items"]
    assert {one.table.name: one.published for one in result.tables} == {"items": False, "others": True}
    assert [one.signal.state.value for one in SignalFolder(pipe.state).read()] == ["done"]
    ask(pipe.config, "resume", [name])
    assert pipe.run().paused == ()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_that_is_paused_while_it_is_copied_stops_after_a_wave(pipe: Pipe) -> None:
    """The copy goes on from there after its resumption, and no wave is read twice."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)")
    pipe.sql(f"INSERT INTO items VALUES {', '.join(f'({number})' for number in range(200))}")
    name = f"{pipe.database}.items"

    def pause(event: object) -> None:
        if type(event).__name__ == "WaveCommitted" and not SignalFolder(pipe.state).read():
            ask(pipe.config, "pause", [name], wait=False)

    result = pipe.run(observe=pause)
    assert [table.name for table in result.paused] == ["items"]
    waves = result.tables[0].waves
    assert 0 < waves < 10
    pipe.sql("DELETE FROM items WHERE id % 3 = 0")
    ask(pipe.config, "resume")
    assert pipe.run().tables[0].waves > waves
    pipe.assert_equal()


def test_a_signal_for_a_table_that_is_not_there_is_refused(pipe: Pipe) -> None:
    """UsageError, and no document is made."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)")
    for name in (f"{pipe.database}.itmes", "elsewhere.items", "items"):
        with pytest.raises(UsageError):
            ask(pipe.config, "pause", [name])
    assert SignalFolder(pipe.state).read() == []


def test_nothing_to_cancel_is_said(pipe: Pipe) -> None:
    """No signal is made where no re-snapshot is open."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)")
    assert ask(pipe.config, "cancel", [f"{pipe.database}.items"]) == ()


@pytest.mark.formats
@pytest.mark.long("several publishes of Hudi", only=("hudi",))
def test_maintenance_keeps_the_rows_and_says_what_it_did(pipe: Pipe, lake_format: str) -> None:
    """Many small merges leave many small files: by hand they become few, and readers see the same rows."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY, v INT)", "INSERT INTO items VALUES (1, 1), (2, 2), (3, 3)")
    pipe.run()
    for number in range(4, 8):
        pipe.sql(f"INSERT INTO items VALUES ({number}, {number})", "UPDATE items SET v = v + 1 WHERE id = 1")
        pipe.run()
    leftover = pipe.state / "spool" / "data" / "killed-0.parquet"
    leftover.write(b"left behind")
    [done] = ask(pipe.config, "maintain", [f"{pipe.database}.items"], spark=pipe.spark)
    assert done.state == "done", done.why
    [table] = done.result["tables"]
    assert table["table"] == f"{pipe.database}.items"
    if lake_format == "iceberg":
        assert (table["files"]["before"] > 1, table["files"]["after"]) == (True, 1)
        assert table["deletes"]["after"] == 0
    assert leftover.exists()  # it is young: a task may still write it
    pipe.assert_equal()
    [again] = ask(pipe.config, "maintain", spark=pipe.spark)
    assert again.state == "done"
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_command_waits_for_the_owner_and_takes_over_when_that_ends(pipe: Pipe) -> None:
    """While another process holds the lease the signal waits; when it lets go, the command carries it out itself."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipe.run()
    reported: list[str] = []

    def report(document: object) -> None:
        reported.append(str(document))

    with ThreadPoolExecutor(1) as threads:
        with held(pipe.state):
            asked = threads.submit(ask, pipe.config, "pause", report=report)
            soon(lambda: reported)
            time.sleep(2)
            assert not asked.done()
        [done] = asked.result(timeout=60)
    assert done.state == "done"
    assert ["pending" in line for line in reported] == [True, False]
    assert [table.name for table in pipe.run().paused] == ["items"]


@pytest.mark.any_format
@pytest.mark.long("several processes, one of which is killed")
def test_a_killed_owner_leaves_signals_that_the_next_one_carries_out(job: Job) -> None:
    """`kill -9` while signals are open: the command that waits takes the lease over and carries them out, in order."""
    assert job.run()[0] == 0
    names = [f"{job.database}.{name}" for name in ("calm", "busy")]
    command = [sys.executable, "-c", HOLD]
    owner = subprocess.Popen(command, cwd=job.folder, env=ENVIRONMENT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"held\n"
    assert job.call("pause", names[0], "--no-wait")[0] == 0
    assert job.call("resume", names[0], "--no-wait")[0] == 0
    waiting = job.start("pause", names[1])
    soon(lambda: len(states(job)) == 3)
    time.sleep(2)
    assert waiting.poll() is None
    assert states(job) == [("pause", "pending"), ("resume", "pending"), ("pause", "pending")]
    owner.kill()
    owner.communicate(timeout=60)
    said, _ = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, said
    assert states(job) == [("pause", "done"), ("resume", "done"), ("pause", "done")]
    assert [bool(one.paused) for one in status(job.config, names)] == [True, False]  # busy, then calm
    audit = [*map(files.parsed, (job.state / "audit.jsonl").lines())]
    assert [line["number"] for line in audit if line["event"] == "finish"] == [1, 2, 3]
    assert TableId.parse(names[1]) in {one.table for one in status(job.config)}


def test_a_cancelled_signal_is_an_error_of_the_one_who_waits() -> None:
    """Whoever waits for it learns that it was not carried out."""
    from lakeingest.commands.signal import SignalResult, SignalResults

    results = SignalResults([SignalResult(4, "resnapshot", (), "cancelled", "", None, None)])
    with pytest.raises(Retryable, match="signal 4 was cancelled"):
        results.raise_failure()
    failed = SignalResults([SignalResult(4, "resnapshot", (), "failed", "", "UsageError: no such column", None)])
    with pytest.raises(UsageError, match="no such column"):
        failed.raise_failure()
