"""A reader polls a table while runs of it are killed: it sees tables of the source only, one after the other.

LAKEINGEST_KILLS sets the number of kills: a quarter in bootstraps, a quarter in catch-ups, the rest in publishes.
"""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.table_form import PROPERTIES
from lakeingest.lake.marks import BUILDING
from tests.e2e.job import Job
from tests.faults.beside import beside

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.formats,
    pytest.mark.mysql,
    pytest.mark.spark,
]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "4"))
BOOTSTRAP, CATCH_UP, PUBLISH = "a bootstrap", "a catch-up", "a publish"
SECONDS = {BOOTSTRAP: 12.0, CATCH_UP: 8.0, PUBLISH: 3.0}  # within which a run is killed, from its first sign of work
SOONER = 2  # the power of a random part of them: most publishes take far less
AMOUNT = 1000
ROWS, CHUNK_ROWS = 6_000, 300
CLOCK = "clock"


def read(job: Job) -> list[tuple[Any, ...]] | None:
    """The rows that a reader finds; None where there is no table."""
    if job.lake_format == "hudi" and not (folder_of(job) / PROPERTIES).exists():
        return None
    try:
        return job.published("t")
    except NoSuchTableError:
        return None


def folder_of(job: Job) -> File:
    """Where readers find a Hudi table."""
    target = job.config.target
    return files.at(target.folder(TableId(job.database, "t")), target.storage)


class Watched:
    """A job whose transactions leave the sum and the number of rows as they are, its writer and its reader."""

    def __init__(self, job: Job, chance: random.Random) -> None:
        self.job, self.chance = job, chance
        self.polls = 0

    def work(self, number: int, is_over: Callable[[], bool]) -> None:
        """One of the two."""
        (self._write, self._poll)[number](is_over)

    def _write(self, is_over: Callable[[], bool]) -> None:
        with self.job.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.job.database}")
            [(ticks,)] = self.job.sql(f"SELECT n FROM {self.job.database}.t WHERE id = '{CLOCK}'")
            keys = sorted({key for (key,) in self.job.sql(f"SELECT id FROM {self.job.database}.t")} - {CLOCK})
            while not is_over():
                ticks += 1
                (giver, taker), moved = self.chance.sample(keys, 2), self.chance.randrange(len(keys))
                cursor.execute("BEGIN")
                cursor.execute(f"UPDATE t SET n = n + IF(id = '{giver}', -1, 1) WHERE id IN ('{giver}', '{taker}')")
                new = keys[moved].swapcase()
                cursor.execute(f"UPDATE t SET id = '{new}' WHERE id = '{keys[moved]}'")
                cursor.execute(f"UPDATE t SET n = {ticks} WHERE id = '{CLOCK}'")
                cursor.execute("COMMIT")
                keys[moved] = new
                time.sleep(0.02)

    def _poll(self, is_over: Callable[[], bool]) -> None:
        """No hole, no key twice, no step back in time, no failed query, and never no table after there was one."""
        clock = -1
        while not is_over():
            rows = read(self.job)
            assert rows is not None or clock < 0
            if rows is not None:
                numbers = dict(rows)
                assert len(rows) == len(numbers) == ROWS + 1
                assert sum(numbers.values()) - numbers[CLOCK] == AMOUNT * ROWS
                assert numbers[CLOCK] >= clock
                clock = numbers[CLOCK]
                self.polls += 1
            time.sleep(0.1)


@pytest.fixture
def job_in(tmp_path: Path, mysql_server: LocalServer, lake_config: Config) -> Iterator[Callable[[str], Job]]:
    """Call it with a name: a job with a table whose keys only the server can order."""
    made: list[Job] = []

    def make(name: str) -> Job:
        target = lake_config.target
        database, warehouse = f"readers_{target.format}_{name}", str(target.warehouse)
        job = Job(tmp_path / name, mysql_server, database, CHUNK_ROWS, warehouse, target.format).write()
        made.append(job)
        rows = ", ".join(f"('Key {number}', {AMOUNT})" for number in range(ROWS))
        table = "CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_0900_as_cs PRIMARY KEY, n BIGINT NOT NULL)"
        job.sql(f"USE {database}", table, f"INSERT INTO t VALUES ('{CLOCK}', 0), {rows}")
        return job

    yield make
    for job in made:
        job.sql(f"DROP DATABASE {job.database}")


def signs(job: Job, phase: str) -> set[str]:
    """The files of which a new one is a sign that the phase has begun."""
    folder, spool = folder_of(job), job.state / "spool"
    if phase == PUBLISH and job.lake_format == "hudi":  # of the commit, in the folder or in that which becomes it
        timelines = [one / ".hoodie" / "timeline" for one in (folder, folder.parent / (folder.name + BUILDING))]
        return {str(file) for timeline in timelines for file in timeline.listed("*.requested")}
    return {str(file) for file in (*(spool / "data").listed("*"), *spool.listed("opened.json"))}


def killed(job: Job, phase: str, after: float) -> bool:
    """Kill a run this long after its phase began; whether it had not ended."""
    before, process = signs(job, phase), job.start("run", stdout=subprocess.DEVNULL)
    while process.poll() is None and not signs(job, phase) - before:
        time.sleep(0.02)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() < 0


@pytest.mark.long("starts a process with a Spark for each kill")
def test_a_reader_sees_tables_of_the_source_whatever_is_killed(
    job_in: Callable[[str], Job], spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """Not one before the first exact point, nothing half, no step back; in the end source and copy are equal."""
    chance = random.Random(KILLS)
    counts, polls, began = dict.fromkeys(SECONDS, 0), 0, time.monotonic()
    for number in range(-(-KILLS // 4)):
        job = job_in(f"k{number}")
        watched = Watched(job, chance)
        for phases in ((BOOTSTRAP, PUBLISH), (CATCH_UP, PUBLISH)):
            with beside(watched.work, 2):
                for phase in phases:
                    counts[phase] += killed(job, phase, chance.random() ** SOONER * SECONDS[phase])
                assert run(job.config, spark=spark).caught_up
        assert run(job.config, spark=spark).caught_up
        assert read(job) == job.source("t")
        polls += watched.polls
    said = ", ".join(f"{count} in {phase}" for phase, count in counts.items())
    took = f"{polls} polls in {time.monotonic() - began:.0f} s, 0 differences"
    record_property("readers beside kills", f"{job.lake_format}: killed {said}; {took}")
