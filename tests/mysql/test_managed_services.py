"""Statements that managed services write into the binlog: they concern no copied table, and need no rights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from lakeingest.config import Source
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.connection import query
from lakeingest.mysql.statement_reach import hidden_by
from tests.mysql.database import Db, database_on
from tests.servers import services

pytestmark = pytest.mark.mysql

Servers = Callable[..., LocalServer]
COLUMNS = "id INT PRIMARY KEY, v INT"


@contextmanager
def read_by(db: Db, *rights: str) -> Iterator[Db]:
    """The database as a user with these rights reads it."""
    db.run("CREATE USER cdc IDENTIFIED BY 'p'", *(f"{right} cdc" for right in rights))
    user = Source.model_validate({"host": db.source.host, "port": db.source.port, "user": "cdc", "password": "p"})
    try:
        yield Db(user, db.connection, db.name)
    finally:
        db.run("DROP USER cdc")


def documented(db: Db) -> tuple[str, str]:
    """The rights that the documents ask for."""
    return f"GRANT SELECT ON {db.name}.* TO", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO"


def written(db: Db, *statements: str) -> None:
    """Statements of one session that logs statements, each between two changes of `t` that are logged as rows."""
    with db.session() as service:
        for number, statement in enumerate(statements):
            query(service, "SET SESSION binlog_format = STATEMENT")
            query(service, statement.format(n=number + 7))
            query(service, "SET SESSION binlog_format = ROW")
            query(service, f"INSERT INTO {db.name}.t VALUES ({number}, NULL)")


@pytest.fixture
def system_tables(any_db: Db) -> Iterator[Db]:
    """A database on each server, which has the tables of the services."""
    any_db.run("USE mysql", *(f"CREATE TABLE {table}" for table in services.TABLES), f"USE {any_db.name}")
    yield any_db
    any_db.run(
        "SET foreign_key_checks = 0",
        "USE mysql",
        *(f"DROP TABLE {table.split()[0]}" for table in services.TABLES),
        f"USE {any_db.name}",
    )


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_what_services_write_passes_with_the_documented_rights(system_tables: Db, any_server: LocalServer) -> None:
    """INSERT, REPLACE, UPDATE and DELETE in statement format, bare names, FLUSH, and MariaDB's prefix."""
    db = system_tables
    table = db.table("t", COLUMNS)
    start = db.here()
    statements = services.statements(is_mariadb=any_server.flavor.is_mariadb)
    written(db, *statements)
    with read_by(db, *documented(db)) as user:
        read = user.read(user.segment(start), table)
    assert [row[2] for row in read.halves(table.table, "id")] == list(range(len(statements)))


# what is before it, the statement, and whether it passes with the documented rights on MySQL, and on MariaDB
JUDGED: dict[str, tuple[tuple[str, ...], str, bool, bool]] = {
    "another database": (("CREATE TABLE {name}_x.c (id INT)",), "INSERT INTO {name}_x.c VALUES (1)", True, False),
    "several tables of others": (
        ("CREATE TABLE {name}_x.c (id INT)", "CREATE TABLE {name}_x.d (id INT)"),
        "UPDATE {name}_x.c JOIN {name}_x.d USING (id) SET c.id = 2",
        True,
        False,
    ),
    "a view of the copied table": (
        ("CREATE VIEW {name}_x.v AS SELECT * FROM {name}.t",),
        "UPDATE {name}_x.v SET v = 9",
        False,
        False,
    ),
    "a trigger that changes it": (
        (
            "CREATE TABLE {name}_x.c (id INT)",
            "CREATE TRIGGER {name}_x.r AFTER INSERT ON {name}_x.c FOR EACH ROW UPDATE {name}.t SET v = NEW.id",
        ),
        "INSERT INTO {name}_x.c VALUES (7)",
        False,
        False,
    ),
    "a foreign key that changes it": (
        (
            "INSERT INTO mysql.rds_heartbeat2 VALUES (5, 5)",
            "ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES mysql.rds_heartbeat2 (id) ON DELETE CASCADE",
            "INSERT INTO t VALUES (100, 5)",
        ),
        "DELETE FROM mysql.rds_heartbeat2",
        False,
        False,
    ),
    "a stored function": (
        (
            "SET GLOBAL log_bin_trust_function_creators = ON",
            "CREATE FUNCTION bump() RETURNS INT BEGIN UPDATE t SET v = 3; RETURN 1; END",
        ),
        "INSERT INTO mysql.rds_heartbeat2 VALUES (9, {name}.bump())",
        False,
        False,
    ),
    "a stored function with the name of a built-in one": (
        (
            "SET GLOBAL log_bin_trust_function_creators = ON",
            "CREATE FUNCTION uuid() RETURNS INT BEGIN UPDATE t SET v = 3; RETURN 1; END",
        ),
        "INSERT INTO mysql.rds_heartbeat2 VALUES (9, {name}.uuid())",
        False,
        False,
    ),
    "a select": ((), "INSERT INTO mysql.rds_heartbeat2 SELECT 77, COUNT(*) FROM {name}.t", False, False),
}


@pytest.mark.parametrize("what", JUDGED)
@pytest.mark.long("each statement on one server in turn", turn="any_server")
def test_what_may_change_a_copied_table_stops_without_rights(
    system_tables: Db, any_server: LocalServer, what: str
) -> None:
    """MySQL names the databases of all tables that a statement opens; on MariaDB only the statement is known."""
    db = system_tables
    before, statement, *passes = JUDGED[what]
    table = db.table("t", COLUMNS)
    other = db.name + "_x"
    db.run(f"CREATE DATABASE {other}")
    try:
        db.run(*(one.format(name=db.name) for one in before))
        start = db.here()
        written(db, statement.replace("{name}", db.name))
        is_passed = passes[any_server.flavor.is_mariadb]
        expected = nullcontext() if is_passed else pytest.raises(UnsupportedEvent, match="statement format, and")
        with read_by(db, *documented(db)) as user, expected:
            read = user.read(user.segment(start), table)
            assert [row[2] for row in read.halves(table.table, "id")] == [0]
    finally:
        db.run(f"DROP DATABASE {other}")


@pytest.fixture(scope="module")
def partial(mysql_server_with: Servers) -> LocalServer:
    """A server on which global rights can be revoked for single databases."""
    return mysql_server_with(partial_revokes="ON", server_id="57")


@pytest.mark.parametrize(
    ("revoked", "passes"),
    [
        ("TRIGGER ON mysql.*", True),
        ("SELECT, INSERT ON mysql.*", True),
        ("INSERT ON {name}.*", True),
        ("TRIGGER ON {name}.*", False),
        ("SELECT ON {name}.*", False),
    ],
)
def test_a_partial_revoke_counts_for_its_own_database(partial: LocalServer, revoked: str, passes: bool) -> None:  # noqa: FBT001
    """As administrators of services have it; those who get their rights from them have the same."""
    with database_on(partial) as db:
        table = db.table("t", COLUMNS)
        db.run("CREATE TABLE beside (id INT)")
        start = db.here()
        written(db, f"INSERT INTO {db.name}.beside VALUES (1)")
        rights = (
            "GRANT SELECT, INSERT, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO",
            f"REVOKE {revoked.format(name=db.name)} FROM",
        )
        expected = nullcontext() if passes else pytest.raises(UnsupportedEvent, match="grant SELECT and TRIGGER")
        with read_by(db, *rights) as user, expected:
            user.read(user.segment(start), table)


def test_the_databases_that_grants_hide() -> None:
    """Of rights that show nothing anywhere, and of a REVOKE in an unknown form, nothing is known."""
    both = "GRANT SELECT, INSERT, TRIGGER ON *.* TO `u`@`%`"
    assert hidden_by([both]) == frozenset()
    assert hidden_by(["GRANT SELECT ON *.* TO `u`@`%`", "GRANT TRIGGER ON *.* TO `r`@`%`"]) == frozenset()
    assert hidden_by(["GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION"]) == frozenset()
    assert hidden_by(["GRANT SELECT ON *.* TO `u`@`%`", "GRANT TRIGGER ON `a`.* TO `u`@`%`"]) is None
    assert hidden_by([both, "REVOKE TRIGGER ON `a``B`.* FROM `u`@`%`"]) == frozenset({"a`b"})
    assert hidden_by([both, "REVOKE INSERT ON `a`.* FROM `u`@`%`"]) == frozenset()
    assert hidden_by([both, "REVOKE TRIGGER ON SOMETHING NEW"]) is None
