"""Repair: what `verify` finds to differ is read again, and nothing else."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.commands.repair import repair
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import Event, Merged
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql]

ROWS = 3_000
KEYS = {
    "integer": ("id INT", "n"),
    "two": ("a INT, b BIGINT UNSIGNED", "n % 7, 18446744073709551615 - n"),
    "collated": ("id VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", "CONCAT(IF(n % 2, 'k', 'Ä'), n)"),
    "bytes": ("id VARBINARY(28)", "UNHEX(SHA2(n, 224))"),
    "moment": ("id DATETIME(3)", "TIMESTAMP('2020-01-01 00:00:00') + INTERVAL n SECOND"),
}


def copied(pipe: Pipe, columns: str, key: str) -> str:
    """A copied table of 3,000 rows; the names of its key columns."""
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    pipe.sql(
        f"CREATE TABLE t ({columns}, n INT, v VARCHAR(20), PRIMARY KEY ({names}))",
        "SET SESSION cte_max_recursion_depth = 10000",
        f"INSERT INTO t WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})"
        f" SELECT {key}, n, 'v' FROM s",
    )
    pipe.run("t")
    return names


@pytest.mark.spark
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.long("reads a table of thousands of rows five times")
def test_fifty_differences_are_found_and_repaired_and_nothing_else(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, kind: str
) -> None:
    """Changed, deleted and new rows, for each kind of key; a second repair has nothing to do."""
    pipe = pipe_on(mysql_server)
    columns, key = KEYS[kind]
    copied(pipe, columns, key)
    chosen = random.Random(1).sample(range(1, ROWS + 1), 50)
    changed, deleted, new = chosen[:20], chosen[20:35], 15
    pipe.unlogged(
        f"UPDATE t SET v = 'changed' WHERE n IN ({', '.join(map(str, changed))})",
        f"DELETE FROM t WHERE n IN ({', '.join(map(str, deleted))})",
        f"INSERT INTO t WITH RECURSIVE s AS (SELECT {ROWS + 1} n UNION ALL SELECT n + 1 FROM s"
        f" WHERE n < {ROWS + new}) SELECT {key}, n, 'new' FROM s",
    )
    events: list[Event] = []
    [result] = repair(pipe.config, [f"{pipe.database}.t"], pipe.spark, events.append)
    assert result.equal
    where = sorted(difference.where for difference in result.repaired)
    wanted = ["differs"] * 20 + ["only in the source"] * new + ["only in the target"] * 15
    assert where == sorted(wanted)
    effects = [(event.inserted, event.updated, event.deleted) for event in events if isinstance(event, Merged)]
    assert effects == [(new, 20, 15)]
    [again] = repair(pipe.config, [f"{pipe.database}.t"], pipe.spark)
    assert (again.equal, again.repaired) == (True, ())


@pytest.mark.long("several processes with a Spark each")
def test_the_command_repairs_and_says_what(mysql_server: LocalServer, tmp_path: Path) -> None:
    """Exit 0 once source = target; without --repair a difference is exit 1, and nothing is changed."""
    job = Job(tmp_path / "job", mysql_server, "repair_job").write()
    job.sql(f"CREATE TABLE {job.database}.t (id INT PRIMARY KEY, v INT)")
    job.sql(f"INSERT INTO {job.database}.t VALUES (1, 1), (2, 2), (3, 3)")
    assert job.run()[0] == 0
    job.unlogged(f"UPDATE {job.database}.t SET v = 9 WHERE id = 2")
    process = job.start("verify")
    process.communicate(timeout=300)
    assert process.returncode == 1
    process = job.start("verify", "--repair", "--json")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    [result] = json.loads(next(line for line in said.splitlines() if line.startswith("[")))
    assert [difference["key"] for difference in result["repaired"]] == [[2]]
    assert job.published("t") == job.source("t")
