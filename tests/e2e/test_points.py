"""Points: versions of all copies are kept as of one place in the binlog, and readers never see half of one.

LAKEINGEST_POINTS sets how many are made while coins move.
"""

import os
import random
import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from lakeingest.api import Pipeline
from lakeingest.config.formats import table_name
from lakeingest.config.points import Points
from lakeingest.config.target import History
from lakeingest.core.copies.points import KeptVersion
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UsageError
from lakeingest.lake.formats import open_points
from lakeingest.mysql.connection import connect
from lakeingest.pipeline.events import PointMade, Undelivered
from lakeingest.state.points import read_points, store_point
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while
from tests.e2e.test_monitoring import options
from tests.e2e.test_signals_killed_anywhere import Dead

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

TABLES = ("one", "two", "quiet")
ROWS, COINS = 20, 100
POINTS = int(os.environ.get("LAKEINGEST_POINTS", "10"))


@pytest.fixture
def bank(any_pipe: Pipe) -> Pipe:
    """Two tables between which coins move, so that their sum never changes, and a table without changes."""
    for table in TABLES:
        values = ", ".join(f"({n}, {COINS})" for n in range(ROWS))
        any_pipe.sql(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, coins INT NOT NULL)", f"INSERT INTO {table} VALUES {values}"
        )
    any_pipe.run()
    return any_pipe


def move(pipe: Pipe, chance: random.Random) -> None:
    """Coins move from a row of one table to a row of the other, in a transaction."""
    here, there = chance.sample(TABLES[:2], 2)
    pipe.sql(
        "BEGIN",
        f"UPDATE {here} SET coins = coins - 7 WHERE id = {chance.randrange(ROWS)}",
        f"UPDATE {there} SET coins = coins + 7 WHERE id = {chance.randrange(ROWS)}",
        "COMMIT",
    )


def opened(pipe: Pipe) -> Pipeline:
    """The pipeline as users of Python open it."""
    return Pipeline(pipe.config, pipe.spark)


def as_of(pipe: Pipe, name: str) -> dict[str, dict[int, int]]:
    """What Spark reads of each table at the point, in the way that `points show` names."""
    found, rows = opened(pipe).point(name).point.tables, dict[str, dict[int, int]]()
    for table, kept in found.items():
        rows[table.name] = {row.id: row.coins for row in read(pipe, table, kept).collect()}
    return rows


def read(pipe: Pipe, table: TableId, kept: KeptVersion) -> DataFrame:
    """The rows of a kept version, as an engine reads them."""
    name = table_name(pipe.config.target, table)
    if pipe.config.target.format == "iceberg":
        return pipe.spark.sql(f"SELECT * FROM {name} VERSION AS OF '{kept.read_as}'")
    return pipe.spark.read.format("hudi").option("as.of.instant", kept.read_as).load(name)


def in_source(pipe: Pipe) -> dict[str, dict[int, int]]:
    """What the source has now."""
    rows = dict[str, dict[int, int]]()
    for table in TABLES:
        with pipe.connection.cursor() as cursor:
            cursor.execute(f"SELECT id, coins FROM {table}")
            rows[table] = {int(key): int(coins) for key, coins in cursor.fetchall()}
    return rows


@pytest.mark.long("one of the servers in turn", turn="any_server")
@pytest.mark.long("publishes of Hudi; another test has points of both formats", only=("hudi",))
def test_a_point_keeps_all_tables_as_they_were(bank: Pipe) -> None:
    """Longer than the history of commits, until it is dropped; a run of its own first brings the tables up to date."""
    history = History.model_validate({"keep": "0s", "least": 1})
    options(bank, target=bank.config.target.model_copy(update={"history": history}))
    chance = random.Random(1)
    for _ in range(5):
        move(bank, chance)
    then = in_source(bank)
    opened(bank).create_point("release-1")
    assert as_of(bank, "release-1") == then
    for _ in range(4):
        move(bank, chance)
        bank.run()
    assert as_of(bank, "release-1") == then != in_source(bank)
    [point] = opened(bank).points()
    assert (point.name, len(point.tables), point.left_out) == ("release-1", 3, {})
    with pytest.raises(UsageError, match="there is a point release-1 already"):
        opened(bank).create_point("release-1")
    opened(bank).create_point("release-2")  # on Hudi, `quiet` has one savepoint for both
    opened(bank).drop_point("release-1")
    assert as_of(bank, "release-2") == in_source(bank)
    assert [point.name for point in opened(bank).points()] == ["release-2"]
    for name in ("release-1", "other"):
        with pytest.raises(UsageError, match="there is no point"):
            opened(bank).drop_point(name)
    with pytest.raises(UsageError, match="there is no point"):
        opened(bank).point("release-1")
    move(bank, chance)
    bank.run()
    bank.assert_equal()


@pytest.mark.long("one server and format in turn", turn=("any_server", "lake_format"))
def test_a_stopped_or_paused_table_is_left_out_by_name(bank: Pipe) -> None:
    """The others have their point."""
    opened(bank).pause(f"{bank.database}.two")
    move(bank, random.Random(2))
    opened(bank).create_point("without-two")
    shown = opened(bank).point("without-two")
    assert {table.name for table in shown.point.tables} == {"one", "quiet"}
    assert f"{bank.database}.two is left out: it is paused" in shown.note


@pytest.mark.long("one of the servers in turn", turn="any_server")
@pytest.mark.long("another format of what runs on Hudi", only=("iceberg",))
def test_runs_make_points_by_themselves_and_drop_old_ones(bank: Pipe) -> None:
    """As often as `points.every` says."""
    options(bank, points=Points.model_validate({"every": "1m", "keep": "0s"}))
    bank.run()
    [first] = opened(bank).points()
    assert first.is_by_itself
    bank.run()
    assert [point.name for point in opened(bank).points()] == [first.name]  # a minute has not passed
    stored = first.to_json() | {"made_at": (first.made_at - timedelta(minutes=2)).isoformat()}
    store_point(bank.state, type(first).from_json(stored))
    move(bank, random.Random(3))
    time.sleep(1.1)  # the name of a point has its second
    bank.run()
    [second] = opened(bank).points()
    assert second.name != first.name
    assert as_of(bank, second.name) == in_source(bank)
    assert len(bank.seen(PointMade)) == 2
    assert not bank.seen(Undelivered)


@pytest.mark.parametrize("step", ["keep", "complete"])
@pytest.mark.long("one server, format and step in turn", turn=("any_server", "lake_format", "step"))
def test_a_point_that_a_dead_run_left_is_made_anew(bank: Pipe, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers do not see it before."""
    kind = type(open_points(bank.config))
    keep: Callable[..., KeptVersion] = kind.keep
    made = list[TableId]()

    def dies(lake: object, table: TableId, version: int, name: str) -> KeptVersion:
        if step == "keep" and made:
            raise Dead
        made.append(table)
        kept = keep(lake, table, version, name)
        if step == "complete" and len(made) == len(TABLES):
            raise Dead
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(kind, "keep", dies)
        with pytest.raises(Dead):
            opened(bank).create_point("nightly")
    assert not opened(bank).points()
    assert [point.is_complete for point in read_points(bank.state)] == [False]
    move(bank, random.Random(4))
    bank.run()  # the signal is still open
    assert as_of(bank, "nightly") == in_source(bank)


@pytest.mark.long("follows on each server")
def test_no_coin_is_lost_at_any_point(bank: Pipe) -> None:
    """While coins move all the time: at each point readers find all of them, and the rows are those of one moment.

    They are all rows of all tables as the source had them after one of its transactions, and points go on in time.
    """
    ended, states = threading.Event(), [in_source(bank)]

    def write() -> None:
        chance = random.Random(5)
        with connect(bank.administrator) as connection:
            writer = Pipe(bank.config, bank.database, connection, bank.spark, [])
            writer.sql("SET autocommit = 1", f"USE {bank.database}")
            while not ended.is_set():
                move(writer, chance)
                states.append(in_source(writer))  # nobody else writes

    def work() -> None:
        writing = threading.Thread(target=write)
        writing.start()
        try:
            for number in range(POINTS):
                opened(bank).create_point(f"point-{number}")
        finally:
            ended.set()
            writing.join()

    follow_while(bank, work)
    assert len(states) > POINTS
    last = 0
    for number in range(POINTS):
        rows = as_of(bank, f"point-{number}")
        assert sum(sum(rows[table].values()) for table in TABLES[:2]) == 2 * ROWS * COINS
        assert rows in states[last:]
        last = states.index(rows, last)


@pytest.mark.long("a process for each command")
@pytest.mark.parametrize("page", ["points.md", "wait-and-look-back.md"])
def test_the_commands_of_the_pages_run(tmp_path: Path, mysql_server: LocalServer, lake_format: str, page: str) -> None:
    """As they stand there, with the names of this database and its GTIDs."""
    job = Job(tmp_path / "job", mysql_server, "points", lake_format=lake_format).write()
    job.sql(f"CREATE TABLE {job.database}.orders (id INT PRIMARY KEY)", f"INSERT INTO {job.database}.orders VALUES (1)")
    assert job.run()[0] == 0
    [(executed,)] = job.sql("SELECT @@GLOBAL.gtid_executed")
    text = (Path(__file__).parents[2] / "docs" / "howto" / page).read_text()
    lines = re.findall(r"^lakeingest (.+?)(?: +#.*)?$", text, re.MULTILINE)
    assert len(lines) > 3
    for line in lines:
        arguments = line.replace("shop.orders", f"{job.database}.orders").split()
        if "--gtid" in arguments:
            if not executed:
                continue
            arguments[arguments.index("--gtid") + 1] = str(executed).replace("\n", "")
        code, said = job.call(*arguments)
        assert code == 0, (line, said)
    job.sql(f"DROP DATABASE {job.database}")
