import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pymysql
import pytest

from lakeingest.config import Source
from lakeingest.config.tables import Tables
from lakeingest.core.binlog.position import GtidSet, file_start
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Choices, TableId
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql import visibility
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import connect, free_server_id, query, written_position
from lakeingest.mysql.key_space import estimated_rows, key_bounds, next_boundary
from lakeingest.mysql.preflight import server as preflight
from lakeingest.mysql.preflight import tables as table_preflight
from lakeingest.mysql.preflight.server import Server, ask, retention
from lakeingest.mysql.preflight.tables import read_schemas
from lakeingest.mysql.rights import grant_select
from lakeingest.mysql.schema_reader import list_tables, read_schema
from tests.mysql.database import Db, database_on
from tests.mysql.test_connection import ODD, source_of

pytestmark = pytest.mark.mysql

Servers = Callable[..., LocalServer]
NO_OPTIONS = Tables(include=("*.*",))

# variable -> a value that is refused, and what the refusal says
SWITCHES: dict[str, tuple[str, str]] = {
    "binlog_format": ("STATEMENT", "SET GLOBAL binlog_format = 'ROW'"),
    "binlog_row_image": ("MINIMAL", "SET GLOBAL binlog_row_image = 'FULL'"),
    "binlog_row_value_options": ("PARTIAL_JSON", "SET GLOBAL binlog_row_value_options = ''"),
    "binlog_order_commits": ("OFF", "SET GLOBAL binlog_order_commits = ON"),
    "gtid_mode": ("ON_PERMISSIVE", "gtid_mode is ON_PERMISSIVE; finish the change"),
}
OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
# a server of our own, that may be spoilt: it leaves a database out of its binlog
SPOILT = {"binlog_ignore_db": "left_out"}


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture
def plain_db(mysql_server_with: Servers) -> Iterator[Db]:
    """A database on a server without GTIDs."""
    with database_on(mysql_server_with(**OFF)) as database:
        yield database


@pytest.fixture
def spoilt_db(mysql_server_with: Servers) -> Iterator[Db]:
    """A database on the server that nobody else uses."""
    with database_on(mysql_server_with(**SPOILT)) as database:
        yield database


@contextmanager
def globally(connection: pymysql.Connection, **values: str) -> Iterator[None]:
    """Set global variables; at the end they are as before."""
    before = {name: query(connection, f"SELECT @@global.{name}")[0][0] for name in values}
    try:
        for name, value in values.items():
            query(connection, f"SET GLOBAL {name} = '{value}'" if value.isalpha() else f"SET GLOBAL {name} = {value}")
        yield
    finally:
        for name, value in before.items():
            shown = value if re.fullmatch(r"\d+", value) else f"'{value}'"
            query(connection, f"SET GLOBAL {name} = {shown}")


def findings(connection: pymysql.Connection, *tables: TableId) -> str:
    """What preflight refuses; '' when it passes."""
    conditions = preflight.CONDITIONS | table_preflight.CONDITIONS
    checked = [*ask(Server.of(connection, tables), conditions), read_schemas(connection, tables, NO_OPTIONS)[1]]
    assert all(one.fatal for one in checked)
    return " | ".join(one.finding for one in checked if one.finding)


def test_a_correctly_configured_server_passes(db: Db, plain_db: Db) -> None:
    """With and without GTIDs, with and without tables."""
    for one in (db, plain_db):
        one.run("CREATE TABLE t (id INT PRIMARY KEY)")
        assert findings(one.connection) == ""
        assert findings(one.connection, TableId(one.name, "t")) == ""


@pytest.mark.parametrize("name", SWITCHES)
def test_a_setting_that_loses_changes_is_refused_with_its_fix(db: Db, name: str) -> None:
    """Each names the variable, its value and what to set; with the fix the server passes again."""
    value, fix = SWITCHES[name]
    with globally(db.connection, **{name: value}):
        found = findings(db.connection)
        assert name in found
        assert value in found
        assert fix in found
    assert findings(db.connection) == ""


def test_without_gtids_the_binlog_must_survive_a_crash(plain_db: Db) -> None:
    """Without GTIDs, only its position identifies a transaction."""
    with globally(plain_db.connection, sync_binlog="0"):
        [unmet] = [one for one in ask(Server.of(plain_db.connection), preflight.CONDITIONS) if one.finding]
        assert unmet.name == "sync_binlog"
        assert "SET GLOBAL sync_binlog = 1" in (unmet.finding or "")
    assert findings(plain_db.connection) == ""


def test_a_server_without_binlog_is_refused(mysql_server_with: Servers) -> None:
    """The fix is to start it with log_bin."""
    with connect(source_of(mysql_server_with(**ODD))) as connection:
        assert "log_bin is OFF; start the server with it" in findings(connection)


@pytest.mark.long("a server of its own for one line")
def test_a_binlog_without_all_databases_is_refused(spoilt_db: Db) -> None:
    """Changes of sessions with other default databases would be missing."""
    assert "binlog_ignore_db leave changes out of the binlog; remove them" in findings(spoilt_db.connection)


def test_a_replica_must_log_in_the_order_of_its_source(spoilt_db: Db) -> None:
    """Only settings that a replica needs are checked."""
    run = spoilt_db.run
    with globally(spoilt_db.connection, replica_preserve_commit_order="OFF"):
        assert "replica_preserve_commit_order" not in findings(spoilt_db.connection)
        run("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1")
        try:
            assert "replica_preserve_commit_order is OFF; switch on" in findings(spoilt_db.connection)
            run("SET GLOBAL replica_preserve_commit_order = ON")
            assert "replica" not in findings(spoilt_db.connection)
        finally:
            run("RESET REPLICA ALL")


def test_a_binlog_in_innodb_is_refused_by_name(db: Db) -> None:
    """MariaDB since 12.3 can keep it there; an empty value says that it is in files."""
    server = Server.of(db.connection)
    assert preflight.binlog_in_files(server) is None
    assert preflight.binlog_in_files(replace(server, variables={"binlog_storage_engine": ""})) is None
    refused = preflight.binlog_in_files(replace(server, variables={"binlog_storage_engine": "InnoDB"}))
    assert "binlog_storage_engine is InnoDB" in (refused or "")


@pytest.mark.parametrize("flavor", [MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
def test_columns_whose_default_is_a_zero_date_are_named(server_of: Servers, flavor: Flavor) -> None:
    """A warning, unless the table says what becomes of zero dates."""
    with database_on(server_of(flavor)) as db:
        db.run(
            "SET SESSION sql_mode = ''",
            "CREATE TABLE t (id INT PRIMARY KEY, d DATE NOT NULL DEFAULT '0000-00-00',"
            " m DATETIME(3) NOT NULL DEFAULT '0000-00-00', s TIMESTAMP NOT NULL DEFAULT 0, e DATE DEFAULT '2000-01-01',"
            " v VARCHAR(20) DEFAULT '0000-00-00')",
        )
        table = TableId(db.name, "t")
        server = Server.of(db.connection, [table])
        strict, lenient = (
            read_schema(db.connection, table, Choices(zero_dates=dates)) for dates in ("error", "string")
        )
        found = table_preflight.zero_date_defaults(server, [strict])
        assert not found.fatal
        named = ", ".join(f"{table}.{column}" for column in "dms")
        assert f"columns whose default is a zero date: {named}; a row" in (found.finding or "")
        assert table_preflight.zero_date_defaults(server, [lenient]).finding is None


def test_a_table_that_is_not_innodb_is_refused_by_name(db: Db) -> None:
    """Only the tables to be copied are checked."""
    db.run("CREATE TABLE my (id INT PRIMARY KEY) ENGINE = MyISAM", "CREATE TABLE inno (id INT PRIMARY KEY)")
    named = f"not InnoDB: {db.name}.my (MyISAM); convert or exclude them"
    assert named in findings(db.connection, TableId(db.name, "my"), TableId(db.name, "inno"))
    assert findings(db.connection, TableId(db.name, "inno")) == ""


def test_all_findings_are_reported_together(spoilt_db: Db) -> None:
    """So the operator can correct them all at once."""
    spoilt_db.run(
        "CREATE TABLE my (id INT PRIMARY KEY) ENGINE = MyISAM",
    )
    switches = {"binlog_order_commits": "OFF", "binlog_row_image": "MINIMAL"}
    with globally(spoilt_db.connection, **switches):
        found = findings(spoilt_db.connection, TableId(spoilt_db.name, "my"))
    for part in ("binlog_ignore_db", *switches, "not InnoDB"):
        assert part in found
    assert "\n" not in found


def test_a_version_that_is_too_old_is_refused(db: Db) -> None:
    """Such servers are not available here: the variables are those that they would report."""

    def answer(version: str) -> Server:
        return Server(db.connection, {"version": version}, ())

    assert "its version 8.0.21-log is older than 8.0.22; upgrade" in str(preflight.version(answer("8.0.21-log")))
    assert preflight.version(answer("5.7.44")) is not None
    assert [preflight.version(answer(new)) for new in ("8.0.22", "8.4.0-log", "9.7.4-2", "10.0.0")] == [None] * 4


def test_a_condition_that_cannot_be_checked_is_a_finding(db: Db) -> None:
    """Fail closed: for a user without REPLICATION CLIENT, together with the other findings."""
    with (
        user_on(db, "SELECT") as user,
        connect(user) as connection,
        globally(db.connection, binlog_order_commits="OFF"),
    ):
        found = findings(connection)
    assert "binary log cannot be checked: Access denied" in found
    assert "replica settings cannot be checked: Access denied" in found
    assert "binlog_order_commits is OFF" in found


@pytest.mark.parametrize("server", ["mysql_server", "plain"])
def test_select_and_replication_rights_are_enough(
    server: str, mysql_server: LocalServer, mysql_server_with: Servers
) -> None:
    """All that lakeingest asks of a source works for a user with SELECT, REPLICATION SLAVE and REPLICATION CLIENT."""
    with database_on(mysql_server if server == "mysql_server" else mysql_server_with(**OFF)) as db:
        db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "FLUSH BINARY LOGS")
        with user_on(db, "SELECT, REPLICATION SLAVE, REPLICATION CLIENT") as user, connect(user) as connection:
            table = TableId(db.name, "t")
            assert findings(connection, table) == ""
            assert table in list_tables(connection)
            schema = read_schema(connection, table)
            assert key_bounds(connection, schema) is None
            assert next_boundary(connection, schema, None, 10) is None
            assert estimated_rows(connection, schema) >= 0
            uuid = server_state(connection).uuid
            start = file_start(written_position(connection).file)
            db.run("INSERT INTO t VALUES (1, 10)")
            read = read_chunk(user, schema, Chunk(table, KeyRange()), uuid, 1)
            assert read.rows.to_pylist() == [{"id": 1, "v": 10}]
            segment = Segment(uuid, 1, start, written_position(connection), GtidSet())
            parts = list(read_segment(connection, segment, {table: schema}, free_server_id(connection, user)))
            assert sum(batch.num_rows for found, batch in parts if found == table) == 1


def test_every_missing_right_is_named_with_its_grant(db: Db) -> None:
    """For each table and the binlog; the GRANT statements of the finding are sufficient."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    tables = TableId(db.name, "t"), TableId(db.name, "u")
    with user_on(db, "USAGE") as user:
        db.run("GRANT INSERT ON t TO 'reader'@'%'", "GRANT INSERT, SELECT ON u TO 'reader'@'%'")
        with connect(user) as connection:
            found = table_preflight.grants(Server.of(connection, tables)) or ""
            lacking, *statements = found.split("; ")
            named = f"REPLICATION CLIENT, REPLICATION SLAVE, SELECT on {db.name}.t"
            assert lacking == f"'reader'@'%' lacks {named}"
            assert statements == [
                "GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO 'reader'@'%'",
                grant_select("'reader'@'%'", db.name, names_are_patterns=True),
            ]
        db.run(*statements)
        with connect(user) as connection:
            assert findings(connection, *tables) == ""


@pytest.mark.parametrize(
    ("right", "other"),
    [("REPLICATION CLIENT", "REPLICATION SLAVE"), ("REPLICATION SLAVE", "REPLICATION CLIENT")],
)
def test_a_granted_right_is_not_reported_as_missing(db: Db, right: str, other: str) -> None:
    """Neither right replaces the other."""
    with user_on(db, right) as user, connect(user) as connection:
        assert f"lacks {other}; GRANT {other} ON" in str(table_preflight.grants(Server.of(connection)))


def test_a_right_on_some_columns_is_not_enough(db: Db) -> None:
    """Such a user does not see the other columns: the copy would lack them silently."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with user_on(db, "REPLICATION CLIENT, REPLICATION SLAVE") as user:
        db.run("GRANT SELECT (id) ON t TO 'reader'@'%'")
        with connect(user) as connection:
            assert read_schema(connection, TableId(db.name, "t")).names == ("id",)
            assert f"lacks SELECT on {db.name}.t" in findings(connection, TableId(db.name, "t"))


@pytest.mark.parametrize(
    ("granted", "whole"),
    [
        ("GRANT SELECT ON *.* TO 'reader'@'%'", True),
        ("GRANT INSERT, SELECT ON `{escaped}`.* TO 'reader'@'%'", True),
        ("GRANT SELECT ON `{pattern}`.* TO 'reader'@'%'", False),
        ("GRANT INSERT ON `{escaped}`.* TO 'reader'@'%'", False),
        ("GRANT SELECT ON t TO 'reader'@'%'", False),
        ("GRANT SELECT (id) ON t TO 'reader'@'%'", False),
    ],
)
def test_tables_of_a_database_that_is_granted_as_a_whole_are_not_asked_for(
    db: Db, monkeypatch: pytest.MonkeyPatch, granted: str, *, whole: bool
) -> None:
    """There may be thousands of them. All others are asked for, each by itself."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    asked = list[TableId]()
    monkeypatch.setattr(visibility, "is_hidden", lambda _, table: asked.append(table))
    names = {"escaped": db.name.replace("_", "\\_"), "pattern": f"{db.name[:-1]}_"}
    with user_on(db, "REPLICATION CLIENT, REPLICATION SLAVE") as user:
        db.run(granted.format(**names))
        with connect(user) as connection:
            assert table_preflight.grants(Server.of(connection, [TableId(db.name, "t")])) is None
    assert asked == ([] if whole else [TableId(db.name, "t")])


def test_rights_may_be_granted_by_a_role(db: Db) -> None:
    """An active role counts like a grant, an inactive one does not."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE ROLE 'copying'")
    try:
        db.run("GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO 'copying'")
        with user_on(db, "USAGE") as user:
            db.run("GRANT SELECT ON t TO 'reader'@'%'", "GRANT 'copying' TO 'reader'@'%'")
            with connect(user) as connection:
                assert "lacks REPLICATION CLIENT" in findings(connection, TableId(db.name, "t"))
            db.run("REVOKE SELECT ON t FROM 'reader'@'%'", "SET DEFAULT ROLE ALL TO 'reader'@'%'")
            with connect(user) as connection:
                assert findings(connection, TableId(db.name, "t")) == ""
    finally:
        db.run("DROP ROLE 'copying'")


def test_every_table_that_cannot_be_copied_is_named(db: Db) -> None:
    """The definitions of the others are read; a table that was dropped meanwhile is among the reasons."""
    db.run(
        "CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT, _lakeingest_t INT)",
        "CREATE TABLE b (id VARCHAR(5))",
        "CREATE TABLE good (id INT PRIMARY KEY)",
    )
    tables = [TableId(db.name, name) for name in ("a", "b", "gone", "good")]
    schemas, checked = read_schemas(db.connection, tables, NO_OPTIONS)
    assert list(schemas) == [tables[-1]]
    for named in (
        "a: column _lakeingest_j is int",
        "column _lakeingest_t is int",
        "b: it has neither a primary key",
        "gone: no such table",
    ):
        assert named in str(checked.finding)


def test_a_retention_that_is_too_short_is_refused(spoilt_db: Db) -> None:
    """The binlog must outlive the copy, and a day between two runs; the fix sets this."""
    for kept, copy_seconds, wanted in (("3600", 60.0, 86_400), ("86400", 200_000.4, 200_000)):
        with globally(spoilt_db.connection, binlog_expire_logs_seconds=kept):
            server, few = Server.of(spoilt_db.connection), Server.with_retention(spoilt_db.connection)
            assert server.retention_seconds == few.retention_seconds == int(kept)
            assert few.variables.items() <= server.variables.items()
            answer = str(retention(server, copy_seconds))
            assert answer.endswith(f"SET GLOBAL binlog_expire_logs_seconds = {wanted}")
        with globally(spoilt_db.connection, binlog_expire_logs_seconds=str(wanted)):
            assert retention(Server.of(spoilt_db.connection), copy_seconds) is None


@pytest.mark.parametrize("never", [{"binlog_expire_logs_seconds": "0"}, {"binlog_expire_logs_auto_purge": "OFF"}])
def test_a_binlog_without_expiry_passes(spoilt_db: Db, never: dict[str, str]) -> None:
    """For copies of any duration."""
    with globally(spoilt_db.connection, **never):
        server = Server.of(spoilt_db.connection)
        assert server.retention_seconds is Server.with_retention(spoilt_db.connection).retention_seconds is None
        assert retention(server, 1e12) is None


def test_the_retention_in_days_of_older_servers_is_used(db: Db) -> None:
    """Where no seconds are set; such servers are not available here."""
    variables = {"expire_logs_days": "7", "binlog_expire_logs_seconds": "0"}
    assert Server(db.connection, variables, ()).retention_seconds == 7 * 86_400
    assert Server(db.connection, variables | {"binlog_expire_logs_seconds": "60"}, ()).retention_seconds == 60


@contextmanager
def user_on(db: Db, rights: str) -> Iterator[Source]:
    """A user with these rights on all tables, dropped at the end."""
    db.run("CREATE USER 'reader'@'%' IDENTIFIED BY 'p'", f"GRANT {rights} ON *.* TO 'reader'@'%'")
    try:
        yield Source.model_validate({"host": db.source.host, "port": db.source.port, "user": "reader", "password": "p"})
    finally:
        db.run("DROP USER 'reader'@'%'")
