"""The table of changes in Flink, as a stream: each row once, also those that come while it reads."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakeingest.config.catalog_kinds import kind_of
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import Retryable
from lakeingest.lake.iceberg import logs
from tests.e2e.logged_rows import assert_log_is_right, log_of
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog_table import Recorded, block, with_tables
from tests.servers.catalog_servers import available
from tests.servers.debezium import can_compile
from tests.servers.flink import Row, streamed, with_catalog

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.local,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.skipif(not can_compile(), reason="needs a Java with a compiler, as Debian's openjdk-17-jdk-headless"),
]

OWN = tuple(f"_lakeingest_{name}" for name in ("number", "op", "origin", "position", "ordinal", "gtid", "ddl"))
COLUMNS = (*OWN, "id", "customer", "amount")
NUMBERS = ("_lakeingest_number", "_lakeingest_ordinal", "id", "amount")
ROUNDS, CHANGES, TRIES = 6, 5, 3


@pytest.fixture(params=[MYSQL, MARIADB_11_4], ids=["MySQL", "MariaDB"])
def orders(request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A table of a server of each kind that is published, with its changes as a table."""
    made = with_tables(pipe_on(server_of(request.param)))
    made.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(20), amount INT)")
    made.sql(r"INSERT INTO orders VALUES (1, 'ann', 5), (2, 'a\tb\\\n', 6), (3, NULL, 7), (4, 'Zoë 鱼', NULL)")
    made.run()
    return made


def query(pipe: Pipe, name: str, columns: str = "*") -> list[str]:
    """The statements of the page with this name, for the lake of the test; Flink looks for new rows more often."""
    target = pipe.config.target
    catalog = kind_of(target.catalog).spark(target.catalog, target.warehouse)
    catalog |= {"default-database": pipe.database, "jdbc.init-catalog-tables": "false"}  # or no run could commit
    *_, statement = block(name).strip().removesuffix(";").split(";")
    for old, new in (("SELECT *", f"SELECT {columns}"), ("shop.", f"`{pipe.database}`."), ("'10s'", "'3s'")):
        assert old in statement
        statement = statement.replace(old, new, 1)
    return [with_catalog(catalog), statement]


def publish(pipe: Pipe) -> None:
    """A run, again where Flink reads the SQLite file of the catalog while its process does not get on."""
    for _ in range(TRIES):
        with suppress(Retryable):
            pipe.run()
            return
    pipe.run()


def logged(pipe: Pipe) -> list[dict[str, Any]]:
    """The table of changes by PyIceberg, with these columns."""
    rows = log_of(pipe.config.target, TableId(pipe.database, "orders"))
    return [{name: row[name] for name in COLUMNS} for row in rows]


def values(row: Row) -> dict[str, Any]:
    """The values of a row of Flink, whose kind says that it was added."""
    kind, *texts = row
    assert kind == "+I", row
    return {
        name: int(text) if name in NUMBERS and text is not None else text
        for name, text in zip(COLUMNS, texts, strict=True)
    }


def change(source: Recorded, chance: Random) -> None:
    """Some changes of rows and keys, each a transaction that is recorded."""
    for _ in range(CHANGES):
        key = chance.randrange(9)
        source.sql(
            chance.choice(
                [
                    f"INSERT IGNORE INTO orders VALUES ({key}, 'new {key}', {chance.randrange(99)})",
                    f"UPDATE orders SET amount = {chance.randrange(99)} WHERE id % 3 = {key % 3}",
                    f"UPDATE IGNORE orders SET id = id + 9 WHERE id = {key}",
                    f"DELETE FROM orders WHERE id = {key}",
                ]
            )
        )


@pytest.mark.long("starts Flink, and fetches its jars the first time")
def test_flink_reads_each_change_once_while_runs_publish(
    orders: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while small files are combined, and after DDL; replaying what it has read gives each state of the source."""
    monkeypatch.setattr(logs, "MANY", 3)
    source, chance = Recorded(orders, "orders"), Random(49)
    statements = query(orders, "flink", ", ".join(f"`{name}`" for name in COLUMNS))
    with available(streamed(statements, tmp_path / "flink.log")) as rows:
        found = [values(row) for row in rows.take(len(logged(orders)))]
        for number in range(ROUNDS):
            change(source, chance)
            if number == ROUNDS // 2:
                source.sql("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'again', 1)")
            publish(orders)
            found += [values(row) for row in rows.take(len(logged(orders)) - len(found))]
            assert sorted(found, key=lambda row: row["_lakeingest_number"]) == logged(orders)
        replayed = sorted(found, key=lambda row: row["_lakeingest_number"])
        assert source.assert_replayed(replayed) > ROUNDS * CHANGES
        assert assert_log_is_right(orders.config.target, TableId(orders.database, "orders")) > ROUNDS
        orders.sql("ALTER TABLE orders ADD note INT FIRST, DROP customer", "INSERT INTO orders VALUES (7, 77, 777)")
        publish(orders)
        last = [values(row) for row in rows.take(2)]
        assert [(row["_lakeingest_op"], row["id"], row["customer"], row["amount"]) for row in last] == [
            ("DDL", None, None, None),
            ("+I", 77, None, 777),
        ]


@pytest.mark.long("starts Flink; the other test has how it reads the rows")
@pytest.mark.parametrize("orders", [MYSQL], ids=["MySQL"], indirect=True)
def test_a_query_of_flink_follows_the_copy(orders: Pipe, tmp_path: Path) -> None:
    """What it says to add and to take away makes the rows of the copy, after each publish."""
    source, chance, state = Recorded(orders, "orders"), Random(50), Counter[Any]()
    with available(streamed(query(orders, "flink copy", "*"), tmp_path / "flink.log")) as rows:
        for _ in range(ROUNDS):
            wanted = Counter(tuple(None if v is None else str(v) for v in row) for row in orders.rows("orders"))
            while state != wanted:
                [[kind, *row]] = rows.take(1)
                state[tuple(row)] += 1 if kind in {"+I", "+U"} else -1
                assert state[tuple(row)] >= 0, (kind, row)  # nothing is taken away that is not there
            change(source, chance)
            publish(orders)
