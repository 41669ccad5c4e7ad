"""The changelog as a table: each change of a copy is a row, and replaying the rows gives each version of the copy."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakeingest.config.changelog import Changelog
from lakeingest.core.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import Undelivered
from tests.e2e.logged_rows import assert_log_is_right, log_of, replayed
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture(params=[MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
def logged(
    request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]
) -> Iterator[Pipe]:
    """A pipeline with `changelog: {table: true}` on each kind of server."""
    flavor: Flavor = request.param
    made = pipe_on(server_of(flavor))
    made.config = made.config.model_copy(update={"changelog": Changelog(table=True)})
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
                    file, pos, *_ = cursor.fetchone()
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
