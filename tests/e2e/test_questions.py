"""What the product asks a source has one answer for its user, with the documented rights, and for an administrator.

A server does not say what it hides: an empty answer may be no answer. So every question that the product sends is
recorded, and asked again as both. Where the answers differ, it is written here how the product notices that.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

import lakeingest
from lakeingest.commands.check import check
from lakeingest.commands.init import init
from lakeingest.commands.plan import plan
from lakeingest.commands.sample import sample
from lakeingest.commands.status import status
from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import connect, file_sizes, query_dicts
from lakeingest.mysql.dialect import MARIADB
from lakeingest.mysql.dialect import MYSQL as MYSQL_DIALECT
from lakeingest.mysql.statement_reach import StatementReach
from lakeingest.mysql.wire.dml import Change
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

# A statement that asks about the server, and not for rows of a table: those are denied without a right.
QUESTION = re.compile(r"(?s)\s*(?:SHOW|XA RECOVER$|CALL|EXPLAIN|SELECT.*(?:_schema\.|@@|\bmysql\.|CURRENT_USER|\(\)))")
# Questions whose answers may differ, each with what the product does about that.
NOTICED = {
    r"SELECT CURRENT_USER\(\)": "it is about the user",
    r"SHOW GRANTS": "it is about the user",
    r"SELECT UNIX_TIMESTAMP\(\)": "it is about the moment",
    r"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema\.TABLES": "absent_tables names copies of hidden tables",
    r"SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, EXTRA FROM information_schema\.COLUMNS": "no hidden one is copied",
    r"SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema\.TRIGGERS": "statement_reach reads grants",
    r"SELECT TABLE_NAME FROM information_schema\.VIEWS": "statement_reach reads grants",
    r"SELECT UNIQUE_CONSTRAINT_SCHEMA": "statement_reach reads grants",
    r"SHOW GLOBAL STATUS LIKE 'Threads_running'": "it is about the moment",
    r"SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'": "it is about the moment",
    r"SELECT count, status FROM information_schema\.innodb_metrics": "it is denied; check says so, and nothing is read",
    r"SHOW REPLICA HOSTS": "it is denied; server ids are chosen at random",
    r"XA RECOVER": "MySQL denies it; the reader of the binlog stops at XA COMMIT",
}
ELSEWHERE = "CALL mysql.rds_"  # of a service
OF_MYSQL = ("SELECT CONSTRAINT_SCHEMA, TABLE_NAME", "SELECT @@global.gtid_purged", "SELECT @@global.gtid_executed")
OF_MARIADB = ("SELECT @@global.gtid_strict_mode", "SHOW STATUS LIKE 'binlog_snapshot", "SELECT @@server_uid")
# Questions that only other states of a source, or other keys of pipeline.yml, lead to: servers that took over, XA, keys
# of texts, limits of the load.
OTHERS = (
    "SELECT COLUMN_NAME, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = 'texts' AND COLLATION_NAME IS NOT NULL",
    "SELECT COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS"
    " WHERE CHARACTER_SET_NAME IS NOT NULL AND TABLE_SCHEMA = '{database}' AND TABLE_NAME = 'texts'",
    "SHOW BINLOG EVENTS IN '{file}' LIMIT 5",
    "SHOW CREATE TABLE `{database}`.`children`",
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, EXTRA FROM information_schema.COLUMNS ORDER BY ORDINAL_POSITION",
    "SELECT @@version",
    "SELECT @@max_allowed_packet",
    "SELECT @@global.binlog_row_metadata",
    "SELECT @@global.gtid_purged",
    "SELECT @@global.gtid_executed",
    "SELECT @@global.gtid_strict_mode, @@global.gtid_binlog_pos",
    "XA RECOVER",
    "SHOW GLOBAL STATUS LIKE 'Threads_running'",
    "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'",
    "SELECT count, status FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'",
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that connections of the product have sent."""
    found = list[str]()
    real = pymysql.connections.Connection.query

    def send(connection: pymysql.Connection, sql: Any, *given: Any, **named: Any) -> int:
        text = sql if isinstance(sql, str) else sql.decode("utf8", "surrogateescape")
        if type(connection) is not pymysql.Connection and QUESTION.match(text):
            found.append(text)
        return real(connection, sql, *given, **named)

    monkeypatch.setattr(pymysql.connections.Connection, "query", send)
    return found


def answer(connection: pymysql.Connection, sql: str) -> object:
    """The rows, in any order, without what the product does not use; or the number of the error."""
    try:
        rows = query_dicts(connection, sql)
    except pymysql.err.Error as error:
        return error.args[0]
    return sorted(repr({name: value for name, value in row.items() if name != "privileges"}) for row in rows)


def in_code() -> Iterator[tuple[str, str]]:
    """Each question in the product's code: its text, and a pattern for it, whose parts of run time match anything."""
    root = Path(lakeingest.__file__).parent
    for path in (path for room in ("mysql", "pipeline", "commands") for path in (root / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        inner = {id(part) for node in whole for part in ast.walk(node) if part is not node}
        for node in ast.walk(tree):
            if id(node) in inner or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)
            if QUESTION.match(text):
                yield text, re.sub("\0|\\\\{[a-z]*\\\\}", "(?s:.*)", re.escape(text))


@pytest.mark.long("asks each question of many runs three times")
@pytest.mark.parametrize(
    "flavor",
    [
        pytest.param(MYSQL, id="MySQL"),
        pytest.param(MARIADB_11_4, id="MariaDB 11.4"),
        pytest.param(MARIADB_10_11, id="MariaDB 10.11"),
    ],
)
def test_no_answer_depends_on_rights_unnoticed(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], flavor: Flavor, sent: list[str], tmp_path: Path
) -> None:
    """In all commands that ask the source; and each question in the product's code is among those that were sent."""
    settings = {} if flavor.is_mariadb else {"server_id": "97", "innodb_native_foreign_keys": "ON"}
    pipe = pipe_on(server_of(flavor, **settings), chunk_rows=10)
    make(pipe)
    work(pipe, tmp_path)
    account = pipe.config.source
    StatementReach(account)(Change("other", "t", frozenset()))
    with connect(account) as user, connect(pipe.administrator) as administrator:
        names = {"database": pipe.database, "file": next(iter(file_sizes(user)))}
        asked = list(dict.fromkeys([*sent, *(one.format(**names) for one in OTHERS)]))
        for sql in asked:
            if not any(re.match(noticed, sql) for noticed in NOTICED):
                assert answer(user, sql) == answer(administrator, sql), sql
        hidden = "SELECT * FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE TABLE_NAME = 'children'"
        assert (answer(user, hidden) == answer(administrator, hidden)) != flavor.is_mariadb  # the comparison sees it
    other = MYSQL_DIALECT if flavor.is_mariadb else MARIADB
    not_here = {other.log_status, other.replicas, other.state, *other.rights.values(), ELSEWHERE}
    not_here |= set(OF_MYSQL if flavor.is_mariadb else OF_MARIADB)
    unasked = {text for text, pattern in in_code() if not any(re.match(pattern, sql) for sql in asked)}
    assert {text for text in unasked if not text.startswith(tuple(not_here))} == set()


def make(pipe: Pipe) -> None:
    """Tables with all that a server may hide: keys, foreign keys, generated columns, comments, triggers."""
    pipe.sql(
        "CREATE TABLE parents (id INT PRIMARY KEY COMMENT 'a key', v INT DEFAULT 7, g INT AS (v + 1) VIRTUAL)",
        "CREATE TABLE children (id INT PRIMARY KEY, p INT, UNIQUE (p, id),"
        " FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE SET NULL)",
        "CREATE TABLE texts (k VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY, v INT, w DATETIME DEFAULT NOW())",
        "CREATE TABLE keyless (id INT NOT NULL, UNIQUE (id)) PARTITION BY HASH (id) PARTITIONS 2",
        "CREATE VIEW seen AS SELECT id FROM parents",
        "CREATE TRIGGER fires AFTER INSERT ON keyless FOR EACH ROW REPLACE INTO texts (k, v) VALUES (NEW.id, 1)",
        "CREATE FUNCTION two() RETURNS INT DETERMINISTIC RETURN 2",
        "INSERT INTO parents (id) VALUES (1), (2), (3)",
        "INSERT INTO children VALUES (1, 1), (2, 2)",
        "INSERT INTO texts (k, v) VALUES ('a', 1), ('b', 2)",
        "INSERT INTO keyless VALUES (5)",
    )


def work(pipe: Pipe, folder: Path) -> None:
    """All commands, runs that copy, catch up, follow DDL and read rows again."""
    account = pipe.config.source
    url = f"mysql://{account.user}@{account.host}:{account.port}/{pipe.database}"
    init(folder / "pipeline.yml", url, {"MYSQL_PASSWORD": account.password.get_secret_value()})
    check(pipe.config)
    plan(pipe.config)
    pipe.run()
    pipe.sql("DELETE FROM parents WHERE id = 1", "UPDATE texts SET v = 5", "ALTER TABLE texts ADD x INT DEFAULT 3")
    pipe.sql("ALTER TABLE keyless MODIFY id BIGINT NOT NULL", "INSERT INTO keyless VALUES (6)", "FLUSH BINARY LOGS")
    pipe.run()
    pipe.assert_equal()
    check(pipe.config)
    status(pipe.config)
    sample(pipe.config, f"{pipe.database}.texts", 1)
