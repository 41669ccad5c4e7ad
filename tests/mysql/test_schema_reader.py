from collections.abc import Iterator

import pytest

from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import Choices, Kind, TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded, UnsupportedTable
from lakeingest.mysql.schema_reader import list_tables, read_schema
from tests.mysql.database import Db, database_on

pytestmark = pytest.mark.mysql

LONG_NAME = "c" * 64

# type in CREATE TABLE -> kind, and (precision, scale, fraction, length)
SUPPORTED: dict[str, tuple[Kind, tuple[int, int, int, int]]] = {
    "TINYINT": (Kind.INT32, (0, 0, 0, 0)),
    "TINYINT(1)": (Kind.INT32, (0, 0, 0, 0)),
    "BOOLEAN": (Kind.INT32, (0, 0, 0, 0)),
    "TINYINT UNSIGNED": (Kind.INT32, (0, 0, 0, 0)),
    "SMALLINT": (Kind.INT32, (0, 0, 0, 0)),
    "SMALLINT UNSIGNED": (Kind.INT32, (0, 0, 0, 0)),
    "MEDIUMINT": (Kind.INT32, (0, 0, 0, 0)),
    "MEDIUMINT UNSIGNED": (Kind.INT32, (0, 0, 0, 0)),
    "INT": (Kind.INT32, (0, 0, 0, 0)),
    "INT UNSIGNED": (Kind.INT64, (0, 0, 0, 0)),
    "INT(7) ZEROFILL": (Kind.INT64, (0, 0, 0, 0)),  # zerofill is unsigned
    "BIGINT": (Kind.INT64, (0, 0, 0, 0)),
    "BIGINT UNSIGNED": (Kind.UINT64, (0, 0, 0, 0)),
    "DECIMAL": (Kind.DECIMAL, (10, 0, 0, 0)),
    "DECIMAL(7,2)": (Kind.DECIMAL, (7, 2, 0, 0)),
    "DECIMAL(12,10) UNSIGNED": (Kind.DECIMAL, (12, 10, 0, 0)),
    "DECIMAL(38,0)": (Kind.DECIMAL, (38, 0, 0, 0)),
    "DECIMAL(38,30)": (Kind.DECIMAL, (38, 30, 0, 0)),
    "NUMERIC(5,5)": (Kind.DECIMAL, (5, 5, 0, 0)),
    "DECIMAL(39,0)": (Kind.NUMERAL, (39, 0, 0, 0)),
    "DECIMAL(65,30) UNSIGNED": (Kind.NUMERAL, (65, 30, 0, 0)),
    "FLOAT": (Kind.FLOAT, (0, 0, 0, 0)),
    "FLOAT(24)": (Kind.FLOAT, (0, 0, 0, 0)),
    "FLOAT(7,2)": (Kind.FLOAT, (0, 0, 0, 0)),
    "DOUBLE(9,3) UNSIGNED ZEROFILL": (Kind.DOUBLE, (0, 0, 0, 0)),
    "DECIMAL(39,0) ZEROFILL": (Kind.NUMERAL, (39, 0, 0, 0)),
    "FLOAT(25)": (Kind.DOUBLE, (0, 0, 0, 0)),
    "DOUBLE": (Kind.DOUBLE, (0, 0, 0, 0)),
    "REAL": (Kind.DOUBLE, (0, 0, 0, 0)),
    "DATE": (Kind.DATE, (0, 0, 0, 0)),
    "DATETIME": (Kind.DATETIME, (0, 0, 0, 0)),
    "DATETIME(3)": (Kind.DATETIME, (0, 0, 3, 0)),
    "DATETIME(6)": (Kind.DATETIME, (0, 0, 6, 0)),
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)": (Kind.DATETIME, (0, 0, 6, 0)),
    "TIME": (Kind.TIME, (0, 0, 0, 0)),
    "TIME(6)": (Kind.TIME, (0, 0, 6, 0)),
    "YEAR": (Kind.INT32, (0, 0, 0, 0)),
    "TIMESTAMP NULL": (Kind.TIMESTAMP, (0, 0, 0, 0)),
    "TIMESTAMP(6) NULL": (Kind.TIMESTAMP, (0, 0, 6, 0)),
    "CHAR(3)": (Kind.STRING, (0, 0, 0, 0)),
    "VARCHAR(200)": (Kind.STRING, (0, 0, 0, 0)),
    "VARCHAR(20) CHARACTER SET ascii": (Kind.STRING, (0, 0, 0, 0)),
    "VARCHAR(20) CHARACTER SET utf8mb3": (Kind.STRING, (0, 0, 0, 0)),
    "VARCHAR(20) COLLATE utf8mb4_bin": (Kind.STRING, (0, 0, 0, 0)),
    "TINYTEXT": (Kind.STRING, (0, 0, 0, 0)),
    "TEXT": (Kind.STRING, (0, 0, 0, 0)),
    "MEDIUMTEXT": (Kind.STRING, (0, 0, 0, 0)),
    "LONGTEXT": (Kind.STRING, (0, 0, 0, 0)),
    "ENUM('a','b')": (Kind.STRING, (0, 0, 0, 0)),
    "ENUM('COMPRESSED','mariadb-5.3')": (Kind.STRING, (0, 0, 0, 0)),
    "SET('a','b')": (Kind.STRING, (0, 0, 0, 0)),
    "VARCHAR(9) CHARACTER SET latin1": (Kind.STRING, (0, 0, 0, 0)),
    "TEXT CHARACTER SET utf16": (Kind.STRING, (0, 0, 0, 0)),
    "CHAR(9) CHARACTER SET gb18030": (Kind.STRING, (0, 0, 0, 0)),
    "ENUM('ä') CHARACTER SET cp1250": (Kind.STRING, (0, 0, 0, 0)),
    "JSON": (Kind.JSON, (0, 0, 0, 0)),
    "BINARY(5)": (Kind.BINARY, (0, 0, 0, 5)),
    "BINARY": (Kind.BINARY, (0, 0, 0, 1)),
    "VARBINARY(5)": (Kind.BINARY, (0, 0, 0, 0)),
    "TINYBLOB": (Kind.BINARY, (0, 0, 0, 0)),
    "BLOB": (Kind.BINARY, (0, 0, 0, 0)),
    "MEDIUMBLOB": (Kind.BINARY, (0, 0, 0, 0)),
    "LONGBLOB": (Kind.BINARY, (0, 0, 0, 0)),
    "BIT": (Kind.BOOLEAN, (0, 0, 0, 0)),
    "BIT(2)": (Kind.BINARY, (0, 0, 0, 0)),
    "BIT(64)": (Kind.BINARY, (0, 0, 0, 0)),
    "GEOMETRY": (Kind.BINARY, (0, 0, 0, 0)),
    "POINT SRID 4326": (Kind.BINARY, (0, 0, 0, 0)),
    "GEOMETRYCOLLECTION": (Kind.BINARY, (0, 0, 0, 0)),
    "MULTIPOLYGON": (Kind.BINARY, (0, 0, 0, 0)),
    "VECTOR(3)": (Kind.VECTOR, (0, 0, 0, 0)),
    "INT DEFAULT (1 + 1)": (Kind.INT32, (0, 0, 0, 0)),
    "INT GENERATED ALWAYS AS (id + 1) STORED": (Kind.INT32, (0, 0, 0, 0)),
    "DECIMAL(9,2) GENERATED ALWAYS AS (id / 3) VIRTUAL": (Kind.DECIMAL, (9, 2, 0, 0)),
    "DATE INVISIBLE": (Kind.DATE, (0, 0, 0, 0)),
}

# columns in CREATE TABLE -> what the refusal says, of which column or key
REFUSED: dict[str, tuple[str, ...]] = {
    "id INT, c INT": ("it has neither a primary key nor a unique key of NOT NULL columns", "tables.options → key"),
    "id INT UNIQUE, c INT": ("it has neither a primary key nor",),
    "id VARCHAR(9) NOT NULL, UNIQUE KEY (id(5))": ("it has neither a primary key nor",),
    "id INT NOT NULL, UNIQUE KEY ((id + 1))": ("it has neither a primary key nor",),
    "id FLOAT NOT NULL UNIQUE": ("it has neither a primary key nor",),
    "id DOUBLE PRIMARY KEY": ("key column id is double: no comparison finds", "tables.options → key"),
    "a INT, b FLOAT, PRIMARY KEY (a, b)": ("key column b is float: no comparison finds its values exactly",),
    "id TEXT, PRIMARY KEY (id(5))": ("the index PRIMARY has only the beginning of id", "tables.options → key"),
    "id INT PRIMARY KEY, `a\nb` INT": ("its name cannot be printed",),
    "id INT PRIMARY KEY, `.a` INT": ("column .a is int: its name cannot be printed, or begins with a dot",),
    "id INT PRIMARY KEY, _lakeingest_x INT": ("column _lakeingest_x is int: names that begin with _lakeingest_",),
    "id INT PRIMARY KEY, _LakeIngest_Kind INT": ("names that begin with _lakeingest_ are reserved",),
    "id INT PRIMARY KEY, e ENUM('a','b') CHARACTER SET binary": ("column e is enum('a','b'): members of bytes",),
    "id INT PRIMARY KEY, s SET('a') CHARACTER SET binary": ("column s is set('a'): members of bytes",),
    "id ENUM('😀','b') PRIMARY KEY": ("the server may show its members with other characters",),
    "id REAL, `.e` TIME, _lakeingest_f INT, PRIMARY KEY (id)": (
        "key column id is double: no comparison finds",
        "column .e is time: its name cannot be printed, or begins with a dot",
        "column _lakeingest_f is int: names that begin",
    ),
}

# columns in CREATE TABLE -> the key
KEYS: dict[str, tuple[str, ...]] = {
    "a INT NOT NULL UNIQUE, b INT": ("a",),
    "a INT NOT NULL UNIQUE, b INT PRIMARY KEY": ("b",),
    "a VARCHAR(9) NOT NULL UNIQUE, b DATE NOT NULL, c INT NOT NULL, UNIQUE KEY (c, b)": ("a",),
    "a VARCHAR(9) NOT NULL UNIQUE, b INT NOT NULL, c INT NOT NULL, UNIQUE KEY (c, b)": ("c", "b"),
    "a INT UNIQUE, b DATE NOT NULL, UNIQUE KEY (b)": ("b",),
    "a DOUBLE PRIMARY KEY, b BINARY(4) NOT NULL UNIQUE": ("b",),
    "a TEXT, b INT NOT NULL UNIQUE, PRIMARY KEY (a(5))": ("b",),
    "a INT NOT NULL, b INT NOT NULL, UNIQUE KEY y (a), UNIQUE KEY x (b)": ("b",),
    "a INT NOT NULL, b INT NOT NULL, UNIQUE KEY y (a), UNIQUE KEY x (b) INVISIBLE": ("a",),
}

BASE = "id INT PRIMARY KEY, d DECIMAL(9,2), s VARCHAR(9), t DATETIME(3), b BINARY(4), e ENUM('a','b'), u INT"
MATTERS = (
    "ADD COLUMN z INT",
    "ADD COLUMN z INT FIRST",
    "DROP COLUMN u",
    "RENAME COLUMN u TO z",
    "MODIFY u INT AFTER id",
    "MODIFY u BIGINT",
    "MODIFY u INT UNSIGNED",
    "MODIFY u INT NOT NULL",
    "MODIFY d DECIMAL(9,3)",
    "MODIFY d DECIMAL(12,2)",
    "MODIFY s VARCHAR(10)",
    "MODIFY t DATETIME(6)",
    "MODIFY t TIMESTAMP(3) NULL",
    "MODIFY b BINARY(8)",
    "MODIFY b VARBINARY(4)",
    "MODIFY e ENUM('b','a')",
    "MODIFY e ENUM('a','b','c')",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id, u)",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (u)",
)
DOES_NOT_MATTER = ("ADD INDEX (u)", "MODIFY u INT DEFAULT 7", "COMMENT = 'x'", "AUTO_INCREMENT = 100", "FORCE")


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


@pytest.fixture(scope="module")
def supported(mysql_server: LocalServer) -> Iterator[TableSchema]:
    """A table with a column of every supported type."""
    columns = ", ".join(f"c{number} {source_type}" for number, source_type in enumerate(SUPPORTED))
    with database_on(mysql_server) as database:
        yield database.table("t", f"id INT PRIMARY KEY, {columns}")


@pytest.mark.parametrize("source_type", SUPPORTED)
def test_a_supported_type_has_its_kind(supported: TableSchema, source_type: str) -> None:
    """With the digits, fraction and length that the readers need."""
    column = supported.columns[1 + list(SUPPORTED).index(source_type)]
    assert (column.kind, (column.precision, column.scale, column.fraction, column.length)) == SUPPORTED[source_type]
    assert column.nullable


def test_columns_come_in_the_order_of_the_table_and_keys_in_the_order_of_the_key(db: Db) -> None:
    """A key of several columns keeps its own order, and its columns are not nullable."""
    schema = db.table("t", "v INT, b INT, `a 1$-ä` INT, PRIMARY KEY (`a 1$-ä`, b)")
    assert schema.names == ("v", "b", "a 1$-ä")
    assert schema.key == ("a 1$-ä", "b")
    assert [column.nullable for column in schema.columns] == [True, False, False]


def test_every_kind_of_integer_can_be_a_key(db: Db) -> None:
    """Signed or not, of any width, and with the longest name."""
    for number, source_type in enumerate(("TINYINT", "MEDIUMINT UNSIGNED", "INT UNSIGNED", "BIGINT UNSIGNED")):
        schema = db.table(f"t{number}", f"{LONG_NAME} {source_type} PRIMARY KEY")
        assert schema.key == (LONG_NAME,)


@pytest.mark.parametrize("columns", KEYS)
def test_the_key_is_chosen_from_the_indexes(db: Db, columns: str) -> None:
    """The primary key; else a unique key of NOT NULL columns, preferably of integers and of few columns."""
    assert db.table("t", columns).key == KEYS[columns]


@pytest.mark.parametrize("declared", [("b",), ("b", "a"), ("t",)])
def test_a_key_can_be_declared(db: Db, declared: tuple[str, ...]) -> None:
    """The columns that the user names take precedence over every index."""
    db.run("CREATE TABLE d (a INT PRIMARY KEY, b INT, t TEXT)")
    schema = read_schema(db.connection, TableId(db.name, "d"), Choices(declared))
    assert (schema.key, schema.declared) == (declared, True)


@pytest.mark.parametrize(("declared", "reason"), [("x", "which is not a column"), ("f", "finds"), ("j", "no order")])
def test_a_declared_key_must_have_suitable_columns(db: Db, declared: str, reason: str) -> None:
    """Other columns are refused by name."""
    db.run("CREATE TABLE d (a INT PRIMARY KEY, f FLOAT, j JSON)")
    with pytest.raises(UnsupportedTable, match=rf"tables\.options → key names {declared}.*{reason}"):
        read_schema(db.connection, TableId(db.name, "d"), Choices(("a", declared)))


@pytest.mark.parametrize("columns", REFUSED)
def test_tables_that_cannot_be_copied_exactly_are_refused(db: Db, columns: str) -> None:
    """The message has every reason, and the fix."""
    with pytest.raises(UnsupportedTable) as caught:
        db.table("t", columns)
    message = str(caught.value)
    assert message.startswith(f"{db.name}.t: ")
    assert all(reason in message for reason in REFUSED[columns]), message
    assert message.count(";") + 1 >= len(REFUSED[columns])
    assert "tables.exclude" in message


@pytest.mark.parametrize("name", ["a.b", "a`b", "a/b", "a'b", 'a"b', "❤ %s", "order", "-1", "a\\b"])
def test_a_table_or_a_column_can_have_any_name(db: Db, name: str) -> None:
    """Dots, quotes, other alphabets, reserved words."""
    quoted = quote(name)
    db.run(f"CREATE TABLE {quoted} ({quoted} INT PRIMARY KEY)")
    table = TableId(db.name, name)
    schema = read_schema(db.connection, table)
    assert (schema.table, schema.key) == (table, (name,))
    assert table in list_tables(db.connection)


def test_an_unprintable_name_is_refused(db: Db) -> None:
    """It would break every line that has it."""
    db.run("CREATE TABLE `a\nb` (id INT PRIMARY KEY)")
    with pytest.raises(UnsupportedTable, match="its name has unprintable characters"):
        read_schema(db.connection, TableId(db.name, "a\nb"))


@pytest.mark.parametrize("name", ["none", "no'ne", "no\\ne", "No"])
def test_an_unknown_table_needs_an_operator(db: Db, name: str) -> None:
    """The message names the table, whatever characters its name has."""
    with pytest.raises(OperatorNeeded, match="no such table") as caught:
        read_schema(db.connection, TableId(db.name, name))
    assert f"{db.name}.{name}" in str(caught.value)


def test_list_tables_returns_the_base_tables_of_users(db: Db) -> None:
    """Without views and system schemas; sorted."""
    db.run("CREATE TABLE b (id INT)", "CREATE TABLE a (id INT)", "CREATE VIEW v AS SELECT * FROM a")
    tables = list_tables(db.connection)
    assert [table.name for table in tables if table.database == db.name] == ["a", "b"]
    assert not {table.database for table in tables} & {"mysql", "sys", "performance_schema", "information_schema"}


@pytest.mark.parametrize("change", MATTERS)
def test_a_relevant_change_of_the_definition_changes_the_fingerprint(db: Db, change: str) -> None:
    """Rows read before and after it must not be in the same table."""
    before = db.table("t", f"{BASE.replace('u INT', 'u INT NOT NULL')}" if "PRIMARY" in change else BASE)
    db.run(f"ALTER TABLE t {change}")
    assert read_schema(db.connection, before.table).fingerprint != before.fingerprint


@pytest.mark.parametrize("change", DOES_NOT_MATTER)
def test_an_irrelevant_change_keeps_the_fingerprint(db: Db, change: str) -> None:
    """The table is not copied again for an index, a default, a comment or a rebuild."""
    before = db.table("t", BASE)
    db.run(f"ALTER TABLE t {change}")
    assert read_schema(db.connection, before.table).fingerprint == before.fingerprint


def test_comments_are_read_and_keep_the_fingerprint(db: Db) -> None:
    """Of the table and of its columns, with any characters; they are for readers of the copy."""
    before = db.table("t", BASE)
    db.run("ALTER TABLE t COMMENT 'it''s\nübrig', MODIFY u INT COMMENT 'größe \"✓\"'")
    now = read_schema(db.connection, before.table)
    assert (before.comment, {column.comment for column in before.columns}) == ("", {""})
    assert (now.comment, [column.comment for column in now.columns if column.name == "u"]) == (
        "it's\nübrig",
        ['größe "✓"'],
    )
    assert now.fingerprint == before.fingerprint


def test_a_change_of_charset_keeps_the_fingerprint(db: Db) -> None:
    """The text stays the same; the server names the charset with its bytes."""
    before = db.table("t", BASE)
    db.run("ALTER TABLE t MODIFY s VARCHAR(9) CHARACTER SET latin1")
    assert read_schema(db.connection, before.table).fingerprint == before.fingerprint
