"""Parity: both paths read every type alike, and what they would read differently is named."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pymysql
import pytest

from lakeingest.commands.parity import Row, column_parities, column_parity, parity
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import file_sizes, query
from lakeingest.mysql.keyed_rows import rows_of
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.mysql.source_types import source_type
from tests.mysql.database import Db, database_on
from tests.mysql.keyed import EACH, keys_of
from tests.mysql.values import values_of

ORDERS = TableSchema(
    TableId("shop", "orders"),
    (Column("id", Kind.INT32, source_type("int")), Column("v", Kind.DOUBLE, source_type("double"))),
    ("id",),
)
ROWS = 40


@pytest.fixture
def db(any_server: LocalServer) -> Iterator[Db]:
    """A database on a server of each flavor."""
    with database_on(any_server) as database:
        purge(database)
        yield database


def purge(db: Db) -> None:
    """Remove all but the newest file of the binlog: older ones have what other tests wrote."""
    for _ in range(100):
        db.run("FLUSH BINARY LOGS")
        db.run(f"PURGE BINARY LOGS TO '{db.here().file}'")
        if len(file_sizes(db.connection)) == 1:
            return
        kill_readers(db)
        time.sleep(0.1)
    pytest.fail("a reader is still there")


def kill_readers(db: Db) -> None:
    """End those of other tests: MariaDB may not have noticed that they left, and purges no file before it has."""
    readers = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    for (reader,) in query(db.connection, readers):
        with suppress(pymysql.OperationalError):  # it has ended
            db.run(f"KILL {reader}")


@pytest.mark.mysql
@pytest.mark.newest
@pytest.mark.long("the same on another version", only=("MariaDB 11.8", "MariaDB 10.11"))
def test_every_type_is_read_alike_on_both_paths(any_server: LocalServer, db: Db) -> None:
    """Rows that were inserted, updated or moved lately; the columns without a value are reported."""
    values = values_of(any_server)
    columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(values))
    schema = db.table("t", f"id INT PRIMARY KEY, {columns}, idle INT")
    for row in range(4):
        literals = ", ".join(pairs[row % len(pairs)][0] for pairs in values.values())
        db.run(f"INSERT INTO t VALUES ({row}, {literals}, NULL)")
    db.run("INSERT INTO t (id) VALUES (10)", "UPDATE t SET id = 20 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    found = column_parities(BinlogSource(db.source, db.connection), {schema.table: schema})
    assert [one for one in found if one.differing] == []
    assert {one.column: one.compared for one in found} == {
        "id": 4,
        **{f"c{n}": 3 for n in range(len(values))},
        "idle": 0,
    }
    alike, missed = parity(BinlogSource(db.source, db.connection), {schema.table: schema})
    assert alike.finding is None
    assert f"no value of {db.name}.t.idle was written lately" in str(missed.finding)
    assert not missed.fatal


@pytest.mark.mysql
@pytest.mark.parametrize(("any_server", "name"), EACH, indirect=["any_server"])
@pytest.mark.long("the same on other servers", only=("MariaDB 10.11",))
@pytest.mark.long("each kind of key on one server in turn", turn="any_server")
def test_rows_are_found_by_every_kind_of_key(any_server: LocalServer, db: Db, name: str) -> None:
    """By the values that the lake has of them."""
    keyed = keys_of(any_server.flavor)[name]
    schema = db.table(name, f"{keyed.columns}, v INT, PRIMARY KEY ({', '.join(keyed.names)})")
    numbers = range(min(ROWS, keyed.count))
    rows = [f"({', '.join(keyed.literals(n))}, {n})" for n in numbers]
    db.run(f"INSERT INTO {name} VALUES {', '.join(rows)}")
    whole = db.select(schema).to_pylist()
    found = rows_of(db.connection, schema, whole[::2]).to_pylist()
    assert sorted(found, key=lambda row: row["v"]) == sorted(whole[::2], key=lambda row: row["v"])
    columns = column_parities(BinlogSource(db.source, db.connection), {schema.table: schema})
    assert {(one.compared, one.differing) for one in columns} == {(len(numbers), 0)}


@pytest.mark.mysql
def test_what_cannot_be_compared_is_reported(db: Db) -> None:
    """DDL in the newest file of the binlog: its rows before that are of another table. Another file is enough."""
    table = db.table("t", "id INT PRIMARY KEY").table
    db.run("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD COLUMN v INT")
    source, schemas = BinlogSource(db.source, db.connection), {table: read_schema(db.connection, table)}
    [answer] = parity(source, schemas)
    assert "cannot be compared: the newest file of the binlog has DDL of these tables" in str(answer.finding)
    assert not answer.fatal
    db.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)")
    assert [each.finding for each in parity(source, schemas)] == [None, None]


@pytest.mark.parametrize(("ours", "theirs"), [(0.0, -0.0), (1.5, None), (1e300, 1e301)])
def test_a_value_that_differs_is_named_with_its_row(ours: float, theirs: float | None) -> None:
    """The column, its type, how often, both values and the key."""
    same: tuple[Row, Row] = {"id": 7, "v": 1.0}, {"id": 7, "v": 1.0}
    rows = [same, ({"id": 8, "v": ours}, {"id": 8, "v": theirs})]
    assert str(column_parity(ORDERS, 1, rows)) == (
        "shop.orders: column v (double) differs in 1 of 2 rows:"
        f" of id=8 the snapshot reads {ours!r}, the binlog {theirs!r}"
    )
    assert column_parity(ORDERS, 0, rows).differing == 0


def test_two_nulls_prove_nothing() -> None:
    """They are not counted as compared."""
    assert column_parity(ORDERS, 1, [({"id": 1, "v": None}, {"id": 1, "v": None})]).compared == 0
