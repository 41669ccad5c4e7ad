"""`verify`, `repair` and the rolling proof beside 500 changes a second, DDL and `kill -9` of the run that follows.

No difference is found that nobody put in, and each that was put in is found and repaired. LAKEINGEST_VERIFIES sets the
number of comparisons of all tables, LAKEINGEST_DIFFERENCES that of the differences, and LAKEINGEST_KILL_SECONDS the
time between two kills.
"""

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest.commands.repair import repair
from lakeingest.commands.status import status
from lakeingest.commands.verification import TableVerification
from lakeingest.commands.verify import compare_tables
from lakeingest.config import Config
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LeaseHeld, Retryable
from tests.e2e.job import Job
from tests.faults.beside import beside
from tests.mysql.values import holds_minus_zero

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

VERIFIES = int(os.environ.get("LAKEINGEST_VERIFIES", "3"))
DIFFERENCES = int(os.environ.get("LAKEINGEST_DIFFERENCES", "2"))
KILL_SECONDS = float(os.environ.get("LAKEINGEST_KILL_SECONDS", "30"))
CHANGES = 100  # of a table in a second
TICKS = 10  # in a second
STILL, ROWS = 1_000, 22_500  # the first rows are never changed by the writer
SQUARE = 150  # ROWS is its square
LATER_SECONDS = 300.0  # within which a command works that is told to come again later

# The columns of each table's key, and how their values are made from the number of a row
KEYS = {
    "integers": {"id INT": "{n}"},
    "pairs": {"a INT": "{n} % 7", "id BIGINT UNSIGNED": "18446744073709551615 - {n}"},
    "texts": {"id VARCHAR(20)": "CONCAT(IF({n} % 2, 'k', 'Ä'), {n})"},
    "bytes": {"id VARBINARY(28)": "UNHEX(SHA2({n}, 224))"},
    "moments": {"id DATETIME(3)": "TIMESTAMP('2020-01-01 00:00:00') + INTERVAL {n} SECOND"},
}
MINUS_ZERO = "a negative zero"
MISSING, EXTRA, DIFFERS = "only in the source", "only in the target", "differs"
# What is done to row {n} of the source without a trace in its binlog, and what the comparison then says
SPOILED = {
    "another value": ("UPDATE {t} SET v = CONCAT(v, 'x') WHERE n = {n}", DIFFERS),
    "a missing row": ("INSERT INTO {t} ({names}) SELECT {new}", MISSING),
    "an extra row": ("DELETE FROM {t} WHERE n = {n}", EXTRA),
    MINUS_ZERO: ("UPDATE {t} SET x = -0e0 WHERE n = {n}", DIFFERS),
    "a trailing space": ("UPDATE {t} SET v = CONCAT(v, ' ') WHERE n = {n}", DIFFERS),
    "NULL": ("UPDATE {t} SET e = NULL WHERE n = {n}", DIFFERS),
    "another row's value": ("UPDATE {t} SET v = CONCAT('v', {n} + 1) WHERE n = {n}", DIFFERS),
    "a value after a lift": ("UPDATE {t} SET lifted = 6 WHERE n = {n}", DIFFERS),
}


def row_of(name: str, n: int | str) -> str:
    """The values of row `n` of a table, as SQL."""
    key = ", ".join(made.format(n=n) for made in KEYS[name].values())
    return f"{key}, {n}, CONCAT('v', {n}), 0, ''"


def names_of(name: str) -> str:
    """The names of a table's columns that `row_of` has values of."""
    return ", ".join([column.split()[0] for column in KEYS[name]] + ["n", "v", "x", "e"])


@pytest.fixture
def job(tmp_path: Path, any_server: LocalServer, lake_config: Config) -> Iterator[Job]:
    """Five filled tables with different keys, and a pipeline that proves all it can and reports differences."""
    target = lake_config.target
    name = f"proofs_{target.format}_{any_server.port}"  # servers share the warehouse of the tests
    job = Job(tmp_path / "job", any_server, name, 5_000, str(target.warehouse), target.format).write()
    file = Path(str(job.folder)) / "pipeline.yml"
    document = json.loads(file.read_text())
    proofs = {"every": "10s", "budget": "20%", "on_difference": "report"}
    file.write_text(json.dumps(document | {"quality": {"verify": proofs}}))
    square = f"WITH RECURSIVE s AS (SELECT 0 i UNION ALL SELECT i + 1 FROM s WHERE i < {SQUARE - 1})"
    numbers = f"{square} SELECT p.i * {SQUARE} + q.i + 1 m FROM s p CROSS JOIN s q"
    job.sql(f"USE {job.database}", f"CREATE TABLE numbers (m INT PRIMARY KEY) {numbers}")
    for table, columns_of_key in KEYS.items():
        key = ", ".join(column.split()[0] for column in columns_of_key)
        columns = ", ".join([*columns_of_key, "n INT", "v VARCHAR(40)", "x DOUBLE", "e VARCHAR(9)"])
        job.sql(
            f"USE {job.database}",
            f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({key}), KEY (n))",
            f"INSERT INTO {table} ({names_of(table)}) SELECT {row_of(table, 'm')} FROM numbers",
        )
    job.sql(f"DROP TABLE {job.database}.numbers")
    yield job
    job.sql(f"DROP DATABASE {job.database}")


class Trouble:
    """Who writes, alters tables and kills the run that follows, until it is over."""

    def __init__(self, job: Job, log: Path) -> None:
        self.job, self.log, self.chance = job, log, random.Random(VERIFIES)
        self.changes = self.kills = self.alterations = 0

    def work(self, number: int, is_over: Callable[[], bool]) -> None:
        """One of the two threads."""
        (self._write, self._spoil)[number](is_over)

    def _write(self, is_over: Callable[[], bool]) -> None:
        chance, began, tick = random.Random(1), time.monotonic(), 0
        with self.job.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.job.database}")
            while not is_over():
                for table in KEYS:
                    cursor.execute("BEGIN")
                    for statement in self._changes(table, chance):
                        cursor.execute(statement)
                    cursor.execute("ROLLBACK" if chance.random() < 0.05 else "COMMIT")
                    self.changes += CHANGES // TICKS
                tick += 1
                time.sleep(max(0.0, began + tick / TICKS - time.monotonic()))

    @staticmethod
    def _changes(table: str, chance: random.Random) -> list[str]:
        """About ten changes: five updates, two deletes, two inserts, and a row that moves to another key."""
        some, gone, new, old, moved = (chance.randint(STILL + 1, 2 * ROWS) for _ in range(5))
        key = ", ".join(f"{column.split()[0]} = {made.format(n=moved)}" for column, made in KEYS[table].items())
        rows = ", ".join(f"({row_of(table, new + each)})" for each in range(2))
        return [
            f"UPDATE {table} SET v = CONCAT('w', {new}), x = x + 1 WHERE n BETWEEN {some} AND {some + 4}",
            f"DELETE FROM {table} WHERE n BETWEEN {gone} AND {gone + 1}",
            f"INSERT IGNORE INTO {table} ({names_of(table)}) VALUES {rows}",
            f"UPDATE IGNORE {table} SET {key}, n = {moved} WHERE n = {old}",
        ]

    def _spoil(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            follower = self._follow()
            until = time.monotonic() + self.chance.uniform(0.5, 1.5) * KILL_SECONDS
            while time.monotonic() < until and not is_over():
                time.sleep(0.1)
                if follower.poll() == LeaseHeld.exit_code:  # a repair began first; a scheduler starts the run again
                    follower = self._follow()
            self._alter()
            if self.chance.random() < 0.5:  # in half of the cases the run is killed while it has seen no DDL yet
                time.sleep(self.chance.uniform(0, 3))
            self._kill(follower)

    def _follow(self) -> "subprocess.Popen[str]":
        with self.log.open("ab") as log:
            return self.job.start("run", "--follow", stdout=log)

    def _kill(self, follower: "subprocess.Popen[str]") -> None:
        assert follower.poll() in {None, LeaseHeld.exit_code}, self.log.read_text()[-3_000:]  # only the test ends it
        follower.kill()
        follower.wait(120)
        self.kills += 1

    def _alter(self) -> None:
        """DDL of one of the tables: a column that fills its rows, a wider one, or one less."""
        table, number = self.chance.choice(list(KEYS)), self.alterations
        self.alterations += 1
        [(added,)] = self.job.sql(
            "SELECT MAX(column_name) FROM information_schema.columns WHERE column_name LIKE 'c%'"
            f" AND table_schema = '{self.job.database}' AND table_name = '{table}'"
        )
        changes = [f"ADD COLUMN c{number} INT NOT NULL DEFAULT {number}", f"MODIFY v VARCHAR({41 + number})"]
        changes += [f"DROP COLUMN {added}"] if added else []
        self.job.sql(f"ALTER TABLE {self.job.database}.{table} {changes[number % len(changes)]}")


def compared(job: Job, spark: SparkSession, tables: tuple[str, ...] = ()) -> dict[str, TableVerification]:
    """The tables that could be compared, by their names; the others are for later, nothing worse."""
    try:
        results = compare_tables(job.config, [f"{job.database}.{table}" for table in tables], spark)
    except Retryable:
        return {}
    assert all(isinstance(error, Retryable) for error in results.refused.values()), results.notes
    return {result.table.name: result for result in results}


def until_done(work: Callable[[], TableVerification]) -> TableVerification:
    """What `work` returns, once it is not told to come again later."""
    deadline = time.monotonic() + LATER_SECONDS
    while True:
        try:
            return work()
        except Retryable:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def found(job: Job, spark: SparkSession, table: str) -> TableVerification:
    """The comparison of a table that is compared sooner or later."""

    def once() -> TableVerification:
        results = compared(job, spark, (table,))
        if table not in results:
            raise Retryable(f"{table} could not be compared")
        return results[table]

    return until_done(once)


def first_of_repair(job: Job, name: str, spark: SparkSession) -> TableVerification:
    """The comparison of the one table that is repaired."""
    [result] = repair(job.config, [name], spark)
    return result


def proven(job: Job) -> dict[str, str]:
    """When each table was proven, as `status` says it."""
    known = ((one.table.name, one.proof) for one in status(job.config))
    return {name: proof.proven_at for name, proof in known if proof is not None and proof.proven_at is not None}


def spoil(job: Job, kind: str, n: int) -> tuple[str, str]:
    """Make one difference; the name of its table, and what the comparison says about its row."""
    table = "integers" if kind == "a value after a lift" else random.Random(n).choice(list(KEYS))
    statement, where = SPOILED[kind]
    n = n + 10 * ROWS if where == MISSING else n
    made = statement.format(t=table, n=n, names=names_of(table), new=row_of(table, n))
    job.unlogged(f"USE {job.database}", made)
    return table, where


@pytest.mark.long("minutes of load on each server")
def test_no_difference_is_false_and_none_is_missed(
    job: Job, spark: SparkSession, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """First comparisons alone; then each difference is found by itself, and repaired, and nothing else is."""
    code, said = job.run()
    assert code == 0, said
    log, began = Path(str(tmp_path)) / "follow.log", time.monotonic()
    log.touch()
    equal, later, proofs = 0, 0, set[tuple[str, str]]()
    kinds = [kind for kind in SPOILED if kind != MINUS_ZERO or holds_minus_zero(job.server)]
    job.sql(f"ALTER TABLE {job.database}.integers ADD COLUMN lifted INT NOT NULL DEFAULT 5")
    trouble = Trouble(job, log)
    with beside(trouble.work, 2):
        for _ in range(VERIFIES):
            results = compared(job, spark)
            assert not [result for result in results.values() if result.differs]
            equal, later = equal + len(results), later + len(KEYS) - len(results)
            proofs |= set(proven(job).items())
        assert " differ" not in log.read_text()
        for number in range(DIFFERENCES):
            table, where = spoil(job, kinds[number % len(kinds)], number * 2 + 1)
            [difference] = found(job, spark, table).differences
            assert difference.where == where
            name = f"{job.database}.{table}"
            repaired = until_done(partial(first_of_repair, job, name, spark))
            assert repaired.repaired in {(difference,), ()}  # a repair that was killed may have done it
            assert not found(job, spark, table).differs
            proofs |= set(proven(job).items())
    seconds, rate = time.monotonic() - began, trouble.changes / (time.monotonic() - began)
    assert job.run()[0] == 0
    assert [result.equal for result in compared(job, spark).values()] == [True] * len(KEYS)
    record_property(
        "proofs under load",
        f"{job.server.flavor.name}, {job.lake_format}: {VERIFIES} comparisons of {len(KEYS)} tables ({equal} equal,"
        f" {later} for later), {len(proofs)} proofs of tables by runs, {DIFFERENCES} differences found and repaired,"
        f" {trouble.kills} kills, {trouble.alterations} times DDL, {rate:.0f} changes a second, {seconds:.0f} s",
    )
    assert equal > later
