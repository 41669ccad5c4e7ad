"""`kill -9` in a run that copies a table with partitions, or moves its rows, while a reader polls the table.

LAKEINGEST_KILLS sets the number of kills.
"""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job
from tests.e2e.test_kills import killed, opened, spooling, worked
from tests.faults.beside import beside
from tests.lake.shown import Poller

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "2"))
ROWS, CHUNK_ROWS = 3_000, 300
DAY = "DATE_ADD('1969-12-25', INTERVAL (id + {n}) % 40 DAY)"
MOVES = (  # each is a transaction: there, there and back, to and from NULL, over another key, and back after a DELETE
    (f"UPDATE t SET d = {DAY}, v = v + 1 WHERE id % 3 = 0",),
    (
        "UPDATE t SET d = DATE_ADD(d, INTERVAL 9 DAY) WHERE id % 7 = {n} % 7",
        "UPDATE t SET d = DATE_SUB(d, INTERVAL 9 DAY) WHERE id % 14 = {n} % 14",
        f"UPDATE t SET d = IF(d IS NULL, {DAY}, NULL) WHERE id % 11 = {{n}} % 11",
    ),
    ("UPDATE t SET id = id + 100000, d = '2026-01-01' WHERE id % 500 = {n}",),
    (
        "DELETE FROM t WHERE id BETWEEN {n} * 20 AND {n} * 20 + 30",
        f"INSERT INTO t SELECT id + 50000, {DAY}, v FROM t WHERE id BETWEEN 100 AND 110",
        "UPDATE t SET d = NULL WHERE id BETWEEN 50000 AND 50200",
        f"UPDATE t SET id = id - 50200 + 400 * {{n}} * 1000, d = {DAY} WHERE id BETWEEN 50000 AND 50200",
    ),
)


@pytest.fixture
def job(tmp_path: Path, any_server: LocalServer, lake_config: Config) -> Iterator[Job]:
    """A job with a table of several chunks, each with rows of many partitions."""
    target = lake_config.target
    database = f"partitions_killed_{target.format}"
    options = {"partition_by": ["day(d)"]}
    made = Job(
        tmp_path / "job", any_server, database, CHUNK_ROWS, str(target.warehouse), target.format, options=options
    ).write()
    made.sql(
        f"USE {made.database}",
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({key}, NULL, {key})' for key in range(1, ROWS + 1))}",
        f"UPDATE t SET d = {DAY.format(n=0)} WHERE id % 11 > 0",
    )
    yield made
    made.sql(f"DROP DATABASE {made.database}")


def state(job: Job) -> tuple[object, ...]:
    """What a reader may see of the table as it is now in the source: its columns, then its rows."""
    return ("id", "d", "v"), *job.sql(f"SELECT * FROM {job.database}.t ORDER BY id")


def moved(job: Job, number: int) -> list[tuple[object, ...]]:
    """Run the transactions of one round; the states of the table before and after each of them."""
    states = [state(job)]
    for statements in MOVES:
        job.sql(f"USE {job.database}", "BEGIN", *(one.format(n=number) for one in statements), "COMMIT")
        states += [now] if (now := state(job)) not in states else []
    return states


@pytest.mark.long("starts a process for each kill")
def test_readers_see_each_row_in_one_partition_whatever_is_killed(
    job: Job, spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """The rows of the source after one of its transactions, one state after the other."""
    chance, hit = random.Random(48), 0
    hit += killed(job, opened(job), 1.5 * chance.random())
    moved(job, 1)
    assert run(job.config, spark=spark).caught_up
    moved(job, 2)
    seconds = worked(job, spooling(job))
    for number in range(3, KILLS + 3):
        states = moved(job, number)
        poller = Poller(job.config.target, TableId(job.database, "t"))
        with beside(poller.poll, 1):
            hit += killed(job, spooling(job), (number - 3 + chance.random()) * seconds / KILLS)
            assert run(job.config, spark=spark).caught_up
        poller.look()
        seen = [states.index(one) for one in poller.seen]  # ValueError: a state that the source never had
        assert seen == sorted(seen)
        assert seen[-1] == len(states) - 1
        assert job.published("t") == job.source("t")
    record_property("kills beside moves", f"{job.server.flavor.name} to {job.lake_format}: {hit} hit a run at work")
