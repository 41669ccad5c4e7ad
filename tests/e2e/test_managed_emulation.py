"""Servers that write what managed services write, as statements, each second: nothing stops, and nothing differs.

LAKEINGEST_MANAGED_MINUTES says for how long each mode runs; users have exactly the documented rights.
"""

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql
import pytest
from pydantic import SecretStr

from lakeingest.commands.check import CheckResult, check
from lakeingest.core.binlog.position import Place
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import FailedOver, TableStopped, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_failover import fail_over
from tests.e2e.test_follow import follow_while, now, shown
from tests.e2e.test_state import WITHOUT_GTIDS
from tests.servers import services
from tests.servers.replication import Pair, administrator, replicating

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

MINUTES = float(os.environ.get("LAKEINGEST_MANAGED_MINUTES", "1"))
QUICK_SECONDS = 6.0
AHEAD = "statements in the unread binlog"
TABLES = ("orders", "items", "quiet")
KEPT_COLUMNS = 10
LAG_SECONDS = 600.0  # that a copy may be behind on a busy machine


@dataclass(frozen=True)
class Mode:
    """A kind of server: its settings, and what its users may not see of database `mysql`."""

    flavor: Flavor
    settings: dict[str, str]
    revoked: str = ""


MODES = {
    "GTIDs, FULL": Mode(MYSQL, {"binlog_row_metadata": "FULL"}),
    "GTIDs, MINIMAL, partial revokes": Mode(
        MYSQL, {"binlog_row_metadata": "MINIMAL", "partial_revokes": "ON"}, revoked="SELECT, TRIGGER"
    ),
    "no GTIDs, FULL": Mode(MYSQL, {**WITHOUT_GTIDS, "binlog_row_metadata": "FULL"}),
    "no GTIDs, MINIMAL": Mode(MYSQL, {**WITHOUT_GTIDS, "binlog_row_metadata": "MINIMAL"}),
    "MariaDB, FULL": Mode(MARIADB_11_4, {"binlog_row_metadata": "FULL"}),
    "MariaDB, NO_LOG": Mode(MARIADB_11_4, {"binlog_row_metadata": "NO_LOG"}),
}


Managed = tuple[Pipe, LocalServer]


@pytest.fixture
def managed(pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Iterator[Callable[[Mode], Managed]]:
    """Call it with a mode: a pipeline of three tables on such a server, by a user with the documented rights."""
    made: list[Pipe] = []

    def on(mode: Mode) -> Managed:
        server = server_of(mode.flavor, server_id="59", **mode.settings)
        pipe = pipe_on(server, chunk_rows=100)
        rights = "BINLOG MONITOR, SLAVE MONITOR" if mode.flavor.is_mariadb else "REPLICATION CLIENT"
        pipe.sql("CREATE USER managed IDENTIFIED BY 'p'", f"GRANT REPLICATION SLAVE, {rights} ON *.* TO managed")
        if mode.revoked:
            pipe.sql("GRANT SELECT, TRIGGER ON *.* TO managed", f"REVOKE {mode.revoked} ON mysql.* FROM managed")
        else:
            pipe.sql(f"GRANT SELECT ON {pipe.database}.* TO managed")
        source = pipe.config.source.model_copy(update={"user": "managed", "password": SecretStr("p")})
        pipe.config = pipe.config.model_copy(update={"source": source})
        prepare(pipe)
        made.append(pipe)
        return pipe, server

    yield on
    for pipe in made:
        pipe.sql(f"DROP DATABASE {other(pipe)}", "DROP USER managed")
        pipe.sql(*(f"DROP TABLE mysql.{table.split()[0]}" for table in services.TABLES))


def other(pipe: Pipe) -> str:
    """A database that is not copied."""
    return f"{pipe.database}_x"


def prepare(pipe: Pipe) -> None:
    """The tables of the services, those that are copied, and another one."""
    pipe.sql(*(f"CREATE TABLE mysql.{table}" for table in services.TABLES), f"CREATE DATABASE {other(pipe)}")
    pipe.sql(
        *(f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40))" for table in TABLES),
        *(f"INSERT INTO {table} (v) VALUES {', '.join(['(UUID())'] * 50)}" for table in TABLES),
        f"CREATE TABLE {other(pipe)}.elsewhere (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40))",
    )


def serve(connection: pymysql.Connection, number: int) -> None:
    """What a service writes in a second: each of its statements, in statement format."""
    wire = connection.get_server_info()  # type: ignore[no-untyped-call]
    query(connection, "SET SESSION binlog_format = STATEMENT")
    for statement in services.statements(is_mariadb="MariaDB" in wire):
        query(connection, statement.format(n=number))
    query(connection, "SET SESSION binlog_format = ROW")


def changes(pipe: Pipe, *, is_mariadb: bool, calm: int) -> Iterator[str]:
    """DML and DDL of the copied tables and of another one, without an end; that DDL is followed.

    Of `calm` rounds of DML, DDL follows the last one.
    """
    settings = "SET STATEMENT lock_wait_timeout=50 FOR " if is_mariadb else ""
    elsewhere, added = f"{other(pipe)}.elsewhere", deque[tuple[int, Place]]()
    for number in itertools.count():
        for table in ("orders", "items"):
            yield f"INSERT INTO {table} (v) VALUES ('{number}'), (UUID())"
            yield f"UPDATE {table} SET v = 'u{number}' WHERE id % 7 = {number % 7}"
            yield f"DELETE FROM {table} WHERE id % 11 = {number % 11}"
        yield f"INSERT INTO {elsewhere} (v) VALUES ('{number}')"
        yield f"{settings}ALTER TABLE {elsewhere} ADD COLUMN c{number} INT COMMENT ' FOR DROP TABLE orders'"
        yield f"{settings}ALTER TABLE {elsewhere} DROP COLUMN c{number}"
        if number % calm == calm - 1:
            yield f"{settings}ALTER TABLE orders ADD COLUMN d{number} INT DEFAULT 5"
            added.append((number, now(pipe)))
            yield f"UPDATE orders SET d{number} = id"
            if len(added) > KEPT_COLUMNS:
                oldest, since = added.popleft()
                shown(pipe, "orders", since, LAG_SECONDS)  # one that comes and goes between two rounds is read again
                yield f"ALTER TABLE orders DROP COLUMN d{oldest}"
            yield "TRUNCATE TABLE items"
            yield f"RENAME TABLE {elsewhere} TO {elsewhere}_2"
            yield f"ALTER TABLE {elsewhere}_2 RENAME TO {elsewhere}"


@contextmanager
def served(server: LocalServer, every: float) -> Iterator[None]:
    """What a service writes, all the time, in a session of its own."""
    ended = threading.Event()

    def work() -> None:
        with administrator(server) as connection:
            for number in itertools.count(1):
                serve(connection, number)
                if ended.wait(every):
                    return

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            ended.set()
            working.result()


def emulate(pipe: Pipe, server: LocalServer, seconds: float, every: float, calm: int) -> None:
    """Follow such a server for so long: nothing stops, and in the end everything is equal."""
    statements = changes(pipe, is_mariadb=server.flavor.is_mariadb, calm=calm)

    def work() -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for statement in itertools.islice(statements, 6):
                pipe.sql(statement)
            time.sleep(every / 4)

    with served(server, every):
        pipe.run()
        assert follow_while(pipe, work).stopped == ()
    assert warned(check(pipe.config, pipe.spark)) is None
    assert pipe.run().stopped == ()
    assert pipe.seen(TableStopped) == []
    pipe.assert_equal()


def warned(result: CheckResult) -> str | None:
    """What the check says of statements in the unread binlog."""
    [found] = [one.finding for one in result.checked if one.name == AHEAD]
    return found


@pytest.mark.parametrize("kind", ["GTIDs, MINIMAL, partial revokes", "MariaDB, NO_LOG"])
@pytest.mark.long("a run for each mode of a service")
def test_a_service_that_writes_statements_stops_nothing(managed: Callable[[Mode], Managed], kind: str) -> None:
    """For a few seconds, with DML and DDL of copied tables and of others beside it."""
    pipe, server = managed(MODES[kind])
    emulate(pipe, server, QUICK_SECONDS, every=0.3, calm=5)


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.long("follows a server for minutes")
def test_a_service_that_writes_statements_stops_nothing_for_minutes(
    managed: Callable[[Mode], Managed], kind: str
) -> None:
    """As many as LAKEINGEST_MANAGED_MINUTES says."""
    pipe, server = managed(MODES[kind])
    emulate(pipe, server, MINUTES * 60, every=1, calm=40)  # DDL every twenty seconds, which is much


@pytest.mark.long("whole runs")
def test_the_check_says_which_statement_the_next_run_cannot_pass(managed: Callable[[Mode], Managed]) -> None:
    """It looks at what the run is to read, and asks the server about each such change, as the run does."""
    pipe, _ = managed(MODES["no GTIDs, MINIMAL"])
    pipe.run()
    pipe.sql(
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE mysql.rds_heartbeat2 SET value = 5",
        f"INSERT INTO {other(pipe)}.elsewhere (v) SELECT v FROM orders",
    )
    found = warned(check(pipe.config, pipe.spark))
    assert found is not None
    assert "stops tables: the binlog holds a change in statement format, and the user cannot see" in found
    pipe.sql("GRANT SELECT, TRIGGER ON *.* TO managed")
    assert warned(check(pipe.config, pipe.spark)) is None
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.fixture
def blue_green(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A server, and its replica that will be promoted."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.mark.long("several servers")
def test_heartbeats_of_one_server_alone_concern_no_copy_after_a_switch(
    blue_green: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """Blue goes on to write them after the switch, and green has written its own before that."""
    pipe = pipe_on(mysql_server_with(server_id="73"), chunk_rows=100)
    pipe.config = pipe.config.model_copy(update={"source": blue_green.source.model_copy(update={"replica": None})})
    prepare(pipe)
    try:
        pipe.run()
        pipe.sql("UPDATE orders SET v = 'blue' WHERE id = 1")
        serve(blue_green.primary, 1)
        assert pipe.run().stopped == ()
        blue_green.level()
        query(blue_green.replica, "STOP REPLICA")
        query(blue_green.replica, "SET GLOBAL read_only = OFF")
        serve(blue_green.replica, 2)
        for number in (3, 4):
            serve(blue_green.primary, number)
            assert pipe.run().stopped == ()
        over = fail_over(blue_green, pipe)
        over.sql("INSERT INTO orders (v) VALUES ('green')", "DELETE FROM items WHERE id < 9")
        serve(blue_green.replica, 5)
        assert over.run().stopped == ()
        assert over.seen(FailedOver)
        assert not over.seen(WaveCommitted)
        over.assert_equal()
    finally:
        for connection in (blue_green.primary, blue_green.replica):
            query(connection, f"DROP DATABASE IF EXISTS {other(pipe)}")
            for table in services.TABLES:
                query(connection, f"DROP TABLE IF EXISTS mysql.{table.split()[0]}")
