"""Preflight of foreign keys on real servers: which changes are logged, can be read again, or are refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pymysql
import pytest
from pydantic import SecretStr

from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.cascades.cascades import ForeignKey, Rule
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.preflight.foreign_keys import cascades, count_unlogged_keys, missing_cascades, unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.preflight.tables import grants
from tests.mysql.database import Db, database_on
from tests.plugins.lanes import FLAVORS

pytestmark = pytest.mark.mysql

ALL = Tables(include=("*.*",))
SILENT = {"loose_innodb_native_foreign_keys": "ON"}


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server, which logs these changes."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture
def silent_db(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Db]:
    """A database on a server that does not log them."""
    with database_on(mysql_server_with(**SILENT)) as database:
        yield database


def options(**modes: str) -> Tables:
    """How changes by foreign keys of tables are handled."""
    chosen = {f"*.{table}": TableOptions.model_validate({"cascades": mode}) for table, mode in modes.items()}
    return Tables(include=("*.*",), options=chosen)


def server_of(db: Db, *names: str) -> Server:
    """The server, with tables of the database to be copied."""
    return Server.of(db.connection, [TableId(db.name, name) for name in names])


def finding(db: Db, tables: Tables, *names: str) -> str:
    """What is refused; '' for nothing."""
    return cascades(server_of(db, *names), tables).finding or ""


@pytest.mark.parametrize("rule", ["ON DELETE CASCADE", "ON UPDATE CASCADE", "ON DELETE SET NULL", "ON UPDATE SET NULL"])
def test_keys_that_change_rows_outside_the_binlog_are_found(db: Db, silent_db: Db, rule: str) -> None:
    """With the keys of parents, in their order. A server that logs such changes (9.6 and later) has none."""
    for one in (db, silent_db):
        one.run(
            "CREATE TABLE parent (a INT, b INT, PRIMARY KEY (a, b))",
            "CREATE TABLE child (id INT PRIMARY KEY, y INT, x INT,"
            f" FOREIGN KEY (x, y) REFERENCES parent (a, b) {rule})",
            "CREATE TABLE grand (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES child (id) ON DELETE CASCADE)",
            "CREATE TABLE other (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES child (id))",
        )
    parent, child, grand = (TableId(silent_db.name, name) for name in ("parent", "child", "grand"))
    on_delete, on_update = (
        Rule(rule.removeprefix(f"ON {event} ")) if event in rule else Rule.NONE for event in ("DELETE", "UPDATE")
    )
    found = unlogged_keys(server_of(silent_db), [grand, TableId(silent_db.name, "other")])
    assert found.keys == {
        child: (ForeignKey(child, ("x", "y"), parent, ("a", "b"), on_delete, on_update),),
        grand: (ForeignKey(grand, ("c",), child, ("id",), Rule.CASCADE, Rule.NONE),),
    }
    names = ("parent", "child", "grand", "other")
    assert count_unlogged_keys(server_of(silent_db, *names)) == {child: 1, grand: 1}
    assert finding(silent_db, ALL, *names) == ""
    if query(db.connection, "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'"):
        assert count_unlogged_keys(server_of(db, *names)) == {}


def test_what_cannot_be_read_again_exactly_is_refused_with_the_reason(silent_db: Db) -> None:
    """Unless the user says that it may be missing; then the warning counts the keys."""
    silent_db.run(
        "CREATE TABLE parent (id INT PRIMARY KEY, word VARCHAR(9) UNIQUE)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, q INT,"
        " FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE,"
        " FOREIGN KEY (q) REFERENCES parent (id) ON UPDATE SET NULL)",
        "CREATE TABLE wordy (id INT PRIMARY KEY, w VARCHAR(9),"
        " FOREIGN KEY (w) REFERENCES parent (word) ON UPDATE CASCADE)",
        "CREATE TABLE grand (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES child (id) ON DELETE CASCADE)",
        "CREATE TABLE egg (id INT PRIMARY KEY, hen INT)",
        "CREATE TABLE hen (id INT PRIMARY KEY, egg INT, FOREIGN KEY (egg) REFERENCES egg (id) ON DELETE CASCADE)",
        "ALTER TABLE egg ADD FOREIGN KEY (hen) REFERENCES hen (id) ON DELETE CASCADE",
    )
    name = silent_db.name
    assert finding(silent_db, ALL, "wordy") == ""
    assert f"foreign keys lead from {name}.hen, {name}.egg back to {name}.hen" in finding(silent_db, ALL, "hen")
    left_out = Tables(include=("*.*",), exclude=("*.parent",))
    assert f"its parent {name}.parent is not copied; include it" in finding(silent_db, left_out, "grand")
    assert f"cascades of its parent {name}.child is not `read`" in finding(silent_db, options(child="missing"), "grand")
    assert "tables.options → cascades is `refuse`" in finding(silent_db, options(child="refuse"), "child")
    assert finding(silent_db, options(wordy="missing", hen="missing"), "wordy", "hen", "child") == ""
    warning = missing_cascades(server_of(silent_db, "child", "wordy"), options(child="missing"))
    assert not warning.fatal
    assert f"rows of {name}.child (2 keys) outside the binlog" in str(warning.finding)
    assert missing_cascades(server_of(silent_db, "child"), ALL).finding is None


def test_what_decides_how_values_are_compared_belongs_to_a_foreign_key(silent_db: Db) -> None:
    """The type, or the collation of texts; nothing for integers; a mark where both tables differ, or for an ENUM."""
    silent_db.run(
        "CREATE TABLE parent (i INT PRIMARY KEY, b BINARY(16) UNIQUE, v VARBINARY(9) UNIQUE, d DATETIME(3) UNIQUE,"
        " e ENUM('x', 'y') UNIQUE, g INT AS (i + 1) STORED UNIQUE,"
        " c CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT (uuid()) UNIQUE,"
        " w VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE)",
        "CREATE TABLE child (id INT PRIMARY KEY, i INT, b BINARY(16), v VARBINARY(5), d DATETIME(3), e ENUM('y', 'x'),"
        " g INT, c CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, w CHAR(9) COLLATE utf8mb4_general_ci)",
    )
    found: dict[str, tuple[str, ...]] = {}
    for name in "ibvdegcw":
        foreign = f"FOREIGN KEY ({name}) REFERENCES parent ({name})"
        for rule in ("ON DELETE SET NULL", "ON UPDATE CASCADE"):
            silent_db.run(f"ALTER TABLE child ADD CONSTRAINT one {foreign} {rule}")
            [[key]] = unlogged_keys(server_of(silent_db), [TableId(silent_db.name, "child")]).keys.values()
            found[name] = (*found.get(name, ()), "".join(key.types))
            silent_db.run("ALTER TABLE child DROP FOREIGN KEY one, DROP INDEX one")
    assert found == {
        "i": ("", ""),
        "b": ("binary(16)", "binary(16)"),
        "v": ("varbinary", "varbinary"),
        "d": ("datetime(3)", "datetime(3)"),
        "e": ("?", "?"),
        "g": ("?", "?"),
        "c": ("text ascii_bin", "char ascii_bin"),
        "w": ("text utf8mb4_general_ci", "?"),
    }


NAMES = {"plain": "c", "with a quote": "b`a", "like another key": "c` FOREIGN KEY (`id`) REFERENCES `parent"}


@contextmanager
def reader_of(db: Db, grant: str) -> Iterator[pymysql.Connection]:
    """A connection of a user with this right on tables, and no other."""
    db.run("CREATE USER reader IDENTIFIED BY 'reader'", f"GRANT {grant} TO reader")
    try:
        source = db.source.model_copy(update={"user": "reader", "password": SecretStr("reader")})
        with connect(source) as connection:
            yield connection
    finally:
        db.run("DROP USER reader")


@pytest.fixture(params=FLAVORS, ids=[flavor.name for flavor in FLAVORS])
def silent_any(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> Iterator[Db]:
    """A database on a server of each flavor that does not log these changes."""
    flavor = request.param
    with database_on(server_of(flavor, **({} if flavor.is_mariadb else SILENT))) as database:
        yield database


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_a_reader_of_the_tables_sees_the_keys_that_an_administrator_sees(silent_any: Db, name: str) -> None:
    """With SELECT and no more; also where MariaDB hides the rules of foreign keys from readers, behind any bytes."""
    db, quoted = silent_any, name.replace("`", "``")
    db.run(
        "CREATE TABLE parent (id INT PRIMARY KEY, `p``a` INT UNIQUE)",
        f"CREATE TABLE child (id INT PRIMARY KEY, `x``y` INT COMMENT '\n  CONSTRAINT `{name}` FOREIGN KEY (`x`y`)',"
        " z INT, b VARBINARY(9) DEFAULT x'FF80',"
        f" CONSTRAINT `{quoted}` FOREIGN KEY (`x``y`) REFERENCES parent (`p``a`) ON DELETE CASCADE,"
        " CONSTRAINT d FOREIGN KEY (z) REFERENCES parent (id) ON UPDATE SET NULL ON DELETE SET NULL,"
        " CONSTRAINT e FOREIGN KEY (z) REFERENCES parent (id) ON UPDATE CASCADE,"
        " CONSTRAINT f FOREIGN KEY (z) REFERENCES parent (id) ON UPDATE NO ACTION ON DELETE RESTRICT)",
        "CREATE TABLE loose (id INT)",
    )
    tables = [TableId(db.name, one) for one in ("child", "loose")]
    parent, child = TableId(db.name, "parent"), TableId(db.name, "child")
    expected = {
        ForeignKey(child, ("x`y",), parent, ("p`a",), Rule.CASCADE, Rule.NONE),
        ForeignKey(child, ("z",), parent, ("id",), Rule.SET_NULL, Rule.SET_NULL),
        ForeignKey(child, ("z",), parent, ("id",), Rule.NONE, Rule.CASCADE),
    }
    with reader_of(db, f"SELECT ON {db.name}.*") as connection:
        found = unlogged_keys(Server.of(connection), tables)
    assert {child: expected} == {table: set(keys) for table, keys in found.keys.items()}
    assert found == unlogged_keys(server_of(db), tables)
    assert found.unknown == frozenset()


def test_keys_that_the_user_may_not_see_are_not_taken_for_none(silent_any: Db) -> None:
    """Neither those of a table nor those of its parent: the table is refused, and the reason says what to grant."""
    db = silent_any
    db.run(
        "CREATE TABLE grand (id INT PRIMARY KEY)",
        "CREATE TABLE parent (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES grand (id) ON DELETE CASCADE)",
        "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE)",
    )
    parent, child = TableId(db.name, "parent"), TableId(db.name, "child")
    with reader_of(db, f"SELECT ON {db.name}.child") as connection:
        found = cascades(Server.of(connection, [child]), ALL).finding
        assert f"may not see the foreign keys of {parent}; GRANT SELECT" in str(found)
        left = cascades(Server.of(connection, [child]), options(child="missing")).finding
        assert left is None
    with reader_of(db, f"SELECT (id) ON {db.name}.child") as connection:
        found = cascades(Server.of(connection, [child]), ALL).finding
        is_mariadb = dialect(db.connection) is MARIADB
        unseen = child if is_mariadb else parent
        assert f"may not see the foreign keys of {unseen}; GRANT SELECT" in str(found)
        lacking = str(grants(Server.of(connection, [child])))
        assert f"SELECT on {child}" in lacking
