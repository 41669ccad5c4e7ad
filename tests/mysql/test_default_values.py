"""The value of a default, which the server sends in the column's own type, is what rows of before got."""

from dataclasses import replace

import pytest
from pydantic import SecretStr

from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.schema import USUAL, Choices
from lakeingest.errors import SourceAway
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.decoders import select_rows
from lakeingest.mysql.default_values import with_default_values
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql

DEFAULTS = (
    *(
        "FLOAT NOT NULL DEFAULT 1234567.8",
        "FLOAT DEFAULT 3.402823466e38",
        "FLOAT(12,4) DEFAULT 0.1",
        "DOUBLE DEFAULT 0.1",
    ),
    *("INT DEFAULT -5", "INT DEFAULT 0xFF", "TINYINT DEFAULT TRUE", "MEDIUMINT UNSIGNED ZEROFILL DEFAULT 7"),
    *("BIGINT UNSIGNED DEFAULT 18446744073709551615", "DECIMAL(10,2) DEFAULT 1.255", "DECIMAL(65,30) DEFAULT 1.5"),
    *(
        "YEAR DEFAULT 2026",
        "YEAR DEFAULT 0",
        "DATE DEFAULT '2026-01-02'",
        "DATETIME(3) DEFAULT '2026-01-02 03:04:05.678'",
    ),
    *("TIMESTAMP(6) NULL DEFAULT '2026-01-02 03:04:05.123456'", "TIME(2) DEFAULT '-838:59:59'"),
    *("CHAR(5) DEFAULT 'x '", "VARCHAR(20) DEFAULT '😀中é?'", "VARCHAR(20) DEFAULT 'a\\\\b\\nc\\0d''e'"),
    *("VARCHAR(20) CHARACTER SET utf16 DEFAULT '😀'", "VARCHAR(10) CHARACTER SET gbk DEFAULT '中'"),
    *("VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é'", "VARCHAR(5) DEFAULT b'101'", "ENUM('a','😀') DEFAULT '😀'"),
    *("SET('a','😀') DEFAULT 'a,😀'", "BIT(1) DEFAULT b'1'", "BIT(10) DEFAULT b'1000000001'", "BINARY(3) DEFAULT 'a'"),
    *("VARBINARY(5) DEFAULT x'00ff41'", "JSON", "INT DEFAULT NULL", "TEXT"),
)
OF_MARIADB = (
    *("TEXT DEFAULT 'x😀\\\\'", "BLOB DEFAULT x'00ff'", "UUID DEFAULT '123e4567-e89b-12d3-a456-426655440000'"),
    *("INET6 DEFAULT '::1'", "JSON DEFAULT '{\"a\":1}'"),
)
KINDS = {
    "INT NOT NULL": Default.NONE,
    "ENUM('a') NOT NULL": Default.NONE,
    "INT": Value(None),
    "VARCHAR(9) DEFAULT 'NULL'": Default.CONSTANT,
    "VARCHAR(9) DEFAULT ''": Default.CONSTANT,
    "INT DEFAULT (1 + 1)": Default.COMPUTED,
    "TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP": Default.COMPUTED,
    "INT AS (id + 1)": Default.COMPUTED,
    "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE": Default.NUMBERED,
    "SERIAL": Default.NUMBERED,
}


@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
@pytest.mark.long("the same on another version", only=("MariaDB 10.11",))
def test_the_value_is_what_rows_of_before_have(any_db: Db) -> None:
    """Whatever information_schema shows, with the right to SELECT alone."""
    defaults = DEFAULTS + (
        OF_MARIADB if "maria" in str(query(any_db.connection, "SELECT VERSION()")[0][0]).lower() else ()
    )
    user = f"reader_{any_db.name}"[:32]
    any_db.run(f"CREATE USER {user} IDENTIFIED BY 'secret'", f"GRANT SELECT ON `{any_db.name}`.* TO {user}")
    source = any_db.source.model_copy(update={"user": user, "password": SecretStr("secret")})
    for number, definition in enumerate(defaults):
        table = any_db.table(f"t{number}", "id INT PRIMARY KEY").table
        any_db.run(f"INSERT INTO t{number} VALUES (1), (2)", f"ALTER TABLE t{number} ADD c {definition}")
        with connect(source, stream=True) as connection:
            schema = read_schema(connection, table)
            [rows] = select_rows(connection, schema, "SELECT", f"FROM `{any_db.name}`.t{number}")
        found = with_default_values(source, schema, {"c"}).column("c").default
        assert found == Value(rows["c"][0].as_py()), (definition, found)
    any_db.run(f"DROP USER {user}")


def test_what_is_no_constant_is_told_apart(any_db: Db) -> None:
    """None, NULL, an expression, a number for each row."""
    for number, (definition, kind) in enumerate(KINDS.items()):
        schema = any_db.table(f"t{number}", f"id INT PRIMARY KEY, c {definition}")
        assert schema.column("c").default == kind, definition


@pytest.mark.parametrize(
    ("definition", "choices"),
    [("DATE DEFAULT '0000-00-00'", USUAL), ("DATE DEFAULT '0000-00-00'", Choices(zero_dates="null"))],
)
def test_a_value_that_a_copy_cannot_hold_is_not_read(db: Db, definition: str, choices: Choices) -> None:
    """It does not become another one, not even NULL."""
    db.run("SET SESSION sql_mode = ''")
    db.table("t", f"id INT PRIMARY KEY, c {definition}")
    schema = db.schema("t", choices)
    db.run("INSERT INTO t (id) VALUES (1)")
    assert with_default_values(db.source, schema, {"c"}).column("c").default is Default.CONSTANT


def test_without_a_row_or_the_column_nothing_is_read(db: Db) -> None:
    """Nor of a column that nobody asks for; a server that is away is an error."""
    schema = db.table("t", "id INT PRIMARY KEY, c INT DEFAULT 5")
    assert with_default_values(db.source, schema, {"c"}).column("c").default is Default.CONSTANT
    db.run("INSERT INTO t (id) VALUES (1)")
    assert with_default_values(db.source, schema, set()).column("c").default is Default.CONSTANT
    assert with_default_values(db.source, schema, {"c"}).column("c").default == Value(5)
    gone = replace(schema, columns=(schema.columns[0], replace(schema.column("c"), name="d")))
    assert with_default_values(db.source, gone, {"d"}).column("d").default is Default.CONSTANT
    with pytest.raises(SourceAway):
        with_default_values(db.source.model_copy(update={"port": 1}), schema, {"c"})
