"""`kill -9` in a run that follows DDL, or reads a table again because of it, while a reader polls the table.

LAKEINGEST_KILLS sets the number of kills for each kind of DDL.
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
from tests.e2e.test_kills import killed, spooling, worked
from tests.faults.beside import beside
from tests.lake.shown import Poller

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "2"))
ROWS, CHUNK_ROWS = 4_000, 500
DDL = {
    "followed": (
        "UPDATE t SET v = v + 1 WHERE id % 3 = 0",
        "ALTER TABLE t ADD a{n} INT NOT NULL DEFAULT {n} FIRST, RENAME COLUMN v TO w",
        "UPDATE t SET a{n} = id WHERE id % 2 = 0",
        "ALTER TABLE t RENAME COLUMN w TO v, ADD b{n} INT",
        "DELETE FROM t WHERE id % 500 = {n}",
    ),
    "read again": (
        "UPDATE t SET v = v + 1 WHERE id % 3 = 0",
        "ALTER TABLE t ADD a{n} INT DEFAULT (v + {n})",
        "INSERT INTO t (id, v) VALUES (-{n}, {n})",
    ),
    "swapped": (
        "CREATE TABLE t_new LIKE t",
        "INSERT INTO t_new SELECT * FROM t WHERE id % 500 <> {n}",
        "RENAME TABLE t TO t_old, t_new TO t",
        "DROP TABLE t_old",
        "UPDATE t SET v = v + {n} WHERE id % 3 = 0",
    ),
}


@pytest.fixture
def job(tmp_path: Path, mysql_server: LocalServer, lake_config: Config, kind: str) -> Iterator[Job]:
    """A job with a table of several chunks, and another one."""
    target, database = lake_config.target, f"kills_in_ddl_{kind.replace(' ', '_')}"
    made = Job(tmp_path / "job", mysql_server, database, CHUNK_ROWS, str(target.warehouse), target.format).write()
    made.sql(
        f"USE {made.database}",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {', '.join(f'({key}, {key})' for key in range(1, ROWS + 1))}",
        "CREATE TABLE o (id INT PRIMARY KEY)",
    )
    yield made
    made.sql(f"DROP DATABASE {made.database}")


def state(job: Job) -> tuple[object, ...]:
    """What a reader may see of the table as it is now in the source: its columns, then its rows."""
    columns = job.sql(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 't'"
        f" AND table_schema = '{job.database}' ORDER BY ordinal_position"
    )
    rows = job.sql(f"SELECT * FROM {job.database}.t ORDER BY id")
    return tuple(name for (name,) in columns), *rows


def altered(job: Job, kind: str, number: int) -> list[tuple[object, ...]]:
    """Run the statements of one round; the states of the table before and after each of them."""
    states = [state(job)]
    for statement in DDL[kind]:
        job.sql(
            f"USE {job.database}", f"INSERT INTO o SELECT COUNT(*) + {number} * 1000 FROM o", statement.format(n=number)
        )
        states += [now] if (now := state(job)) not in states else []
    return states


@pytest.mark.long("starts a process for each kill")
@pytest.mark.parametrize("kind", DDL)
def test_readers_see_states_of_the_source_whatever_is_killed(
    job: Job, kind: str, spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """Its columns with the rows that have them, one state after the other; in the end source and copy are equal."""
    chance, hit = random.Random(kind), 0
    assert run(job.config, spark=spark).caught_up
    altered(job, kind, 1)
    seconds = worked(job, spooling(job))
    for number in range(2, KILLS + 2):
        states = altered(job, kind, number)
        poller = Poller(job.config.target, TableId(job.database, "t"))
        with beside(poller.poll, 1):
            hit += killed(job, spooling(job), (number - 2 + chance.random()) * seconds / KILLS)
            assert run(job.config, spark=spark).caught_up
        poller.look()
        seen = [states.index(one) for one in poller.seen]  # ValueError: a state that the source never had
        assert seen == sorted(seen)
        assert seen[-1] == len(states) - 1
        assert job.published("o") == job.source("o")
    record_property("kills in DDL", f"{job.lake_format}, {kind}: {hit} of {KILLS} hit a run at work")
