"""XA transactions beside a pipeline, ended elsewhere in the binlog than prepared: each copy equals its source."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from random import Random

import pymysql
import pytest

from lakeingest.commands.signal import ask
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import keeping, lines, ops, position, replayed, source
from tests.e2e.test_follow import follow_while, shown
from tests.servers.stores import on_disk

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ROUNDS = int(os.environ.get("LAKEINGEST_XA", "4"))
UNKNOWN_XID = 1397
# MariaDB loses an XA COMMIT by another session while the one that prepared ends: it is in the binlog, and not done
DETACHED_SECONDS = 0.05
SERVERS: dict[str, tuple[Flavor, dict[str, str]]] = {
    "mysql": (MYSQL, {}),
    "mysql without gtids": (MYSQL, {"gtid_mode": "OFF"}),
    "mariadb 10.11": (MARIADB_10_11, {}),
    "mariadb 11.4": (MARIADB_11_4, {}),
}
SLOW = tuple(name for name in SERVERS if name != "mysql")
TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, v INT)",
    f"INSERT INTO orders VALUES {', '.join(f'({i}, 0)' for i in range(60))}",
    "CREATE TABLE items (id INT PRIMARY KEY, v INT)",
    f"INSERT INTO items VALUES {', '.join(f'({i}, 0)' for i in range(25))}",
)


@pytest.fixture(params=SERVERS)
def pipe(
    request: pytest.FixtureRequest, server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]
) -> Iterator[Pipe]:
    """A pipeline on each kind of server, with two tables; nothing is prepared at the end."""
    flavor, settings = SERVERS[request.param]
    made = pipe_on(server_of(flavor, **settings), chunk_rows=10)
    made.sql(*TABLES)
    yield made
    roll_back_all(made)


def prepare(pipe: Pipe, xid: str, *statements: str) -> None:
    """Prepare a transaction; its session ends then."""
    server = pipe.administrator
    session = pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password.get_secret_value(),
        database=pipe.database,
    )
    with session, session.cursor() as cursor:
        # no rows are locked but those that are changed
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for statement in (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            cursor.execute(statement)
    if dialect(session) is MARIADB:
        time.sleep(DETACHED_SECONDS)


def end(pipe: Pipe, *statements: str) -> None:
    """End prepared transactions, each as soon as the server has noticed that its session has ended."""
    for statement in statements:
        deadline = time.monotonic() + 10
        while True:
            try:
                pipe.sql(statement)
                break
            except pymysql.err.OperationalError as error:
                if error.args[0] != UNKNOWN_XID or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def roll_back_all(pipe: Pipe) -> None:
    """Nothing is prepared any more on the server."""
    with pipe.connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        found = [(name.encode() if isinstance(name, str) else name, first) for _, first, _, name in cursor.fetchall()]
    for name, first in found:
        end(pipe, f"XA ROLLBACK '{name[: int(first)].decode()}'")


@pytest.mark.long("the same on other servers", only=("mysql without gtids", "mariadb 10.11", "mariadb 11.4"))
def test_rows_count_where_they_are_committed(pipe: Pipe) -> None:
    """Committed while tables are copied, in a later run, in a later file, without the spool; and rolled back."""
    prepare(pipe, "early", "INSERT INTO orders VALUES (101, 1)", "UPDATE items SET v = 1 WHERE id = 24")
    prepare(pipe, "later", "DELETE FROM orders WHERE id = 1", "INSERT INTO items VALUES (102, 2)")
    prepare(pipe, "lost", "UPDATE orders SET v = 3 WHERE id BETWEEN 10 AND 20")
    prepare(pipe, "never", "DELETE FROM orders WHERE id >= 30 AND id < 55", "DELETE FROM items WHERE id < 10")

    def commit(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1 and "early" not in done:
            done.append("early")
            end(pipe, "XA COMMIT 'early'")

    done: list[str] = []
    pipe.run(observe=commit)
    assert done
    pipe.assert_equal()
    pipe.sql("FLUSH BINARY LOGS", "UPDATE orders SET v = 7 WHERE id = 2")
    pipe.run()
    pipe.assert_equal()
    end(pipe, "XA COMMIT 'later'")
    pipe.sql("INSERT INTO orders VALUES (1, 9)")
    pipe.run()
    pipe.assert_equal()
    end(pipe, "XA COMMIT 'lost'")
    shutil.rmtree(on_disk(pipe.state / "spool"))
    pipe.run()
    pipe.assert_equal()
    end(pipe, "XA ROLLBACK 'never'")
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.rows("orders")) == 61


@pytest.mark.long("a variant of rows that are committed later")
def test_a_table_that_joins_between_prepare_and_commit_gets_its_rows(pipe: Pipe) -> None:
    """It was not watched when its rows were prepared."""
    pipe.run()
    pipe.sql("CREATE TABLE late (id INT PRIMARY KEY, v INT)", "INSERT INTO late VALUES (1, 1), (2, 2)")
    prepare(pipe, "x", "INSERT INTO late VALUES (3, 3)", "UPDATE orders SET v = 3", "DELETE FROM late WHERE id = 1")
    pipe.run()
    pipe.assert_equal()
    end(pipe, "XA COMMIT 'x'")
    pipe.run()
    pipe.assert_equal()
    assert [row[:2] for row in pipe.rows("late")] == [(2, 2), (3, 3)]


@pytest.mark.long("random transactions, of which tests of segments have more")
def test_transactions_of_all_kinds_at_random(pipe: Pipe) -> None:
    """Many are prepared at a time, and end in any order, beside usual transactions and new binlog files."""
    chance, names = Random(5), (f"x{number}" for number in range(10_000))
    free, open_ = list(range(1_000, 1_400)), dict[str, list[int]]()
    for _ in range(ROUNDS):
        for _ in range(30):
            act = chance.choice(("prepare", "prepare", "commit", "commit", "roll back", "usual", "flush"))
            if act == "prepare" and len(free) > 10:
                keys = [free.pop(chance.randrange(len(free))) for _ in range(3)]
                xid = next(names)
                table = chance.choice(("orders", "items"))
                prepare(pipe, xid, *(f"REPLACE INTO {table} VALUES ({key}, {chance.randrange(99)})" for key in keys))
                open_[xid] = keys
            elif act in {"commit", "roll back"} and open_:
                xid = chance.choice(list(open_))
                end(pipe, f"XA {'COMMIT' if act == 'commit' else 'ROLLBACK'} '{xid}'")
                free += open_.pop(xid)
            elif act == "usual":
                pipe.sql(f"UPDATE orders SET v = v + 1 WHERE id < {chance.randrange(60)}")
            elif act == "flush" and chance.random() < 0.2:
                pipe.sql("FLUSH BINARY LOGS")
        pipe.run()
        pipe.assert_equal()
    for xid in open_:
        end(pipe, f"XA COMMIT '{xid}'")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("waits for a run that follows")
def test_a_run_that_follows_has_rows_once_they_are_committed(pipe: Pipe) -> None:
    """Rounds later; never those that are rolled back, or that stay prepared. Segments are dropped meanwhile."""

    def work() -> None:
        prepare(pipe, "long", "DELETE FROM orders WHERE id = 55")
        prepare(pipe, "kept", "UPDATE orders SET v = 1 WHERE id < 5", "DELETE FROM items WHERE id = 3")
        prepare(pipe, "gone", "UPDATE orders SET v = 2 WHERE id BETWEEN 10 AND 20")
        for number in range(3):
            pipe.sql(f"INSERT INTO orders VALUES ({100 + number}, 0)", f"INSERT INTO items VALUES ({100 + number}, 0)")
            shown(pipe, "orders")
        end(pipe, "XA COMMIT 'kept'", "XA ROLLBACK 'gone'")
        shown(pipe, "orders")
        prepare(pipe, "gone", "INSERT INTO orders VALUES (200, 3)")
        pipe.sql("UPDATE orders SET v = 4 WHERE id = 30", "FLUSH BINARY LOGS")
        end(pipe, "XA COMMIT 'gone'")
        shown(pipe, "orders")

    pipe.run()
    follow_while(pipe, work)
    pipe.assert_equal()
    assert (200, 3) in pipe.rows("orders")
    end(pipe, "XA COMMIT 'long'")
    follow_while(pipe, lambda: shown(pipe, "orders"))
    pipe.assert_equal()
    assert max(pipe.rows("orders")) == (200, 3)
    assert (55, 0) not in pipe.rows("orders")


@pytest.mark.long("several kinds of DDL")
def test_ddl_of_another_table_comes_between(pipe: Pipe) -> None:
    """DDL waits only for prepared transactions of its table. Some have rows of tables that are not copied."""
    pipe.sql("CREATE TABLE quiet (id INT PRIMARY KEY)", f"CREATE DATABASE {pipe.database}_other")
    pipe.sql(f"CREATE TABLE {pipe.database}_other.unwatched (id INT PRIMARY KEY)")
    try:
        pipe.run()
        insert = f"INSERT INTO {pipe.database}_other.unwatched VALUES"
        prepare(pipe, "x", "UPDATE orders SET v = 1 WHERE id < 9", f"{insert} (1)", "DELETE FROM orders WHERE id = 50")
        prepare(pipe, "y", f"{insert} (2)")
        pipe.sql("ALTER TABLE items ADD w INT", "UPDATE items SET w = id", "INSERT INTO orders VALUES (70, 0)")
        end(pipe, "XA COMMIT 'x'", "XA COMMIT 'y'")
        prepare(pipe, "x", "UPDATE items SET w = 7 WHERE id = 3")
        pipe.sql("ALTER TABLE orders ADD w INT DEFAULT 5", "INSERT INTO orders VALUES (80, 0, 0)")
        assert pipe.run().stopped == ()
        pipe.assert_equal()
        end(pipe, "XA COMMIT 'x'")
        pipe.sql("ALTER TABLE items DROP v")
        assert pipe.run().stopped == ()
        pipe.assert_equal()
        assert [row[0] for row in pipe.rows("items") if 7 in row[1:]] == [3, 7]
    finally:
        roll_back_all(pipe)
        pipe.sql(f"DROP DATABASE {pipe.database}_other")


@pytest.mark.long("several runs")
def test_only_the_tables_stop_whose_rows_were_purged(pipe: Pipe) -> None:
    """The binlog was kept for less time than the transaction was prepared. A copy that is asked for leads out."""
    pipe.run()
    prepare(pipe, "x", "UPDATE orders SET v = 1 WHERE id < 9")
    pipe.sql("UPDATE orders SET v = 2 WHERE id = 10", "UPDATE items SET v = 2 WHERE id = 10")
    pipe.run()
    pipe.sql("FLUSH BINARY LOGS")
    pipe.run()
    pipe.purge()
    end(pipe, "XA COMMIT 'x'")
    pipe.sql("UPDATE items SET v = 3 WHERE id = 11")
    with pytest.raises(UnsupportedEvent, match="but not the XA PREPARE of its transaction") as stopped:
        pipe.run()
    assert [one.table.name for one in stopped.value.result.stopped] == ["orders"]
    pipe.assert_equal("items")
    pipe.sql("FLUSH BINARY LOGS")  # without GTIDs the low watermark is the start of the current file
    ask(pipe.config, "resnapshot", [f"{pipe.database}.orders"], scope=WHOLE, wait=False)
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("the same on other servers", only=SLOW)
def test_the_changelog_has_rows_once_where_they_are_committed(pipe: Pipe) -> None:
    """After what was written between PREPARE and COMMIT, with the GTID of XA COMMIT."""
    keeping(pipe, 7 * 86_400)
    pipe.run()
    prepare(pipe, "x", "UPDATE orders SET v = 1 WHERE id = 5", "INSERT INTO orders VALUES (90, 1)")
    prepare(pipe, "y", "DELETE FROM orders WHERE id = 6")
    pipe.run()
    before = lines(pipe, "orders")
    assert set(ops(before)) == {"+I"}
    pipe.sql("UPDATE orders SET v = 2 WHERE id = 7")
    pipe.run()
    end(pipe, "XA COMMIT 'x'", "XA ROLLBACK 'y'")
    pipe.sql("DELETE FROM orders WHERE id = 90")
    pipe.run()
    after = lines(pipe, "orders", position(before[-1]))
    rows = [(doc["op"], doc["data"]["id"]) for doc in map(json.loads, after)]
    assert rows == [("-U", 7), ("+U", 7), ("-U", 5), ("+U", 5), ("+I", 90), ("-D", 90)]
    assert replayed([*before, *after]) == source(pipe, "orders")
    gtids = [doc["gtid"] and int(re.split("[:-]", doc["gtid"])[-1]) for doc in map(json.loads, after)]
    first = gtids[0]
    assert gtids == ([None] * 6 if first is None else [first] * 2 + [first + 1] * 3 + [first + 3])


@pytest.mark.long("a server dies and starts again")
def test_what_is_prepared_outlives_the_server(mortal: Mortal, pipe_on: Callable[..., Pipe]) -> None:
    """Killed between PREPARE and COMMIT, it recovers the transaction, and commits it in another binlog file."""
    pipe = pipe_on(mortal.server, chunk_rows=10)
    pipe.sql(*TABLES)
    prepare(pipe, "x", "UPDATE orders SET v = 5 WHERE id < 20", "DELETE FROM items WHERE id < 3")
    prepare(pipe, "y", "DELETE FROM orders WHERE id > 40")
    pipe.run()
    pipe.assert_equal()
    mortal.die()
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}", "XA COMMIT 'x'", "XA ROLLBACK 'y'")
    pipe.run()
    pipe.assert_equal()
    assert [row[1] for row in pipe.rows("orders")] == [5] * 20 + [0] * 40
