"""Random re-snapshots beside writers, readers, and kills of the run that follows.

LAKEINGEST_RESNAPSHOTS sets their number. The run is killed once for each five of them, and at least once.
"""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeingest import Pipeline
from lakeingest.demo.server import LocalServer
from lakeingest.state.signals import SignalFolder
from tests.e2e.job import Job
from tests.faults.beside import beside
from tests.servers.catalog_servers import hudi_on_s3, rest_on_s3

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

RESNAPSHOTS = int(os.environ.get("LAKEINGEST_RESNAPSHOTS", "3"))
KILLS = max(1, RESNAPSHOTS // 5)
ROWS, CHUNK_ROWS = 20_000, 2_000
PAIRS = 12  # that a transaction changes, beside a row that moves and the clock: 27 changes
TRANSACTIONS_PER_SECOND = 20
CLOCK = 0  # the key of a row that counts the transactions
OPEN_MAX = 3  # requests at a time
SECONDS_MAX = 100.0 * max(RESNAPSHOTS, 18)


@pytest.fixture(params=["a folder", "S3"])
def target(request: pytest.FixtureRequest, tmp_path: Path, lake_format: str) -> Iterator[dict[str, Any]]:
    """What `target` of a pipeline.yml says of this place; Iceberg has a REST catalog in S3."""
    if request.param == "a folder":
        yield {}
    else:
        with (hudi_on_s3 if lake_format == "hudi" else rest_on_s3)(tmp_path) as doc:
            yield doc


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_format: str, target: dict[str, Any]) -> Iterator[Job]:
    """A pipeline with a table whose rows have a sum that no transaction changes."""
    folder = tmp_path / "job"
    job = Job(folder, mysql_server, "under_load", CHUNK_ROWS, lake_format=lake_format, target=target).write()
    fill(job)
    yield job
    job.sql(f"DROP DATABASE {job.database}")


def fill(job: Job) -> None:
    """Make the table, whose rows have a sum that no transaction changes."""
    values = ", ".join(f"({number}, 1000, 'row {number}')" for number in range(1, ROWS + 1))
    job.sql(
        f"USE {job.database}",
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT NOT NULL, v VARCHAR(40))",
        f"INSERT INTO t VALUES ({CLOCK}, 0, 'clock'), {values}",
    )


class Load:
    """A writer, and a reader that finds in each commit a table of the source."""

    def __init__(self, job: Job, chance: random.Random) -> None:
        self.job, self.chance = job, chance
        self.changes = self.polls = self.clock = 0

    def write(self, is_over: Callable[[], bool]) -> None:
        """Move amounts between rows, and a row to another key; the sum and the number of rows stay."""
        keys, free = list(range(1, ROWS + 1)), list(range(ROWS + 1, ROWS + 2_000))
        with self.job.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.job.database}")
            began, number = time.monotonic(), 0
            while not is_over():
                number += 1
                chosen = self.chance.sample(range(len(keys)), 2 * PAIRS)
                amounts = [(keys[one], (-1) ** place) for place, one in enumerate(chosen)]
                cases = " ".join(f"WHEN {key} THEN {amount}" for key, amount in amounts)
                moved, to = self.chance.randrange(len(keys)), self.chance.randrange(len(free))
                cursor.execute("BEGIN")
                listed = ", ".join(str(key) for key, _ in amounts)
                cursor.execute(f"UPDATE t SET n = n + CASE id {cases} END WHERE id IN ({listed})")
                cursor.execute(f"UPDATE t SET id = {free[to]} WHERE id = {keys[moved]}")
                cursor.execute(f"UPDATE t SET n = {number} WHERE id = {CLOCK}")
                cursor.execute("COMMIT")
                keys[moved], free[to] = free[to], keys[moved]
                self.changes += 2 * PAIRS + 3
                time.sleep(max(0.0, began + number / TRANSACTIONS_PER_SECOND - time.monotonic()))

    def read(self, is_over: Callable[[], bool]) -> None:
        """No hole, no key twice, no step back in time, no failed query."""
        while not is_over():
            self.look()

    def look(self) -> None:
        """Read the table once."""
        rows = self.job.published("t")
        numbers = {key: n for key, n, _ in rows}
        assert len(rows) == len(numbers) == ROWS + 1
        assert sum(numbers.values()) - numbers[CLOCK] == 1000 * ROWS
        assert numbers[CLOCK] >= self.clock
        self.clock = numbers[CLOCK]
        self.polls += 1

    def work(self, number: int, is_over: Callable[[], bool]) -> None:
        """One of the two."""
        (self.write, self.read)[number](is_over)


class Followed:
    """A run that follows; when it is killed, the next one follows."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.log = (job.folder / "follow.log").open("ab")
        self.process = self._start()

    def kill(self) -> None:
        """`kill -9`, and start the next one."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def end(self) -> int:
        """Its exit code after SIGTERM, which comes once it follows: the last kill may have been a moment ago."""
        deadline = time.monotonic() + 200
        while "caught up with the source" not in self.said and self.process.poll() is None:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.1)
        self.process.terminate()
        return self.process.wait(timeout=200)

    @property
    def said(self) -> str:
        """What the last of them has said."""
        return (self.job.folder / "follow.log").read_bytes()[self._began :].decode()

    def close(self) -> None:
        """No process is left."""
        self.process.kill()
        self.process.wait()
        self.log.close()

    def _start(self) -> "subprocess.Popen[str]":
        self._began = self.log.seek(0, os.SEEK_END)  # in the log
        return self.job.start("run", "--follow", stdout=self.log)


def scope(chance: random.Random) -> dict[str, Any]:
    """A whole table, a range, listed keys or a condition."""
    a, b = sorted(chance.sample(range(1, ROWS + 2_000), 2))
    kinds: list[dict[str, Any]] = [
        {},
        {"from_": a, "to": b},
        {"keys": chance.sample(range(1, ROWS + 2_000), chance.randint(1, 200))},
        {"where": f"n % 50 = {chance.randrange(50)}"},
    ]
    return chance.choice(kinds)


def ask(job: Job, running: Followed, chance: random.Random) -> int:
    """Ask for one re-snapshot after the other, some at a time, and kill the run now and then; how many kills."""
    pipeline, kills, deadline = Pipeline(job.config), 0, time.monotonic() + SECONDS_MAX
    signals = SignalFolder(job.state)
    asked = 0
    while True:
        states = [one.signal.state.value for one in signals.read()]
        assert set(states) <= {"pending", "running", "done"}, list(map(str, signals.read()))
        ended = states.count("done")
        if ended == RESNAPSHOTS:
            return kills
        assert running.process.poll() is None
        assert time.monotonic() < deadline, states
        if asked < RESNAPSHOTS and asked - ended < OPEN_MAX:
            pipeline.resnapshot(f"{job.database}.t", **scope(chance), wait=False)
            asked += 1
        if kills < KILLS and ended * (KILLS + 1) > kills * RESNAPSHOTS:
            time.sleep(chance.random() * 2)
            running.kill()
            kills += 1
        time.sleep(0.1)


@pytest.mark.long("starts several processes with a Spark each")
def test_re_snapshots_beside_writers_readers_and_kills(
    job: Job, record_property: Callable[[str, object], None]
) -> None:
    """A reader never sees a hole, a key twice, a step back or an error; in the end source and copy are equal."""
    chance = random.Random(RESNAPSHOTS)
    assert job.run()[0] == 0
    load, running, began = Load(job, chance), Followed(job), time.monotonic()
    try:
        with beside(load.work, 2):
            kills = ask(job, running, chance)
            seconds = time.monotonic() - began
        assert running.end() == 0, running.said
    finally:
        running.close()
    assert job.run()[0] == 0
    assert job.published("t") == job.source("t")
    assert job.start("verify", stdout=subprocess.DEVNULL).wait(timeout=300) == 0
    done = f"{RESNAPSHOTS} re-snapshots, {kills} kills in {seconds:.0f} s"
    place = job.config.target.warehouse.scheme or "a folder"
    record_property(
        "re-snapshots under load",
        f"{job.lake_format} in {place}: {done}, {load.changes / seconds:.0f} changes a second, {load.polls} polls",
    )
