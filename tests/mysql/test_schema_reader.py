from collections.abc import Iterator

import pytest

from lakeingest.core.schema import Kind, TableId, TableSchema
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
    "INT DEFAULT (1 + 1)": (Kind.INT32, (0, 0, 0, 0)),  # DEFAULT_GENERATED is not a generated column
}

# columns in CREATE TABLE -> what the refusal says, of which column or key
REFUSED: dict[str, tuple[str, ...]] = {
    "id INT PRIMARY KEY, c DECIMAL(39,0) ZEROFILL": ("c is decimal(39,0) unsigned zerofill: its text form is padded",),
    "id INT PRIMARY KEY, c FLOAT(7,2)": ("column c is float(7,2): its text form is rounded",),
    "id INT PRIMARY KEY, c DOUBLE(9,3)": ("column c is double(9,3): its text form is rounded",),
    "id INT PRIMARY KEY, c INT GENERATED ALWAYS AS (id + 1) STORED": ("column c is int: generated",),
    "id INT PRIMARY KEY, c INT GENERATED ALWAYS AS (id + 1) VIRTUAL": ("column c is int: generated",),
    "id INT PRIMARY KEY, c INT INVISIBLE": ("column c is int: invisible",),
    "id INT, c INT": ("it has no primary key",),
    "id INT NOT NULL UNIQUE, c INT": ("it has no primary key",),
    "id VARCHAR(9) PRIMARY KEY": ("key column id is varchar(9); only integer keys",),
    "id DECIMAL(9,0) PRIMARY KEY": ("key column id is decimal(9,0); only integer keys",),
    "id DATE PRIMARY KEY": ("key column id is date; only integer keys",),
    "id BINARY(16) PRIMARY KEY": ("key column id is binary(16); only integer keys",),
    "id ENUM('a') PRIMARY KEY": ("key column id is enum('a'); only integer keys",),
    "id DOUBLE PRIMARY KEY": ("key column id is double; only integer keys",),
    "id TEXT, PRIMARY KEY (id(5))": ("key column id is text; only integer keys",),
    "a INT, b VARCHAR(9), PRIMARY KEY (a, b)": ("key column b is varchar(9); only integer keys",),
    "id INT PRIMARY KEY, `a.b` INT": ("column a.b is int: names with such signs",),
    "id INT PRIMARY KEY, `a``b` INT": ("column a`b is int: names with such signs",),
    'id INT PRIMARY KEY, `a"b` INT': ('column a"b is int: names with such signs',),
    "id INT PRIMARY KEY, `a%b` INT": ("column a%b is int: names with such signs",),
    "id INT PRIMARY KEY, `a\nb` INT": ("names with such signs",),
    "id INT PRIMARY KEY, `-a` INT": ("column -a is int: names with such signs",),
    "id INT PRIMARY KEY, _lakeingest_x INT": ("column _lakeingest_x is int: names that begin with _lakeingest_",),
    "id INT PRIMARY KEY, _LakeIngest_Kind INT": ("names that begin with _lakeingest_ are ours",),
    "id VARCHAR(9), `d.e` TIME INVISIBLE, f DOUBLE(9,3), PRIMARY KEY (id)": (
        "key column id is varchar(9); only integer keys",
        "column d.e is time: invisible",
        "column d.e is time: names with such signs",
        "column f is double(9,3): its text form is rounded",
    ),
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
    """With what the readers need of the type: digits, digits of a second, length of the padding."""
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


@pytest.mark.parametrize("columns", REFUSED)
def test_what_would_not_arrive_exact_is_refused_by_name(db: Db, columns: str) -> None:
    """Every reason is in the one message, with the way out."""
    with pytest.raises(UnsupportedTable) as caught:
        db.table("t", columns)
    message = str(caught.value)
    assert message.startswith(f"{db.name}.t: ")
    assert all(reason in message for reason in REFUSED[columns]), message
    assert message.count(";") + 1 >= len(REFUSED[columns])
    assert "tables.exclude" in message


@pytest.mark.parametrize("name", ["a.b", "a`b", "a/b", "a'b"])
def test_a_table_with_an_odd_name_is_refused(db: Db, name: str) -> None:
    """Its name would have to be escaped in too many places."""
    quoted = name.replace("`", "``")
    db.run(f"CREATE TABLE `{quoted}` (id INT PRIMARY KEY)")
    with pytest.raises(UnsupportedTable, match="names with other signs"):
        read_schema(db.connection, TableId(db.name, name))


@pytest.mark.parametrize("name", ["none", "no'ne", "no\\ne", "No"])
def test_an_unknown_table_needs_an_operator(db: Db, name: str) -> None:
    """The table is named, whatever signs are in its name."""
    with pytest.raises(OperatorNeeded, match="no such table") as caught:
        read_schema(db.connection, TableId(db.name, name))
    assert f"{db.name}.{name}" in str(caught.value)


def test_the_listed_tables_are_base_tables_of_users(db: Db) -> None:
    """No views, none of MySQL's own schemas; sorted."""
    db.run("CREATE TABLE b (id INT)", "CREATE TABLE a (id INT)", "CREATE VIEW v AS SELECT * FROM a")
    tables = list_tables(db.connection)
    assert [table.name for table in tables if table.database == db.name] == ["a", "b"]
    assert not {table.database for table in tables} & {"mysql", "sys", "performance_schema", "information_schema"}


@pytest.mark.parametrize("change", MATTERS)
def test_a_change_of_the_definition_that_matters_changes_the_fingerprint(db: Db, change: str) -> None:
    """Rows read before and after it do not go into one table."""
    before = db.table("t", f"{BASE.replace('u INT', 'u INT NOT NULL')}" if "PRIMARY" in change else BASE)
    db.run(f"ALTER TABLE t {change}")
    assert read_schema(db.connection, before.table).fingerprint != before.fingerprint


@pytest.mark.parametrize("change", DOES_NOT_MATTER)
def test_a_change_that_maps_rows_as_before_keeps_the_fingerprint(db: Db, change: str) -> None:
    """An index, a default, a comment or a rebuild are no reason to copy a table again."""
    before = db.table("t", BASE)
    db.run(f"ALTER TABLE t {change}")
    assert read_schema(db.connection, before.table).fingerprint == before.fingerprint


def test_a_change_of_charset_keeps_the_fingerprint(db: Db) -> None:
    """The same text in other bytes, which say themselves in which charset they are."""
    before = db.table("t", BASE)
    db.run("ALTER TABLE t MODIFY s VARCHAR(9) CHARACTER SET latin1")
    assert read_schema(db.connection, before.table).fingerprint == before.fingerprint
