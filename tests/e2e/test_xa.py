"""XA transactions beside a pipeline, ended elsewhere in the binlog than prepared: each copy equals its source."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from random import Random

import pymysql
import pytest

from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.stores import on_disk

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ROUNDS = int(os.environ.get("LAKEINGEST_XA", "4"))
UNKNOWN_XID = 1397
SERVERS: dict[str, dict[str, str]] = {
    "mysql": {},
    "mysql without gtids": {"gtid_mode": "OFF"},
}
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
    made = pipe_on(server_of(MYSQL, **SERVERS[request.param]), chunk_rows=10)
    made.sql(*TABLES)
    yield made
    roll_back_all(made)


def prepare(pipe: Pipe, xid: str, *statements: str) -> None:
    """Prepare a transaction; its session ends then."""
    server = pipe.config.source
    password = pipe.config.source.password
    assert password is not None
    session = pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=password.get_secret_value(),
        database=pipe.database,
    )
    with session, session.cursor() as cursor:
        for statement in (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            cursor.execute(statement)


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
        names = [name[: int(first)] for _, first, _, name in cursor.fetchall()]
    for name in names:
        end(pipe, f"XA ROLLBACK '{name}'")


def test_rows_count_where_they_are_committed(pipe: Pipe) -> None:
    """Committed while tables are copied, in a later run, in a later file, without the spool; and rolled back."""
    prepare(pipe, "early", "INSERT INTO orders VALUES (101, 1)", "UPDATE items SET v = 1 WHERE id = 24")
    prepare(pipe, "later", "DELETE FROM orders WHERE id = 1", "INSERT INTO items VALUES (102, 2)")
    prepare(pipe, "lost", "UPDATE orders SET v = 3 WHERE id BETWEEN 10 AND 20")
    prepare(pipe, "never", "DELETE FROM orders WHERE id >= 30 AND id < 60", "DELETE FROM items WHERE id < 10")

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
