"""Runs as processes: two at once, one that is killed, one that loses its lease, one that is asked to stop."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeingest.commands.status import status
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LeaseLost
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.pipeline.events import Event, WaveCommitted
from lakeingest.state.lease import is_held
from tests.e2e.job import Job, until
from tests.e2e.pipe import Pipe
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_format: str) -> Iterator[Job]:
    """A pipeline with a table of many waves."""
    job = Job(tmp_path / "job", mysql_server, "two_runs", 100, lake_format=lake_format).write()
    values = ", ".join(f"({i}, 'row {i}')" for i in range(4_000))
    job.sql(
        f"USE {job.database}",
        "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO items VALUES {values}",
    )
    yield job
    job.sql(f"DROP DATABASE {job.database}")


@pytest.mark.long("two processes with a Spark each")
def test_of_two_runs_at_once_one_is_refused(job: Job) -> None:
    """Started together on one table: one copies it, the other ends with 75 and names the first one's process."""
    runs = [job.start("run"), job.start("run")]
    said = [run.communicate(timeout=300)[0] for run in runs]
    codes = [run.returncode for run in runs]
    assert sorted(codes) == [0, 75], said
    winner, last = runs[codes.index(0)], said[codes.index(75)].splitlines()[-1]
    assert last.startswith("lakeingest: another run of this pipeline is at work")
    assert f"pid {winner.pid} on {os.uname()[1]}, since " in last
    outcome = files.document(job.state / "last_run.json")
    assert (outcome["pid"], outcome["exit"], outcome["caught_up"]) == (winner.pid, 0, True)
    assert files.document(job.state / "last_run.refused.json")["exit"] == 75
    assert job.published("items") == job.source("items")
    assert not is_held(job.state)


@pytest.mark.long("starts several processes with a Spark each")
def test_a_run_after_a_killed_one_begins_at_once(job: Job) -> None:
    """`kill -9` leaves a lease that was just renewed: the next run does not wait for its end, and goes on."""
    run = job.start("run")
    until(run, "wave 2,")
    run.kill()
    run.communicate(timeout=60)
    assert time.time() - (job.state / "lease.json").changed() < 20
    assert files.document(job.state / "last_run.json")["exit"] is None
    killed = f"the last run, pid {run.pid} on {os.uname()[1]}, which began at "
    assert killed in job.call("status", "--offline")[1]
    job.sql(f"DELETE FROM {job.database}.items WHERE id % 9 = 0")
    code, said = job.run()
    assert code == 0, said
    assert not [line for line in said if ": wave 1," in line]
    assert "without a word" not in job.call("status", "--offline")[1]
    assert job.published("items") == job.source("items")


@pytest.mark.long("starts several processes with a Spark each")
@pytest.mark.parametrize(
    ("sent", "code", "begins"),
    [(signal.SIGINT, 130, "lakeingest: interrupted; "), (signal.SIGTERM, 75, "lakeingest: stopped by SIGTERM")],
)
def test_a_run_that_is_stopped_says_what_is_committed(job: Job, sent: signal.Signals, code: int, begins: str) -> None:
    """Its last line has the waves and rows that stay, and that the same command goes on; last_run.json has it too."""
    run = job.start("run")
    until(run, "wave 2,")
    run.send_signal(sent)
    said, _ = run.communicate(timeout=120)
    last = said.splitlines()[-1]
    assert (run.returncode, last.startswith(begins)) == (code, True), said
    assert "the same command goes on from" in last
    answer = re.search(rf"committed so far: {job.database}\.items: (\d+) waves, ([\d,]+) rows", last)
    assert answer, last
    progress = job.progress("items")
    assert progress is not None
    waves, rows = int(answer[1]), int(answer[2].replace(",", ""))
    # the signal may come between a commit and the word of it
    assert progress.wave - waves in {0, 1}
    assert rows == waves * progress.rows // progress.wave
    outcome = files.document(job.state / "last_run.json")
    assert (outcome["exit"], f"lakeingest: {outcome['error']}") == (code, last)
    [table] = outcome["tables"]
    assert (table["table"], table["waves"], table["rows"]) == (f"{job.database}.items", waves, rows)
    assert (table["merged"], table["published"]) == (None, None)
    assert not is_held(job.state)


@pytest.mark.long("whole runs")
def test_a_run_whose_lease_is_taken_stops_before_its_next_commit(pipe: Pipe) -> None:
    """Neither the spool nor staging gets one more commit, and the lease of the other run is left to it."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY, v INT)")
    pipe.sql(f"INSERT INTO items VALUES {', '.join(f'({i}, {i})' for i in range(120))}")
    lease, segments = pipe.state / "lease.json", pipe.state / "spool" / "segments"
    other = {"token": "other", "host": "another", "pid": 1, "boot": None, "started": None, "since": "a moment ago"}
    spooled: list[File] = []

    def take_away(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            lease.put_document(other)
            spooled.extend(everything(segments))
            pipe.sql("UPDATE items SET v = v + 1")

    with pytest.raises(LeaseLost, match="run the same command again"):
        pipe.run(observe=take_away)
    assert len(pipe.seen(WaveCommitted)) == 1
    [staged] = status(pipe.config)
    assert staged.waves == 1
    assert everything(segments) == spooled
    assert files.document(lease) == other
    lease.delete()
    pipe.run()
    pipe.assert_equal()
