"""DDL as servers write it into the binlog: it passes where no watched table changes, else the reader stops."""

from typing import Any

import pytest

from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql

COLUMNS = "id INT PRIMARY KEY, a INT, `größe` VARCHAR(20)"

# of a watched table `t`; each server takes them all
HARMLESS = [
    "CREATE INDEX i ON t (a)",
    "ALTER TABLE t ADD INDEX j (a, id), ADD UNIQUE u (id, a), ADD FULLTEXT f (`größe`), COMMENT 'a ''b'' \\'c'",
    "/*!50000 ALTER TABLE t ADD INDEX k (id) */",
    "ALTER TABLE t ADD INDEX l (a) /*!999999 , ADD COLUMN never INT */",
    "SET sql_mode = 'ANSI_QUOTES'",
    """ALTER TABLE "t" COMMENT = 'ansi', ADD INDEX "m ""n" (a)""",
    "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
    r"ALTER TABLE t COMMENT '\', COMMENT ', DROP COLUMN a'",
    "SET sql_mode = DEFAULT",
    "PREPARE p FROM 'CREATE INDEX n ON t (a)'",
    "EXECUTE p",
    "DROP INDEX i ON t",
    "ALTER TABLE t DROP INDEX j, DROP KEY u",
    "ALTER TABLE t AUTO_INCREMENT = 50, ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 1",
    "ALTER TABLE t ENGINE = InnoDB",
    "ALTER TABLE t FORCE",
    "ANALYZE TABLE t",
    "OPTIMIZE TABLE t",
    "CHECK TABLE t",
    "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = NEW.id",
    "DROP TRIGGER tr",
    "CREATE VIEW v AS SELECT * FROM t",
    "DROP VIEW v",
    "ALTER DATABASE CHARACTER SET latin1",
    "CREATE TABLE t2 LIKE t",
    "ALTER TABLE t2 ADD COLUMN t INT, RENAME COLUMN a TO id2",
    "ALTER TABLE t2 DROP PRIMARY KEY, ADD PRIMARY KEY (id, t)",
    "ALTER TABLE t2 RENAME TO t3",
    "RENAME TABLE t3 TO t4",
    "CREATE TABLE t5 AS SELECT * FROM t",
    "RENAME TABLE t4 TO x, t5 TO t4, x TO t5",
    "TRUNCATE t4",
    "DROP TABLE t4, t5",
    "CREATE TABLE `t``.``u` (id INT)",
    "DROP TABLE IF EXISTS `t``.``u`, nowhere",
    "SET NAMES latin1",
    "CREATE TABLE `größer` (id INT COMMENT 'größe')",
    "DROP TABLE `größer`",
    "SET NAMES utf8mb4",
    "CREATE DATABASE {name}_x",
    "CREATE TABLE {name}_x.t (id INT)",
    "ALTER TABLE {name}_x.t ADD COLUMN c INT",
    "RENAME TABLE {name}_x.t TO {name}_x.u",
    "CREATE TABLE {name}_x.t (id INT)",
    "CREATE TABLE {name}_x.p (id INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
    "ALTER TABLE {name}_x.p EXCHANGE PARTITION p WITH TABLE {name}_x.t",
    "/*! ALTER TABLE {name}_x.t ADD COLUMN d INT */",
    "ALTER TABLE {name}_x.t ADD COLUMN e VARCHAR(9) CHARACTER SET utf8mb4 COMMENT 'caf\u00e9'",
    "DROP DATABASE {name}_x",
]
ONLY_MYSQL = [
    "ALTER TABLE t ADD INDEX fn ((a + 1))",
    "ALTER TABLE t ALTER INDEX k INVISIBLE",
    "ALTER TABLE t RENAME INDEX k TO kk",
]
ONLY_MARIADB = [
    "ALTER ONLINE TABLE t WAIT 5 ADD INDEX IF NOT EXISTS k (id)",
    "CREATE OR REPLACE INDEX k ON t (a)",
    "ALTER TABLE t ALTER INDEX k IGNORED",
    "CREATE OR REPLACE TABLE y (id INT)",
    "DROP TABLE IF EXISTS y WAIT 5",
    "CREATE DATABASE {name}_y",
    "CREATE TABLE {name}_y.t (id INT)",
    "/*M!100300 ALTER TABLE {name}_y.t ADD COLUMN c INT */",
    "SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE {name}_y.t ADD COLUMN d INT COMMENT ' FOR DROP TABLE t'",
    "SET STATEMENT max_statement_time=LENGTH(' FOR DROP TABLE t') FOR SET STATEMENT lock_wait_timeout=5 FOR"
    " ALTER TABLE {name}_y.t ADD COLUMN e INT",
    "SET STATEMENT sql_mode='ANSI_QUOTES' FOR ALTER TABLE {name}_y.t ADD COLUMN f INT",
    "SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE t ADD INDEX settings (a)",
    "/*M! SET STATEMENT lock_wait_timeout=5 FOR */ DROP INDEX settings ON t",
    "DROP DATABASE {name}_y",
]

HARMFUL = {
    "a column": "ALTER TABLE t ADD c INT",
    "a column beside an index": "ALTER TABLE t ADD INDEX (a), ADD c INT",
    "a column in a comment for versions": "ALTER TABLE t COMMENT 'x' /*!50000 , DROP a */",
    "the key": "ALTER TABLE t DROP PRIMARY KEY",
    "the key by its name": "DROP INDEX `PRIMARY` ON t",
    "a name that goes": "RENAME TABLE t TO x",
    "a name that comes": "ALTER TABLE beside RENAME TO `größe`",
    "a swap": "RENAME TABLE t TO x, beside TO t",
    "a partition": "ALTER TABLE parted EXCHANGE PARTITION p WITH TABLE u",
    "a truncation": "TRUNCATE t",
    "a drop beside others": "DROP TABLE beside, t",
    "another charset": "DROP TABLE `größe`",
    "the database": "DROP DATABASE {name}",
}
HARMFUL_ON_MARIADB = {
    "a column after settings": "SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE t ADD c INT",
    "a column in a comment": "/*M!100300 ALTER TABLE t ADD c INT */",
    "a column beside a comment": "ALTER TABLE t COMMENT 'x' /*M!100300 , DROP a */",
}


def assert_read(db: Db, *schemas: TableSchema, statements: list[str]) -> None:
    """Rows before and after each statement are read."""
    start = db.here()
    for number, statement in enumerate(statements, 1):
        db.run(f"INSERT INTO t (id, a) VALUES ({number}, 1)", statement.format(name=db.name))
    db.run("INSERT INTO t (id, a) VALUES (0, 0)")
    read = db.read(db.segment(start), *schemas)
    expected = [(0, int(RowKind.INSERT), number) for number in (*range(1, len(statements) + 1), 0)]
    assert read.halves(schemas[0].table, "id") == expected
    assert read_schema(db.connection, schemas[0].table).fingerprint == schemas[0].fingerprint


@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
@pytest.mark.newest
@pytest.mark.long("the same on another version", only=("MariaDB 10.11", "MariaDB 11.8"))
def test_ddl_that_changes_no_copied_table_is_skipped(any_db: Db, any_server: LocalServer) -> None:
    """Indexes, comments and rebuilds of copied tables, and any DDL of others; the definition stays the same."""
    table = any_db.table("t", COLUMNS)
    more = ONLY_MYSQL if any_server.flavor is MYSQL else ONLY_MARIADB
    assert_read(any_db, table, statements=HARMLESS + more)


def test_the_witness_reads_the_same_ddl(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """With LAKEINGEST_WIRE=reference."""
    table = db.table("t", COLUMNS)
    monkeypatch.setenv("LAKEINGEST_WIRE", "reference")
    assert_read(db, table, statements=HARMLESS + ONLY_MYSQL)


@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
@pytest.mark.newest
@pytest.mark.long("the same on another version", only=("MariaDB 10.11", "MariaDB 11.8"))
def test_ddl_that_may_change_a_copied_table_stops(any_db: Db, any_server: LocalServer) -> None:
    """The message has the statement, and the place before it."""
    db = any_db
    for what, statement in ((HARMFUL_ON_MARIADB if any_server.flavor.is_mariadb else {}) | HARMFUL).items():
        db.run(
            "SET NAMES utf8mb4", f"DROP DATABASE IF EXISTS {db.name}", f"CREATE DATABASE {db.name}", f"USE {db.name}"
        )
        schemas = [db.table(name, COLUMNS) for name in ("t", "u", "größe")]
        db.run(
            "CREATE TABLE beside LIKE t",
            f"CREATE TABLE parted ({COLUMNS}) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
            "DROP TABLE `größe`" if "comes" in what else "DO 0",
            "SET NAMES latin1" if "charset" in what else "DO 0",
        )
        start = db.here()
        with db.connection.cursor() as cursor:
            sent: Any = statement.format(name=db.name).encode("latin-1" if "charset" in what else "utf-8")
            cursor.execute(sent)
        with pytest.raises(UnsupportedEvent, match=rf"DDL that may change a copied table \(.*at {start.file}:\d+; "):
            db.read(db.segment(start), *schemas)
    db.run(f"CREATE DATABASE {db.name}")


@pytest.mark.parametrize(
    ("statement", "passes"),
    [
        ("DROP INDEX uq ON k", False),
        ("ALTER TABLE k RENAME INDEX uq TO uq2", False),
        ("CREATE UNIQUE INDEX better ON k (b)", False),
        ("CREATE INDEX i ON k (b)", True),
        ("DROP INDEX other ON k", True),
    ],
)
def test_the_unique_index_of_the_key_may_not_change(db: Db, statement: str, passes: bool) -> None:  # noqa: FBT001
    """In a table without a primary key; other indexes may."""
    table = db.table("k", "a BIGINT NOT NULL, b VARCHAR(9) NOT NULL, UNIQUE uq (a), KEY other (b)")
    assert (table.key, table.index) == (("a",), "uq")
    start = db.here()
    db.run("INSERT INTO k VALUES (1, 'x')", statement)
    if passes:
        assert db.read(db.segment(start), table).tables[table.table].num_rows == 1
        return
    with pytest.raises(UnsupportedEvent, match="DDL"):
        db.read(db.segment(start), table)
