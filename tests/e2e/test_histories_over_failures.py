"""Histories of tables (`history: scd2`), where runs are killed, and where another server takes over."""

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe
from tests.e2e.recorded import Recorder
from tests.e2e.test_histories import TABLE, begun, versions, versions_of
from tests.e2e.test_kills import killed, spooling, worked
from tests.servers.replication import Pair, replicating

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


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source, and its replica that will be promoted."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.mark.long("publishes of both formats")
def test_after_a_failover_all_versions_begin_anew(
    pair: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """As of each position before it, and from the first publish on the new server on, the history is the table."""
    pipe = pipe_on(mysql_server_with(server_id="73"), chunk_rows=10)
    pipe.config = pipe.config.model_copy(update={"source": pair.source.model_copy(update={"replica": None})})
    recorder = begun(pipe, 9)
    recorder.change()
    pipe.run()
    known = len(recorder.states)
    pair.level()
    source = pair.promote()
    query(pair.replica, f"USE {pipe.database}")
    over = replace(pipe, config=pipe.config.model_copy(update={"source": source}), connection=pair.replica, events=[])
    recorder.connection, recorder.epoch = pair.replica, 2
    for _ in range(3):
        recorder.change()
    over.run()
    shown = len(recorder.states) - 1  # what the first run on the new server has published
    for _ in range(3):
        recorder.change()
    over.run()
    found = versions(over)
    recorder.assert_same_as(found, shown)
    assert {row["ended_by"] for row in found} >= {"gap"}
    del recorder.states[known:]
    for state in recorder.states:
        assert recorder.as_of_position(found, state.place, state.columns) == sorted(state.rows)
