"""Companions of a busy table, where runs are killed: its history (`history: scd2`), and its changes as a table.

A program that knows nothing of lakeingest records each state of the source. LAKEINGEST_KILLS sets the number of kills.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest import Pipeline
from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from tests.e2e.job import Job
from tests.e2e.logged_rows import assert_log_is_right, log_of, replayed
from tests.e2e.recorded import Recorder, rows_of
from tests.e2e.test_histories import TABLE, versions_of
from tests.e2e.test_kills import killed, spooling, worked

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "2"))
CHANGES = 18  # transactions before each DDL, and as many after it
STATES = 100  # that are compared, at least


@pytest.fixture(params=[MYSQL, MARIADB_11_4], ids=["MySQL", "MariaDB"])
def job(
    request: pytest.FixtureRequest, tmp_path: Path, server_of: Callable[[Flavor], LocalServer], lake_config: Config
) -> Iterator[Job]:
    """A job with a history of its table on each kind of server, and on Iceberg with its changes as a table."""
    target, server = lake_config.target, server_of(request.param)
    name = f"kills_of_{request.param.program}"  # tests share a lake
    made = Job(tmp_path / "job", server, name, 10, str(target.warehouse), target.format).write()
    path = made.folder / "pipeline.yml"
    companions = {"history": "scd2"} | ({"changelog": {"table": True}} if target.format == "iceberg" else {})
    path.write_text(json.dumps(json.loads(path.read_text()) | companions))
    rows = ", ".join(f"({n}, 'a', {n}, 'row {n}')" for n in range(20))
    made.sql(f"USE {made.database}", TABLE, f"INSERT INTO t VALUES {rows}")
    yield made
    made.sql(f"DROP DATABASE {made.database}")


@pytest.mark.long("starts a process for each kill")
def test_companions_are_exact_whatever_is_killed(
    job: Job, spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """`kill -9` at random moments of runs that also follow DDL, and a re-snapshot; each next run goes on."""
    chance, hit, table = random.Random(4), 0, TableId(job.database, "t")
    assert run(job.config, spark=spark).caught_up
    with job.connection() as connection:
        query(connection, f"USE {job.database}")
        recorder = Recorder(connection, chance)
        recorder.record()

        def change(number: int) -> None:
            for _ in range(CHANGES):
                recorder.change()
            recorder.ddl(f"ALTER TABLE t ADD z{number} INT DEFAULT {number}")
            for _ in range(CHANGES):
                recorder.change()
            if number % 2:
                recorder.ddl("TRUNCATE t")
                recorder.change()

        change(0)
        seconds = worked(job, spooling(job))
        for number in range(1, KILLS + 1):
            change(number)
            hit += killed(job, spooling(job), (number - 1 + chance.random()) * seconds / KILLS)
            if number == 1:
                [done] = Pipeline(job.config, spark).resnapshot(str(table))
                assert done.state == "done"
            assert run(job.config, spark=spark).caught_up
        found = versions_of(spark, job.config, TableId(job.database, "t__history"))
        is_mariadb = job.server.flavor.is_mariadb
        assert len(recorder.states) > STATES
        recorder.assert_same_as(found, 0, whole_seconds=is_mariadb)
        assert not [row for row in found if row["ended_by"] in {"gap", "correction"}]
        if job.lake_format == "iceberg":
            log = log_of(job.config.target, table)
            assert [row["_lakeingest_op"] for row in log].count("RESET") == 1
            for state in chance.sample(recorder.states, STATES):
                assert rows_of(replayed(log, state.place)) == sorted(state.rows), state.place
            assert assert_log_is_right(job.config.target, table) > KILLS
    record_property("kills of companions", f"{job.server.flavor.name} to {job.lake_format}: {hit} of {KILLS} hit")
