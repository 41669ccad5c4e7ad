"""XA on MariaDB, whose read views may lack an XA COMMIT that is before their position: each copy equals its source.

LAKEINGEST_XA sets how many tables are copied, and read again, beside writers.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pymysql
import pytest

from lakeingest.commands.signal import ask
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer, local_server
from lakeingest.mysql.connection import connect, query
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.e2e.test_failover import fail_over, of_mariadb
from tests.e2e.test_xa import DETACHED_SECONDS, TABLES, UNKNOWN_XID, end, prepare, roll_back_all
from tests.faults.beside import beside
from tests.servers import pinned

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ROUNDS = int(os.environ.get("LAKEINGEST_XA", "4"))
WRITERS = 4
ROWS = 160
LIST = "CREATE TABLE list (id INT PRIMARY KEY, v INT)"


def writing(pipe: Pipe, counts: Counter[str]) -> Callable[[int, Callable[[], bool]], None]:
    """A writer: one XA transaction after the other, committed by its own session or by another one."""

    def write(number: int, is_over: Callable[[], bool]) -> None:
        chance, source = Random(number), pipe.administrator
        with connect(source) as one, connect(source) as other:
            begin(pipe, one)
            while not is_over():
                counts[str(number)] += 1
                xid = f"{pipe.database}-{number}-{counts[str(number)]}"
                keys = [chance.randrange(ROWS // WRITERS) * WRITERS + number for _ in range(3)]
                query(one, f"XA START '{xid}'")
                query(one, f"REPLACE INTO list VALUES ({keys[0]}, {chance.randrange(1000)})")
                query(one, f"UPDATE list SET v = v + 1 WHERE id = {keys[1]}")
                query(one, f"DELETE FROM list WHERE id = {keys[2]}")
                for statement in ("END", "PREPARE"):
                    query(one, f"XA {statement} '{xid}'")
                way = chance.choice(("COMMIT", "COMMIT", "ROLLBACK"))
                if chance.random() < 0.5:
                    query(one, f"XA {way} '{xid}'")
                    continue
                one.close()
                time.sleep(DETACHED_SECONDS)
                end_by(other, f"XA {way} '{xid}'")
                one.connect()
                begin(pipe, one)

    return write


def begin(pipe: Pipe, session: pymysql.Connection) -> None:
    """Begin a session that locks no rows but those that it changes."""
    query(session, f"USE {pipe.database}")
    query(session, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def end_by(connection: pymysql.Connection, statement: str) -> None:
    """End a transaction once the server has noticed that its session has ended."""
    while True:
        try:
            query(connection, statement)
            return
        except pymysql.err.OperationalError as error:
            if error.args[0] != UNKNOWN_XID:
                raise
            time.sleep(DETACHED_SECONDS)


@pytest.mark.parametrize("rounds", [1, ROUNDS], ids=["once", "again and again"])
@pytest.mark.long("hundreds of transactions")
def test_chunks_beside_many_xa_commits_lack_none(
    server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe], rounds: int
) -> None:
    """The table is copied, then read again, while others commit; one transaction stays prepared all the time."""
    counts, rows = Counter[str](), ", ".join(f"({id_}, 0)" for id_ in range(ROWS))
    for _ in range(rounds):
        pipe = pipe_on(server_of(MARIADB_11_4), chunk_rows=20)
        pipe.sql(LIST, f"INSERT INTO list VALUES {rows}, (-1, 0), (-2, 0)")
        try:
            prepare(pipe, "long", "DELETE FROM list WHERE id = -1", "UPDATE list SET v = 7 WHERE id = -2")
            with beside(writing(pipe, counts), WRITERS):
                assert pipe.run().stopped == ()
                ask(pipe.config, "resnapshot", [f"{pipe.database}.list"], scope=WHOLE, wait=False)
                assert pipe.run().stopped == ()
            pipe.run()
            pipe.assert_equal()
            assert {(-1, 0), (-2, 0)} <= set(pipe.rows("list"))
            end(pipe, "XA COMMIT 'long'")
            pipe.run()
            pipe.assert_equal()
            assert (-2, 7) in pipe.rows("list")
        finally:
            roll_back_all(pipe)
    assert counts.total() > 100 * rounds


@pytest.mark.long("waits for transactions")
def test_what_was_prepared_before_the_binlog_begins_hinders_no_copy(
    server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]
) -> None:
    """Nobody can tell what it changes; but it has not ended. Others are prepared and ended between waves."""
    pipe = pipe_on(server_of(MARIADB_11_4, server_id="205"), chunk_rows=10)
    pipe.sql(*TABLES)
    left = ["XA COMMIT 'kept'", "XA ROLLBACK 'gone'"]

    def settle(event: Event) -> None:
        if isinstance(event, WaveCommitted) and left:
            end(pipe, left.pop(0))

    try:
        prepare(pipe, "lost", "UPDATE orders SET v = 5 WHERE id = 30")
        pipe.sql("FLUSH BINARY LOGS")
        pipe.purge()
        prepare(pipe, "kept", "UPDATE orders SET v = 1 WHERE id IN (3, 33, 53)", "INSERT INTO items VALUES (900, 1)")
        prepare(pipe, "gone", "DELETE FROM orders WHERE id IN (5, 25, 55)", "DELETE FROM items WHERE id IN (1, 21)")
        pipe.run(observe=settle)
        assert not left
        pipe.assert_equal()
        end(pipe, "XA ROLLBACK 'lost'")
        pipe.run()
        pipe.assert_equal()
    finally:
        roll_back_all(pipe)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    """A server of the test's own, which can be killed and started again."""
    with local_server(tmp_path / "server", flavor=MARIADB_11_4, program=pinned.program(MARIADB_11_4)) as server:
        made = Mortal(server)
        yield made
        made.end()


@pytest.mark.long("a server dies and starts again")
def test_what_is_prepared_outlives_a_server_of_mariadb(mortal: Mortal, pipe_on: Callable[..., Pipe]) -> None:
    """Killed between PREPARE and COMMIT, and copied after that."""
    pipe = pipe_on(mortal.server, chunk_rows=10)
    pipe.sql(*TABLES)
    prepare(pipe, "x", "UPDATE orders SET v = 5 WHERE id < 20", "DELETE FROM items WHERE id < 3")
    prepare(pipe, "y", "DELETE FROM orders WHERE id > 40")
    pipe.run("orders")
    mortal.die()
    pipe.connection = mortal.rise()
    pipe.run()
    pipe.assert_equal()
    pipe.sql(f"USE {pipe.database}", "XA COMMIT 'x'", "XA ROLLBACK 'y'")
    pipe.run()
    pipe.assert_equal()
    assert [row[1] for row in pipe.rows("orders")] == [5] * 20 + [0] * 40


@pytest.mark.formats("iceberg")
@pytest.mark.long("starts two more servers")
def test_what_is_prepared_is_ended_on_a_promoted_replica_of_mariadb(
    server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]
) -> None:
    """One is committed there, one is rolled back, one was committed before that. Nothing is copied again."""
    with of_mariadb(server_of, pipe_on) as (pair, pipe):
        pipe.sql(*TABLES)
        pipe.run()
        prepare(pipe, "kept", "UPDATE orders SET v = 50 WHERE id = 1", "INSERT INTO items VALUES (90, 9)")
        prepare(pipe, "gone", "DELETE FROM orders WHERE id = 2", "DELETE FROM items WHERE id = 2")
        prepare(pipe, "before", "INSERT INTO orders VALUES (70, 7)")
        pipe.sql("UPDATE orders SET v = 30 WHERE id = 3")
        pipe.run()
        end(pipe, "XA COMMIT 'before'")
        pair.level()
        over = fail_over(pair, pipe)
        assert over.run().stopped == ()
        over.assert_equal()
        end(over, "XA COMMIT 'kept'", "XA ROLLBACK 'gone'")
        over.sql("INSERT INTO orders VALUES (80, 8)")
        assert over.run().stopped == ()
        over.assert_equal()
        assert {(1, 50), (2, 0), (3, 30), (70, 7), (80, 8)} <= set(over.rows("orders"))
        assert not over.seen(WaveCommitted)
        roll_back_all(pipe)
