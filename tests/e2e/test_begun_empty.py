"""`tables.startup: latest`, a position or GTIDs: copies begin empty, and have exactly the rows that changed since."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.commands.run import run
from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.commands.verify import compare_tables
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, OperatorNeeded, SchemaChanged
from lakeingest.lake.formats import open_target
from lakeingest.mysql.connection import written_position
from lakeingest.pipeline.events import WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_copied_once import fill, in_source, published, starting
from tests.e2e.test_follow import follow_while, shown, soon
from tests.e2e.test_signals_killed_anywhere import Dead, mortal

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

KINDS = ("GTIDs", "no GTIDs", "MariaDB")
ON_EACH = pytest.mark.parametrize("shop", KINDS, indirect=True)
# Each key that is named here changes: rows are updated, moved, deleted, made, and made and deleted again
CHANGES = (
    "UPDATE {t} SET v = v + 100 WHERE id IN (3, 4)",
    "UPDATE {t} SET id = 50 WHERE id = 5",
    "DELETE FROM {t} WHERE id IN (6, 7)",
    "INSERT INTO {t} VALUES (60, 1), (61, 1)",
    "DELETE FROM {t} WHERE id = 61",
    "REPLACE INTO {t} VALUES (8, 88), (6, 66)",
    "UPDATE {t} SET v = v WHERE id = 9",
)
CHANGED = {3, 4, 5, 50, 6, 7, 60, 61, 8}


@pytest.fixture
def shop(request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on a server of the kind that the test names; otherwise it has GTIDs."""
    kind = getattr(request, "param", "GTIDs")
    settings = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if kind == "no GTIDs" else {}
    return pipe_on(server_of(MARIADB_11_4 if kind == "MariaDB" else MYSQL, **settings), chunk_rows=10)


def change(pipe: Pipe, table: str = "t") -> None:
    """The changes, each a transaction."""
    pipe.sql(*(statement.format(t=table) for statement in CHANGES))


def expected(pipe: Pipe, keys: Iterable[int], table: str = "t") -> list[tuple[object, ...]]:
    """The rows that the copy must have: those of these keys, as the source has them now."""
    wanted = set(keys)
    return [row for row in in_source(pipe, table) if row[0] in wanted]


def start_at(pipe: Pipe, **place: Any) -> None:
    """Let new copies begin at this place."""
    tables = pipe.config.tables.model_copy(update={"startup": place})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


def clock_of(pipe: Pipe) -> str:
    """The time of the source, in UTC."""
    with pipe.connection.cursor() as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        [moment] = cursor.fetchone() or ()
    return str(moment)


def now(pipe: Pipe) -> str:
    """The written position."""
    return str(written_position(pipe.connection))


@ON_EACH
@pytest.mark.formats
@pytest.mark.long("other servers", only=("hudi", "no GTIDs", "MariaDB"))
def test_a_copy_from_now_on_has_the_rows_that_change(shop: Pipe) -> None:
    """In the first run and in later ones; `status`, `plan` and `verify` name it, and a re-snapshot completes it."""
    starting(shop, "latest")
    fill(shop, "t")
    assert [one.state for one in plan(shop.config)] == ["begins empty"]
    shop.run()
    assert shop.rows("t") == []
    assert not shop.seen(WaveCommitted)
    change(shop)
    fill(shop, "later", 5)
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED)
    assert shop.rows("later") == []
    shop.sql(
        "UPDATE later SET v = 9 WHERE id = 2", "DELETE FROM t WHERE id IN (3, 10)", "UPDATE t SET v = 0 WHERE id = 11"
    )
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED | {11})
    assert shop.rows("later") == [(2, 9)]
    assert all(one.began_empty is not None for one in status(shop.config))
    assert "began empty at" in status(shop.config).note
    results = compare_tables(shop.config, (), shop.spark)
    assert all("began empty at" in one.result and not one.differs for one in results)
    results.raise_refused()
    assert not results.equal

    ask(shop.config, "resnapshot", [f"{shop.database}.t"], scope=WHOLE, spark=shop.spark).raise_failure()
    assert shop.rows("t") == in_source(shop, "t")
    shop.assert_equal("t")
    assert {one.table.name: one.began_empty is None for one in status(shop.config)} == {"t": True, "later": False}


@ON_EACH
@pytest.mark.formats
@pytest.mark.long("tests/core/test_startup has the decision, and the test above has such a copy in every run")
def test_a_copy_from_a_position_has_the_rows_that_changed_since(shop: Pipe) -> None:
    """Changes from before it are not in the copy, those after it are, over several binlog files."""
    for table in ("s", "t"):
        fill(shop, table)
    shop.sql("UPDATE t SET v = -1 WHERE id = 20")
    place = now(shop)
    change(shop)
    shop.sql("FLUSH BINARY LOGS", "UPDATE t SET v = 7 WHERE id = 12", "UPDATE s SET v = 9 WHERE id = 1")
    start_at(shop, position=place)
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED | {12})
    assert shop.rows("s") == [(1, 9)]
    shop.sql("UPDATE t SET v = 8 WHERE id = 13")
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED | {12, 13})
    assert {one.began_empty for one in status(shop.config)} == {place}


@ON_EACH
@pytest.mark.formats
@pytest.mark.long("the same from a place that is looked for; two other beginnings are tried in every run")
def test_a_copy_from_a_time_has_the_rows_that_changed_since(shop: Pipe) -> None:
    """By the clock of the source, wherever its binlog files end; a time that it cannot answer is refused by name."""
    for table in ("s", "t"):
        fill(shop, table)
    shop.sql("UPDATE t SET v = -1 WHERE id = 20", "FLUSH BINARY LOGS", "UPDATE s SET v = -1 WHERE id = 2")
    time.sleep(1.1)  # MariaDB stores whole seconds
    moment = clock_of(shop)
    time.sleep(1.1)
    change(shop)
    shop.sql("FLUSH BINARY LOGS", "UPDATE t SET v = 7 WHERE id = 12", "UPDATE s SET v = 9 WHERE id = 1")
    start_at(shop, time=f"{moment}Z")
    assert not check(shop.config).problems
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED | {12})
    assert shop.rows("s") == [(1, 9)]
    shop.sql("UPDATE t SET v = 8 WHERE id = 13", "CREATE TABLE u LIKE t")
    time.sleep(1.1)
    start_at(shop, time=f"{clock_of(shop)}Z")  # nothing came after it
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED | {12, 13})
    assert shop.rows("u") == []
    shop.sql("CREATE TABLE w LIKE t")
    for moment, error in (("2200-01-01", OperatorNeeded), ("2001-01-01", BinlogGone)):
        start_at(shop, time=moment)
        [found] = check(shop.config).problems
        assert found.name == "place where copies begin"
        with pytest.raises(error, match=r"is in the future|which is newer than"):
            shop.run("w")


@pytest.mark.long("whole runs")
def test_a_copy_from_a_gtid_set_has_the_rows_that_changed_since(shop: Pipe) -> None:
    """A table that is included later begins at the same place, beside one that has gone on meanwhile."""
    fill(shop, "t")
    with shop.connection.cursor() as cursor:
        cursor.execute("SELECT @@global.gtid_executed")
        [gtids] = cursor.fetchone() or ()
    change(shop)
    start_at(shop, gtid=gtids)
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED)
    assert shop.run().stopped == ()
    start_at(shop, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3")
    shop.sql("CREATE TABLE u LIKE t")
    with pytest.raises(OperatorNeeded, match="has not executed") as raised:
        shop.run()
    assert [one.table.name for one in raised.value.result.stopped] == ["u"]


@ON_EACH
@pytest.mark.long("runs that are refused, on each server")
def test_a_place_that_is_not_there_is_refused_by_name(shop: Pipe) -> None:
    """Within a transaction, after the end, purged; or DDL of the table came after it: nobody knows its definition."""
    fill(shop, "t")
    place = now(shop)
    change(shop)
    file, _, byte = place.rpartition(":")
    for wrong in (f"{file}:{int(byte) + 5}", f"{file}:99999999"):
        start_at(shop, position=wrong)
        [found] = check(shop.config).problems
        assert found.name == "place where copies begin"
        with pytest.raises(OperatorNeeded, match="no transaction of the source's binlog ends at"):
            shop.run()
    assert open_target(shop.config).inspect(TableId(shop.database, "t")) is None
    shop.sql("ALTER TABLE t ADD w INT")
    start_at(shop, position=place)
    with pytest.raises(SchemaChanged, match="and DDL changed it after that"):
        shop.run()
    start_at(shop, position=now(shop))
    shop.sql("UPDATE t SET w = 1 WHERE id < 3")
    shop.run()
    assert shop.rows("t") == expected(shop, {0, 1, 2})
    shop.sql("CREATE TABLE u (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    shop.purge()
    with pytest.raises(BinlogGone, match="has purged"):
        shop.run("u")


@pytest.mark.long("whole runs")
def test_ddl_is_followed_and_what_cannot_be_followed_waits_for_a_person(shop: Pipe) -> None:
    """All rows would have to be read, which the user did not want; a re-snapshot reads them."""
    starting(shop, "latest")
    fill(shop, "t")
    shop.run()
    change(shop)
    shop.sql("ALTER TABLE t ADD w INT DEFAULT 5", "UPDATE t SET w = 6 WHERE id = 15")
    shop.run()
    assert shop.rows("t") == expected(shop, CHANGED | {15})
    shop.sql("ALTER TABLE t MODIFY v TINYINT UNSIGNED NOT NULL DEFAULT 1", "UPDATE t SET v = 3 WHERE id = 16")
    with pytest.raises(SchemaChanged):
        shop.run()
    before = shop.rows("t")
    assert not shop.seen(WaveCommitted)
    ask(shop.config, "resnapshot", [f"{shop.database}.t"], scope=WHOLE, spark=shop.spark).raise_failure()
    assert before != shop.rows("t") == in_source(shop, "t")
    shop.assert_equal("t")


@pytest.mark.formats
@pytest.mark.long("whole runs")
def test_a_row_that_is_deleted_before_the_copy_has_it_is_marked(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Where deleted rows stay: with the values that the binlog has of it."""
    pipe = pipe_on(mysql_server, deletes="soft")
    starting(pipe, "latest")
    fill(pipe, "t", 5)
    pipe.run()
    pipe.sql("DELETE FROM t WHERE id = 3", "UPDATE t SET v = 9 WHERE id = 2", "DELETE FROM t WHERE id = 2")
    pipe.sql("UPDATE t SET v = 8 WHERE id = 1")
    pipe.run()
    assert pipe.rows("t") == [(1, 8, False), (2, 9, True), (3, 3, True)]


@pytest.mark.long("follows a source")
@pytest.mark.parametrize("shop", ["GTIDs", "MariaDB"], indirect=True)
def test_a_run_that_follows_takes_new_tables_from_then_on(shop: Pipe) -> None:
    """The rows that a table has when the run finds it are not copied; those that change later are."""
    starting(shop, "latest")
    fill(shop, "t")
    shop.run()

    def work() -> None:
        fill(shop, "u")
        soon(lambda: published(shop, "u") is not None)
        change(shop)
        change(shop, "u")
        shown(shop, "u")

    follow_while(shop, work)
    shop.run()
    for table in ("t", "u"):
        assert shop.rows(table) == expected(shop, CHANGED, table)


@pytest.mark.formats
@pytest.mark.long("a run for each step of a run")
@pytest.mark.parametrize("startup", ["latest", "position"])
def test_a_run_that_dies_at_any_step_goes_on_from_where_its_copy_began(shop: Pipe, startup: str) -> None:
    """With a position, no change is lost wherever it dies; from now on, none after the copy was made."""
    at, is_dead = 1, True
    while is_dead:
        table = f"t{at}"
        fill(shop, table)
        if startup == "position":
            start_at(shop, position=now(shop))
            change(shop, table)
        else:
            starting(shop, "latest")
        with mortal(shop, at) as mortality:
            try:
                run(shop.config, [f"{shop.database}.{table}"], None, shop.events.append, shop.spark)
            except Dead:
                assert mortality.dead
        is_made = open_target(shop.config).inspect(TableId(shop.database, table)) is not None
        if startup == "latest":
            change(shop, table)
        shop.run(table)
        is_there = startup == "position" or is_made
        assert shop.rows(table) == (expected(shop, CHANGED, table) if is_there else [])
        shop.sql(f"UPDATE {table} SET v = 44 WHERE id = 14")
        shop.run(table)
        assert shop.rows(table) == expected(shop, CHANGED | {14} if is_there else {14}, table)
        is_dead, at = mortality.dead, at + 2
    assert at > 7
