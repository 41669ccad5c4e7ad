"""The changelog as a table: each change of a copy is a row, and replaying the rows gives each version of the copy."""

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lakeingest import Pipeline
from lakeingest.config.changelog import Changelog
from lakeingest.config.formats import table_name
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.lake.iceberg import logs
from lakeingest.pipeline.companions import companions
from lakeingest.pipeline.companions.log_tables import LogTables
from lakeingest.pipeline.events import Undelivered, WaveCommitted
from tests.e2e.logged_rows import assert_log_is_right, log_of, replayed
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of
from tests.servers.engines import DUCKDB
from tests.servers.stores import on_disk

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "changelog-as-a-table.md").read_text()
LIST = "_lakeingest_e2e"


def with_tables(pipe: Pipe, **keys: Any) -> Pipe:
    """The pipeline with the changes of each copy as a table."""
    pipe.config = pipe.config.model_copy(update={"changelog": Changelog(table=True, **keys)})
    return pipe


@pytest.fixture(params=[MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
def logged(
    request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]
) -> Iterator[Pipe]:
    """A pipeline with `changelog: {table: true}` on each kind of server."""
    flavor: Flavor = request.param
    made = with_tables(pipe_on(server_of(flavor)))
    yield made
    assert not made.seen(Undelivered), made.seen(Undelivered)


class Recorded:
    """A source whose states are recorded after each statement, with the end of the binlog then."""

    def __init__(self, pipe: Pipe, table: str) -> None:
        self.pipe, self.table = pipe, table
        self.states: list[tuple[str, list[dict[str, Any]]]] = []
        self.barriers: list[str] = []

    def sql(self, *statements: str, barrier: bool = False) -> None:
        """Run statements, each with a record. `barrier`: they are DDL that no copy can follow."""
        for statement in statements:
            self.pipe.sql(statement)
            self.states.append((self._place(), self._rows()))
            if barrier:
                self.barriers.append(self._place())

    def _place(self) -> str:
        """The end of the binlog, as the text of a place in the first epoch."""
        with self.pipe.connection.cursor() as cursor:
            for query in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
                try:
                    cursor.execute(query)
                    [(file, pos, *_)] = cursor.fetchall()
                    return f"{1:06d}.{int(file.rsplit('.', 1)[1]):010d}.{pos:020d}"
                except Exception as error:  # noqa: BLE001 - the other kind of server
                    last = error
        raise last

    def _rows(self) -> list[dict[str, Any]]:
        with self.pipe.connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.table} ORDER BY id")
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def assert_replayed(self, log: list[dict[str, Any]]) -> int:
        """The log, replayed to each recorded place from its first copy on, has the recorded rows."""
        checked = 0
        for place, rows in self.states:
            if place >= log[0]["_lakeingest_position"] and not self._is_within_barrier(place, log):
                assert replayed(log, place) == rows, place
                checked += 1
        return checked

    def _is_within_barrier(self, place: str, log: list[dict[str, Any]]) -> bool:
        """Whether rows are being read again at this place, because of DDL that no copy can follow."""
        resets = [row["_lakeingest_position"] for row in log if row["_lakeingest_op"] == "RESET"]
        return any(barrier <= place < next((one for one in resets if one >= barrier), "9") for barrier in self.barriers)


@pytest.mark.long("one of the servers in turn", turn="logged")
def test_the_log_has_the_copy_and_then_each_change(logged: Pipe) -> None:
    """An update is two rows, before and after; each row says what it is, and where it comes from."""
    logged.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    logged.run()
    logged.sql("UPDATE t SET v = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 'c')")
    logged.run()
    table = TableId(logged.database, "t")
    log = log_of(logged.config.target, table)
    names = "_lakeingest_op", "_lakeingest_origin", "id", "v"
    assert [tuple(row[name] for name in names) for row in log] == [
        ("RESET", None, None, None),
        ("+I", "copy", 1, "a"),
        ("+I", "copy", 2, None),
        ("-U", "binlog", 1, "a"),
        ("+U", "binlog", 1, "b"),
        ("-D", "binlog", 2, None),
        ("+I", "binlog", 3, "c"),
    ]
    changes = log[3:]
    assert all(row["_lakeingest_committed_at"] is not None for row in changes)
    positions = [row["_lakeingest_position"] for row in changes]
    assert positions == sorted(positions)
    assert len(set(positions)) == 3  # the transactions
    assert assert_log_is_right(logged.config.target, table) == 2


@pytest.mark.long("many runs with DDL; two tests below replay a log over DDL in every run")
def test_a_busy_table_with_ddl_is_replayed_to_each_place(logged: Pipe) -> None:
    """As its source recorded it after each statement, also between the published versions."""
    source = Recorded(logged, "t")
    logged.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(20), d DECIMAL(8,2))")
    source.sql("INSERT INTO t VALUES (1, 1, 'one', 1.5), (2, 2, 'two', NULL)")
    logged.run()
    chance = random.Random(49)
    ddl = [
        "ALTER TABLE t ADD a INT NOT NULL DEFAULT 7",
        "ALTER TABLE t RENAME COLUMN w TO x",
        "ALTER TABLE t MODIFY v BIGINT",
        "TRUNCATE TABLE t",
        "ALTER TABLE t DROP COLUMN x, ADD w VARCHAR(20) DEFAULT 'new' FIRST",
        "ALTER TABLE t MODIFY a VARCHAR(10) NOT NULL DEFAULT '7'",
        "ALTER TABLE t ADD x DATE",
    ]
    for number, statement in enumerate(ddl):
        for key in range(number * 10, number * 10 + 6):
            source.sql(f"INSERT INTO t (id, v) VALUES ({key + 10}, {key})")
            source.sql(f"UPDATE t SET v = v + {chance.randrange(9)}, d = {chance.randrange(99)}.25 WHERE id % 3 = 1")
            source.sql(f"DELETE FROM t WHERE id = {chance.randrange(number * 10 + 12)}")
            if chance.random() < 0.3:
                logged.run()
        source.sql(statement, barrier="VARCHAR(10)" in statement)
        if chance.random() < 0.5:
            logged.run()
    source.sql("INSERT INTO t (id, v) VALUES (999, 1)")
    logged.run()
    log = log_of(logged.config.target, TableId(logged.database, "t"))
    assert source.assert_replayed(log) > 100
    assert assert_log_is_right(logged.config.target, TableId(logged.database, "t")) > 8
    assert [row["_lakeingest_op"] for row in log].count("TRUNCATE") == 1


class Crash(BaseException):
    """The end of a process in between; nothing catches it."""


def dying(monkeypatch: pytest.MonkeyPatch, of: object, name: str, *, after: bool) -> None:
    """Let the next call end the process: before it does anything, or after it has done all."""
    real = getattr(of, name)

    def crash(*arguments: Any, **keys: Any) -> NoReturn:
        if after:
            real(*arguments, **keys)
        raise Crash

    monkeypatch.setattr(of, name, crash)


def test_no_column_of_the_log_has_values_of_two_columns(pipe: Pipe) -> None:
    """Neither of one that was dropped and is added again, nor of one whose new type needs another column."""
    with_tables(pipe)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT, x_2 VARCHAR(9))", "INSERT INTO t VALUES (1, 11, 'old')")
    pipe.run()
    pipe.sql("ALTER TABLE t DROP COLUMN x", "INSERT INTO t VALUES (2, 'two')")
    pipe.run()  # the columns are those of the log's last commit
    pipe.sql("ALTER TABLE t ADD x INT", "INSERT INTO t VALUES (3, 'three', 33)")
    pipe.run()
    pipe.sql("ALTER TABLE t MODIFY x VARCHAR(9)", "INSERT INTO t VALUES (4, 'four', 'text')")
    pipe.run()
    table = TableId(pipe.database, "t")
    log = log_of(pipe.config.target, table)
    assert next((row["x"], row["x_2"]) for row in log if row["id"] == 1) == (11, "old")
    assert next((row["x"], row["x_2"], row["x_3"]) for row in log if row["id"] == 3) == (None, "three", 33)
    [last] = [row for row in log if row["id"] == 4 and row["_lakeingest_op"] == "+I"]
    assert (last["x"], last["x_2"], last["x_3"], last["x_4"]) == (None, "four", None, "text")
    assert assert_log_is_right(pipe.config.target, table) >= 3


@pytest.mark.parametrize("times", ["once", "twice"])
@pytest.mark.long("the same deaths once more", only=("twice",))
def test_a_run_that_dies_leaves_no_gap_and_no_row_twice(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, times: str
) -> None:
    """Wherever it dies while it writes the log, its first commit included."""
    with_tables(pipe)
    source = Recorded(pipe, "t")
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    steps = [(LogTables, "make"), (LogTables, "write"), (LogTables, "commit"), (companions, "store_companions")]
    key = 10
    for of, name in (*steps, *(steps[1:] if times == "twice" else ())):
        for after in (False, True):
            source.sql(
                f"INSERT INTO t (id, v) VALUES ({key}, {key})",
                f"UPDATE t SET v = v + 1 WHERE id IN (1, {key})",
                f"ALTER TABLE t ADD c{key} INT DEFAULT {key}",
                f"DELETE FROM t WHERE id = {key - 2}",
            )
            key += 1
            with monkeypatch.context() as patch:
                dying(patch, of, name, after=after)
                try:
                    pipe.run()
                except Crash:
                    continue
            assert (of, name) in {steps[0], steps[3]}  # which are done once, and rarely
    pipe.run()
    table = TableId(pipe.database, "t")
    log = log_of(pipe.config.target, table)
    assert [row["_lakeingest_op"] for row in log].count("RESET") == 1
    changes = [row for row in log if row["_lakeingest_origin"] == "binlog"]
    of_rows = Counter((row["_lakeingest_position"], row["_lakeingest_ordinal"]) for row in changes)
    assert set(of_rows.values()) == {1}
    assert source.assert_replayed(log) > 4
    assert replayed(log) == source.states[-1][1]
    assert assert_log_is_right(pipe.config.target, table) > 4
    assert not pipe.seen(Undelivered)


def test_rows_that_are_read_again_are_rows_of_the_log(pipe: Pipe) -> None:
    """So replaying it still gives each version of the copy. After a loss of the state it begins anew, and says why."""
    with_tables(pipe)
    rows = ", ".join(f"({n}, {n}, {n})" for n in range(60))
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40), n DECIMAL(6,2))", f"INSERT INTO t VALUES {rows}")
    pipe.run()
    pipe.sql("UPDATE t SET v = 'changed' WHERE id IN (5, 6)")
    pipe.unlogged(
        "UPDATE t SET v = 'lost' WHERE id IN (5, 25)",
        "DELETE FROM t WHERE id = 26",
        "INSERT INTO t VALUES (70, 'new', 7)",
    )
    Pipeline(pipe.config, pipe.spark).resnapshot(f"{pipe.database}.t")
    pipe.run()
    table = TableId(pipe.database, "t")
    log = log_of(pipe.config.target, table)
    again = {(row["_lakeingest_op"], row["id"]) for row in log if row["_lakeingest_origin"] == "reread"}
    assert {("+I", 5), ("+I", 25), ("-D", 26), ("+I", 70)} <= again
    assert assert_log_is_right(pipe.config.target, table) >= 2
    shutil.rmtree(on_disk(pipe.state) / "spool")
    pipe.sql("DELETE FROM t WHERE id = 70")
    pipe.run()
    log = log_of(pipe.config.target, table)
    resets = [json.loads(row["_lakeingest_ddl"])["why"] for row in log if row["_lakeingest_op"] == "RESET"]
    assert len(resets) == 2
    assert "ChangelogGone" in resets[1]
    with pipe.connection.cursor() as cursor:
        cursor.execute("SELECT id FROM t ORDER BY id")
        assert [row["id"] for row in replayed(log)] == [row[0] for row in cursor.fetchall()]
    assert assert_log_is_right(pipe.config.target, table) >= 1


def test_a_table_of_its_name_stops_only_the_log(pipe: Pipe) -> None:
    """The copy goes on, the run says why, and the log begins once the name is free."""
    with_tables(pipe)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE t__changelog (id INT PRIMARY KEY)")
    pipe.sql("INSERT INTO t VALUES (1)")
    pipe.run()
    [undelivered] = pipe.seen(Undelivered)[:1]
    assert isinstance(undelivered, Undelivered)
    assert undelivered.what == "changelog.table"
    assert "NotOurTable" in undelivered.reason
    assert pipe.rows("t") == [(1,)]
    assert pipe.rows("t__changelog") == []


def test_transactions_are_listed_once_all_logs_have_them(pipe: Pipe) -> None:
    """With the number of rows that each log has of them; one that touches no copied table is not there."""
    with_tables(pipe, transactions=LIST)
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY, v INT)")
    pipe.run()
    pipe.sql("BEGIN", "INSERT INTO a VALUES (1), (2)", "INSERT INTO b VALUES (1, 1)", "COMMIT")
    pipe.sql("UPDATE b SET v = 2")
    pipe.run()
    pipe.run()
    pipe.sql("ALTER TABLE b ADD w INT", "DELETE FROM a WHERE id = 2")
    pipe.run()
    with catalog_of(pipe.config.target) as catalog:
        found = catalog.load_table((LIST, "transactions")).scan().to_arrow().to_pylist()
        catalog.drop_table((LIST, "transactions"))
    gap, *listed = sorted(found, key=lambda row: row["_lakeingest_number"])
    assert gap["gap"]
    a, b = (f"{pipe.database}.{name}" for name in "ab")
    assert [json.loads(row["tables"]) for row in listed] == [{a: 2, b: 1}, {b: 2}, {b: 1}, {a: 1}]
    assert [row["change_rows"] for row in listed] == [3, 2, 1, 1]
    logged = Counter(
        row["_lakeingest_position"]
        for name in "ab"
        for row in log_of(pipe.config.target, TableId(pipe.database, name))
        if row["_lakeingest_origin"] == "binlog"
    )
    assert logged == {row["_lakeingest_position"]: row["change_rows"] for row in listed}


def test_a_transaction_counts_no_rows_that_a_log_has_as_its_first_copy(pipe: Pipe) -> None:
    """A log begins at the place of its copy: what a transaction before it changed is no row of its own."""
    with_tables(pipe, transactions=LIST)
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    pipe.run()
    pipe.sql("CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO b VALUES (1)")
    done: list[object] = []

    def look(event: object) -> None:
        if isinstance(event, WaveCommitted) and not done:
            done.append(event)
            pipe.sql("BEGIN", "INSERT INTO a VALUES (2)", "INSERT INTO b VALUES (2), (3)", "COMMIT")

    pipe.run(observe=look)
    pipe.sql("BEGIN", "INSERT INTO a VALUES (3)", "INSERT INTO b VALUES (4)", "COMMIT")
    pipe.run()
    with catalog_of(pipe.config.target) as catalog:
        found = catalog.load_table((LIST, "transactions")).scan().to_arrow().to_pylist()
        catalog.drop_table((LIST, "transactions"))
    _, *listed = sorted(found, key=lambda row: row["_lakeingest_number"])
    a, b = (f"{pipe.database}.{name}" for name in "ab")
    assert [json.loads(row["tables"]) for row in listed] == [{a: 1}, {a: 1, b: 1}]
    assert [row["change_rows"] for row in listed] == [1, 2]


def test_a_quiet_log_goes_on_after_its_files_were_combined(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit that combines them has no rows, and is older than the place up to which the table was quiet."""
    monkeypatch.setattr(logs, "MANY", 2)
    with_tables(pipe, keep="0s", table_keep="400d")
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CREATE TABLE o (id INT PRIMARY KEY)")
    pipe.run()
    pipe.sql("INSERT INTO t VALUES (2)")
    pipe.run()
    for number in range(3):  # the table is quiet for longer than `keep`
        pipe.sql(f"INSERT INTO o VALUES ({number})")
        pipe.run()
    pipe.sql("INSERT INTO t VALUES (3)")
    pipe.run()
    log = log_of(pipe.config.target, TableId(pipe.database, "t"))
    assert [(row["_lakeingest_op"], row["id"]) for row in log] == [("RESET", None), ("+I", 1), ("+I", 2), ("+I", 3)]


def block(name: str, **values: str) -> str:
    """The SQL of the page that begins with this comment."""
    [found] = re.findall(rf"```sql\n-- {name}\n(.*?)```", PAGE, re.DOTALL)
    return str(found).format(**values) if values else str(found)


@pytest.mark.long("a page's queries on Spark; test_pages_of_changes has those of others")
def test_the_sql_of_the_page_gives_what_it_says(pipe: Pipe, tmp_path: Path) -> None:
    """Past states, forwards and backwards, also in DuckDB; what changed; and a stream that has each row once."""
    with_tables(pipe)
    source = Recorded(pipe, "orders")
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(9), amount INT)")
    source.sql("INSERT INTO orders VALUES (1, 'ann', 5), (2, 'bob', 6), (3, 'cy', 7)")
    pipe.run()
    settings, spark = pipe.config.target, pipe.spark
    copy = table_name(settings, TableId(pipe.database, "orders"))
    log = table_name(settings, TableId(pipe.database, "orders__changelog"))
    stream = (
        spark.readStream.format("iceberg").option("streaming-skip-delete-snapshots", "true").load(log.replace("`", ""))
    )

    def read_on() -> None:
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "seen"))
        writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()

    read_on()
    for number in range(20):
        source.sql(f"UPDATE orders SET amount = {number} WHERE id = {1 + number % 3}")
        if number % 6 == 5:
            source.sql(f"UPDATE orders SET id = {number + 10} WHERE id = {1 + number % 3}")
            source.sql(f"INSERT INTO orders VALUES ({1 + number % 3}, 'new', NULL)", "DELETE FROM orders WHERE id = 15")
            pipe.run()
            read_on()
    pipe.run()
    read_on()

    def asked(sql: str) -> list[tuple[Any, ...]]:
        named = sql.replace("lake.shop.orders__changelog", log).replace("lake.shop.orders", copy)
        return sorted((tuple(row) for row in spark.sql(named).collect()), key=lambda row: row[0])

    wanted = [(place, [tuple(row.values()) for row in rows]) for place, rows in source.states[1:]]
    for place, rows in random.Random(7).sample(wanted, 5):
        assert asked(block("replay", position=place)) == rows
        assert asked(block("rewind", position=place)) == rows
    place, rows = wanted[9]
    with catalog_of(settings) as catalog:
        loaded = catalog.load_table((pipe.database, "orders__changelog"))
    scan = f"iceberg_scan('{loaded.metadata_location.removeprefix('file://')}')"
    sql = block("replay", position=place).replace("lake.shop.orders__changelog", scan)
    assert DUCKDB.query(sql, str(tmp_path / "asked.parquet")) == [
        dict(zip(("id", "customer", "amount"), row, strict=True)) for row in rows
    ]
    audit = asked(block("audit").replace("SELECT * FROM (", "SELECT id, what, before, after FROM ("))
    assert audit.count((1, "update", 5, 0)) == 1
    assert {row[1] for row in audit} == {"insert", "update", "delete"}
    seen = [row._lakeingest_number for row in spark.read.parquet(str(tmp_path / "seen")).collect()]  # noqa: SLF001
    assert sorted(seen) == [row["_lakeingest_number"] for row in log_of(settings, TableId(pipe.database, "orders"))]
