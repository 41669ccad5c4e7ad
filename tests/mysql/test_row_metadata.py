"""Rows without the names of their columns: the table's definition describes them, and they are the same rows."""

from collections.abc import Callable

import pytest

from lakeingest.core.tables.schema import Choices, TableId, TableSchema
from lakeingest.demo.flavor import MARIADB_11_4, MARIADB_11_8, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import SchemaChanged, UnsupportedValue
from lakeingest.mysql.connection import query
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import Db, database_on
from tests.mysql.values import values_of

pytestmark = pytest.mark.mysql

FLAVORS = (MYSQL, MARIADB_11_4, MARIADB_11_8)


def logging(db: Db, setting: str) -> None:
    """What TABLE_MAP events have from now on."""
    db.run(f"SET GLOBAL binlog_row_metadata = '{setting}'")


@pytest.fixture(params=FLAVORS, ids=[flavor.name for flavor in FLAVORS])
def server(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> LocalServer:
    """A server of the test's own, because its global settings change."""
    flavor: Flavor = request.param
    return server_of(flavor, server_id="241")


def each(db: Db, schema: TableSchema, *statements: str) -> list[list[object]]:
    """The change rows of statements that run with FULL metadata and with less, without places and times."""
    found: list[list[object]] = []
    is_mariadb = "mariadb" in str(query(db.connection, "SELECT @@version")[0][0]).lower()
    for setting in ("FULL", "MINIMAL", *(["NO_LOG"] if is_mariadb else [])):
        logging(db, setting)
        db.run("FLUSH BINARY LOGS")  # MariaDB keeps the map of a table that is open
        start = db.here()
        db.run(*statements)
        read = db.read(db.segment(start), schema)
        found.append([list(map(repr, row)) for row in read.halves(schema.table, *schema.names)])
    return found


@pytest.mark.long("each type twice; test_unnamed_columns has a run")
def test_each_type_is_read_the_same_without_names(server: LocalServer) -> None:
    """A table for each type, with a column before and one after it."""
    with database_on(server) as db:
        for number, (source_type, pairs) in enumerate(values_of(server).items()):
            db.run("SET sql_mode = ''")
            table = db.table(f"t{number}", f"s SMALLINT UNSIGNED, v {source_type}, w VARCHAR(9), id INT PRIMARY KEY")
            rows = ", ".join(f"(65535, {literal}, 'ü', {row})" for row, (literal, _) in enumerate(pairs))
            work = (
                f"INSERT INTO t{number} VALUES {rows}, (NULL, NULL, NULL, 99)",
                f"UPDATE t{number} SET id = id + 100",
                f"DELETE FROM t{number}",
            )
            full, *others = each(db, table, *work)
            assert all(other == full for other in others), source_type
            assert len(full) == 4 * (len(pairs) + 1)


@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
@pytest.mark.long("the same on another version", only=("MariaDB 11.8",))
def test_columns_that_are_left_out_keep_their_place(server: LocalServer) -> None:
    """Also generated ones between the others."""
    with database_on(server) as db:
        db.run(
            "CREATE TABLE t (a INT, g INT AS (a + 1) STORED, id INT PRIMARY KEY, h INT AS (a + 2) VIRTUAL, b CHAR(3))"
        )
        left_out = Choices(generated="skip")
        for choices in (left_out,) if server.flavor.is_mariadb else (left_out, Choices()):  # MariaDB may not log them
            table = read_schema(db.connection, TableId(db.name, "t"), choices)
            full, *others = each(
                db, table, "INSERT INTO t (a, id, b) VALUES (1, 2, 'x')", "UPDATE t SET b = 'y'", "DELETE FROM t"
            )
            assert all(other == full for other in others)
            assert len(full) == 4


@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
def test_what_the_definition_does_not_say_is_refused(server: LocalServer) -> None:
    """Another number of columns, another type, a member that is not known."""
    with database_on(server) as db:
        logging(db, "MINIMAL")
        table = db.table("t", "id INT PRIMARY KEY, e ENUM('a','b')")
        for ddl, row, error in (
            ("ADD c INT", "(1, 'a', 1)", SchemaChanged),
            ("MODIFY e INT", "(1, 2)", SchemaChanged),
            ("MODIFY e ENUM('a','b','c')", "(1, 'c')", UnsupportedValue),
        ):
            db.run("SET sql_log_bin = 0", f"ALTER TABLE t {ddl}", "SET sql_log_bin = 1")
            start = db.here()
            db.run(f"INSERT INTO t VALUES {row}")
            with pytest.raises(error) as raised:
                db.read(db.segment(start), table)
            assert raised.value.tables == {table.table}
            db.run("SET sql_log_bin = 0", "DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a','b'))")
            db.run("SET sql_log_bin = 1")
