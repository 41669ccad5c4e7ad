"""The table of types in the documents says what a real server's columns become."""

import importlib.util
from pathlib import Path

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql

# By a row's first cell, columns that it is about; those of MariaDB are in test_mariadb.
COLUMNS = {
    "`tinyint`, `smallint`, `mediumint`, `int`": "TINYINT, SMALLINT UNSIGNED, MEDIUMINT UNSIGNED, INT",
    "`int unsigned`, `bigint`": "INT UNSIGNED, BIGINT",
    "`bigint unsigned`": "BIGINT UNSIGNED",
    "`decimal(p,s)` up to 38 digits": "DECIMAL, DECIMAL(38;30)",
    "`decimal(p,s)` of more than 38 digits": "DECIMAL(39;0), DECIMAL(65;30)",
    "`float`": "FLOAT",
    "`double`": "DOUBLE",
    "`year`": "YEAR",
    "`date`": "DATE",
    "`datetime(f)`": "DATETIME, DATETIME(6)",
    "`timestamp(f)`": "TIMESTAMP NULL, TIMESTAMP(6) NULL",
    "`time(f)`": "TIME, TIME(6)",
    "`char`, `varchar`, `tinytext` to `longtext`": "CHAR(3), VARCHAR(9), TINYTEXT, TEXT, MEDIUMTEXT, LONGTEXT",
    "`enum`, `set`": "ENUM('a'), SET('a')",
    "`json`": "JSON",
    "`bit(1)`": "BIT",
    "`bit(n)`": "BIT(2), BIT(64)",
    "`binary`, `varbinary`, `tinyblob` to `longblob`": "BINARY(3), VARBINARY(9), TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB",
    "`geometry` and its subtypes": "GEOMETRY, POINT, MULTIPOLYGON, GEOMETRYCOLLECTION",
    "`vector`": "VECTOR(3)",
}


def test_the_types_page_agrees_with_a_server(mysql_db: Db) -> None:
    """Each column has the kind of its row, and every row about MySQL has a column."""
    path = Path(__file__).parents[2] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    kinds = {shown: kind for shown, kind, note in generate.TYPES if note != "MariaDB"}
    assert COLUMNS.keys() == kinds.keys()
    types = [(shown, one.replace(";", ",")) for shown, listed in COLUMNS.items() for one in listed.split(", ")]
    columns = ", ".join(f"c{number} {one}" for number, (_, one) in enumerate(types))
    mysql_db.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    found = read_schema(mysql_db.connection, TableId(mysql_db.name, "t")).columns[1:]
    assert [(*row, one.kind) for row, one in zip(types, found, strict=True)] == [(*row, kinds[row[0]]) for row in types]
