"""Histories of tables (`history: scd2`), where runs are killed."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from tests.e2e.job import Job
from tests.e2e.recorded import Recorder
from tests.e2e.test_histories import TABLE, versions_of
from tests.e2e.test_kills import killed, spooling, worked

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "2"))


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_config: Config) -> Iterator[Job]:
    """A job with a history of its table."""
    target = lake_config.target
    made = Job(tmp_path / "job", mysql_server, "kills_of_histories", 10, str(target.warehouse), target.format).write()
    path = made.folder / "pipeline.yml"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"history": "scd2"}))
    rows = ", ".join(f"({n}, 'a', {n}, 'row {n}')" for n in range(20))
    made.sql(f"USE {made.database}", TABLE, f"INSERT INTO t VALUES {rows}")
    yield made
    made.sql(f"DROP DATABASE {made.database}")


@pytest.mark.long("starts a process for each kill")
def test_a_history_is_exact_whatever_is_killed(
    job: Job, spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """`kill -9` at random moments of runs that also follow DDL; each next run goes on."""
    chance, hit = random.Random(4), 0
    assert run(job.config, spark=spark).caught_up
    with job.connection() as connection:
        query(connection, f"USE {job.database}")
        recorder = Recorder(connection, chance)
        recorder.record()

        def change(number: int) -> None:
            for _ in range(5):
                recorder.change()
            recorder.ddl(f"ALTER TABLE t ADD z{number} INT DEFAULT {number}")
            for _ in range(5):
                recorder.change()
            if number % 2:
                recorder.ddl("TRUNCATE t")
                recorder.change()

        change(0)
        seconds = worked(job, spooling(job))
        for number in range(1, KILLS + 1):
            change(number)
            hit += killed(job, spooling(job), (number - 1 + chance.random()) * seconds / KILLS)
            assert run(job.config, spark=spark).caught_up
        found = versions_of(spark, job.config, TableId(job.database, "t__history"))
        recorder.assert_same_as(found, 0)
        assert not [row for row in found if row["ended_by"] == "gap"]
    record_property("kills of histories", f"{job.lake_format}: {hit} of {KILLS} hit a run at work")
