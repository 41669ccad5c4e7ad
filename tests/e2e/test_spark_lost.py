"""A run's worker or Spark's JVM is killed, as a scheduler or the kernel does: a name, 75, and the next run goes on."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job, command_lines, is_worker, signal_all, until
from tests.e2e.test_follow import soon

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 12_000
SUITE = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: v}}]"


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer) -> Iterator[Job]:
    """A pipeline with a table of many waves, which Spark asks a suite of."""
    job = Job(tmp_path / "job", mysql_server, "spark_lost_job", 400).write()
    (job.folder / "quality").mkdir()
    (job.folder / "quality" / f"{job.database}.items.yml").write_text(SUITE)
    values = ", ".join(f"({i}, REPEAT('{i} ', 20))" for i in range(ROWS))
    job.sql(
        f"USE {job.database}", "CREATE TABLE items (id INT PRIMARY KEY, v TEXT)", f"INSERT INTO items VALUES {values}"
    )
    yield job
    job.sql(f"DROP DATABASE {job.database}")


def kill_java(process: "subprocess.Popen[str]") -> None:
    """Kill -9 the JVM as soon as its session listens on its ports, and no process else."""
    while process.poll() is None:
        for pid, line in command_lines(process.pid).items():
            if line.partition("\0")[0].endswith("java") and sockets(pid) > 3:
                return os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    raise AssertionError(process.communicate()[0])


def sockets(pid: int) -> int:
    """How many sockets a process has open."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return sum("socket:" in str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir())
    return 0


@pytest.mark.long("starts Spark several times")
def test_a_killed_jvm_is_named_and_the_next_run_goes_on(job: Job) -> None:
    """While it starts for the suites of the gate before the publish: one line, 75, and nothing is lost."""
    process = job.start("run")
    until(process, ", the last")
    kill_java(process)
    output, _ = process.communicate(timeout=200)
    last = output.splitlines()[-1]
    assert process.returncode == 75, output[-2000:]
    assert last.startswith("lakeingest: Spark ended during the run: ")
    assert last.endswith("(runbook: SparkLost)")
    assert "Traceback" not in output
    code, said_then = job.run()
    assert code == 0, said_then
    assert job.published("items") == job.source("items")


@pytest.mark.long("starts Spark several times")
def test_workers_that_are_killed_as_they_start_are_named(job: Job) -> None:
    """Before their first answer, as the kernel does that has no memory left: one line, 75, and nothing is lost."""
    process = job.start("run")
    while process.poll() is None and not (started := workers(process)):
        time.sleep(0.01)
    signal_all(started, signal.SIGKILL)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 75, output[-2000:]
    assert output.splitlines()[-1].endswith("(runbook: SparkLost)")
    code, said_then = job.run()
    assert code == 0, said_then
    assert job.published("items") == job.source("items")


def workers(process: "subprocess.Popen[str]") -> list[int]:
    """The worker processes, and the one from which they are forked."""
    return [pid for pid, line in command_lines(process.pid).items() if is_worker(line)]


@contextmanager
def following_without_spark(job: Job) -> "Iterator[subprocess.Popen[str]]":
    """A run that follows, whose JVM was killed."""
    process = job.start("run", "--follow")
    try:
        until(process, "caught up")
        kill_java(process)
        yield process
    finally:
        process.kill()


def end(process: "subprocess.Popen[str]") -> str:
    """End it with SIGTERM, and with 0; the rest of its output."""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output[-2000:]
    return output


@pytest.mark.long("starts Spark several times")
def test_a_run_that_follows_starts_spark_again(job: Job) -> None:
    """It says so, and publishes what came meanwhile; SIGTERM ends it with 0."""
    with following_without_spark(job) as process:
        job.sql(f"INSERT INTO {job.database}.items VALUES (-1, 'late')")
        until(process, "Spark ended during the run")
        soon(same(job))
        end(process)


@pytest.mark.long("starts Spark")
def test_a_run_that_follows_ends_well_where_its_jvm_ended_first(job: Job) -> None:
    """As systemd ends a unit: SIGTERM goes to each of its processes."""
    with following_without_spark(job) as process:
        assert "followed it" in end(process)


def same(job: Job) -> Callable[[], bool]:
    """Whether readers see what the source has."""
    return lambda: job.published("items") == job.source("items")
