"""Cast values are the same from a chunk and from the binlog, and are what the server prints."""

import pytest

from lakeingest.core.tables.column_choice import ColumnChoice
from lakeingest.core.tables.schema import Choices, TableId
from lakeingest.errors import UnsupportedTable, UnsupportedValue
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import Db
from tests.mysql.test_hidden_values import values_of

pytestmark = pytest.mark.mysql

# the type in the copy, and the type of the source -> pairs of an SQL literal and the value in the copy
CAST: dict[tuple[str, str], list[tuple[str, object]]] = {
    ("string", "TINYINT(1)"): [("-128", "-128"), ("0", "0")],
    ("string", "MEDIUMINT UNSIGNED ZEROFILL"): [("7", "7"), ("16777215", "16777215")],
    ("string", "INT"): [("-2147483648", "-2147483648"), ("2147483647", "2147483647")],
    ("string", "INT UNSIGNED"): [("4294967295", "4294967295")],
    ("string", "BIGINT"): [("-9223372036854775808", "-9223372036854775808")],
    ("string", "BIGINT UNSIGNED ZEROFILL"): [("0", "0"), ("18446744073709551615", "18446744073709551615")],
    ("string", "DECIMAL(12,3)"): [("-0.5", "-0.500"), ("7", "7.000"), ("0", "0.000")],
    ("string", "DECIMAL(38,0)"): [("9" * 38, "9" * 38), ("-1", "-1")],
    ("string", "DECIMAL(50,1)"): [("1.5", "1.5")],
    ("string", "DATE"): [("'2024-02-29'", "2024-02-29"), ("'0000-00-00'", "0000-00-00")],
    ("string", "DATETIME(2)"): [("'2024-02-29 01:02:03.5'", "2024-02-29 01:02:03.50")],
    ("string", "TIMESTAMP NULL"): [("'2024-02-29 01:02:03'", "2024-02-29 01:02:03")],
    ("string", "TIME(1)"): [("'-01:02:03.5'", "-01:02:03.5")],
    ("string", "JSON"): [("'{\"b\": 1}'", '{"b": 1}')],
    ("string", "ENUM('x', 'y')"): [("'y'", "y")],
    ("bigint", "TINYINT(1)"): [("-128", -128), ("1", 1)],
    ("bigint", "INT"): [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
    ("bigint", "INT UNSIGNED"): [("4294967295", 2**32 - 1)],
    ("bigint", "YEAR"): [("2024", 2024), ("0", 0)],
    ("boolean", "TINYINT(1)"): [("1", True), ("0", False)],
    ("boolean", "BIT(1)"): [("1", True), ("0", False)],
}


@pytest.mark.parametrize(("to", "type_"), CAST)
@pytest.mark.long("each type on one server in turn", turn="any_server")
def test_a_cast_value_is_what_the_server_prints(any_db: Db, to: str, type_: str) -> None:
    """On both ways of reading, and NULL stays NULL."""
    pairs = CAST[to, type_]
    choices = Choices(columns=ColumnChoice(cast=(("V", to),)))
    in_chunk, in_binlog = values_of(any_db, choices, type_, [literal for literal, _ in pairs])
    assert in_chunk == in_binlog == [*(value for _, value in pairs), None]


@pytest.mark.parametrize(
    ("to", "type_", "reason"),
    [
        ("string", "DOUBLE", "column v is double: it cannot be cast to string: its values have no exact text"),
        ("string", "BLOB", "column v is blob: it cannot be cast to string"),
        ("bigint", "BIGINT UNSIGNED", r"column v is bigint( unsigned|\(20\) unsigned): it cannot be cast to bigint"),
        ("boolean", "TINYINT", r"column v is tinyint(\(4\))?: it cannot be cast to boolean: only tinyint\(1\) and"),
    ],
)
def test_a_cast_that_may_lose_a_value_is_refused(any_db: Db, to: str, type_: str, reason: str) -> None:
    """By name, with the reason."""
    any_db.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {type_})")
    with pytest.raises(UnsupportedTable, match=reason):
        read_schema(any_db.connection, TableId(any_db.name, "t"), Choices(columns=ColumnChoice(cast=(("v", to),))))


def test_a_key_is_cast_only_to_bigint(db: Db) -> None:
    """A wider integer has the same order."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    to_text, to_bigint = (Choices(columns=ColumnChoice(cast=(("ID", to),))) for to in ("string", "bigint"))
    with pytest.raises(UnsupportedTable, match=r"key column id is cast to string, .* can be cast to bigint alone"):
        read_schema(db.connection, TableId(db.name, "t"), to_text)
    assert read_schema(db.connection, TableId(db.name, "t"), to_bigint).countable


def test_a_flag_that_is_neither_0_nor_1_is_no_boolean(db: Db) -> None:
    """It stops the table."""
    with pytest.raises(UnsupportedValue, match=r"column v \(tinyint\(1\)\)"):
        values_of(db, Choices(columns=ColumnChoice(cast=(("v", "boolean"),))), "TINYINT(1)", ["2"])
