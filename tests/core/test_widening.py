"""Which types hold every value of others, so that rows need no change."""

import pytest

from lakeingest.core.schema import Column, Kind
from lakeingest.core.widening import holds
from lakeingest.mysql.source_types import source_type

KINDS = {"decimal": Kind.DECIMAL, "bit": Kind.BINARY, "datetime": Kind.DATETIME, "time": Kind.TIME, "year": Kind.INT32}
KINDS |= dict.fromkeys(["tinyint", "smallint", "mediumint", "int"], Kind.INT32) | {"bigint": Kind.INT64}
KINDS |= dict.fromkeys(["char", "varchar", "text", "longtext", "enum", "set"], Kind.STRING)
KINDS |= dict.fromkeys(["binary", "varbinary", "blob", "longblob"], Kind.BINARY) | {"double": Kind.DOUBLE}


def column(text: str) -> Column:
    """A column as information_schema has it."""
    declared, _, rest = text.partition(" not null")
    kind = source_type(declared)
    numbers = [int(part) for part in declared.partition("(")[2].partition(")")[0].split(",") if part.isdecimal()]
    is_wide = kind.unsigned and kind.name in {"int", "bigint"}
    return Column(
        "c",
        {"int": Kind.INT64, "bigint": Kind.UINT64}[kind.name] if is_wide else KINDS[kind.name],
        kind,
        nullable="not null" not in text + rest,
        precision=numbers[0] if kind.name == "decimal" else 0,
        scale=numbers[1] if kind.name == "decimal" else 0,
        fraction=numbers[0] if kind.name in {"datetime", "time"} and numbers else 0,
        length=kind.size if kind.name == "binary" else 0,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tinyint", "smallint"),
        ("smallint unsigned", "int"),
        ("tinyint(1)", "tinyint"),
        ("int", "bigint"),
        ("mediumint unsigned", "int unsigned"),
        ("int not null", "int"),
        ("int not null", "bigint"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("varchar(10)", "varchar(300)"),
        ("varchar(10)", "text"),
        ("text", "longtext"),
        ("varbinary(10)", "varbinary(20)"),
        ("blob", "longblob"),
        ("enum('a','b')", "enum('a','b','c')"),
        ("set('a')", "set('a','b')"),
        ("datetime", "datetime(6)"),
        ("double", "double"),
    ],
)
def test_a_wider_type_holds_every_value(before: str, after: str) -> None:
    """And the narrower one does not hold every value of it, if the two differ."""
    assert holds(column(before), column(after), strict=True)
    assert holds(column(after), column(before), strict=True) is (before in {after, "tinyint(1)"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int unsigned", "int"),
        ("tinyint", "tinyint unsigned"),
        ("bigint", "bigint unsigned"),
        ("int", "decimal(20,0)"),
        ("int", "varchar(20)"),
        ("year", "int"),
        ("decimal(10,2)", "decimal(12,3)"),
        ("decimal(10,2)", "decimal(12,2) unsigned"),
        ("char(10)", "varchar(20)"),
        ("varchar(10)", "char(20)"),
        ("text", "varchar(9000)"),
        ("enum('a','b')", "enum('b','a')"),
        ("enum('a')", "set('a','b')"),
        ("enum('a')", "varchar(9)"),
        ("binary(3)", "binary(4)"),
        ("binary(3)", "varbinary(3)"),
        ("bit(3)", "bit(4)"),
        ("time", "time(3)"),
        ("double", "double unsigned"),
        ("datetime(6)", "datetime(3)"),
        ("int", "int not null"),
    ],
)
def test_another_type_does_not(before: str, after: str) -> None:
    """Or not as the same value in the copy."""
    assert not holds(column(before), column(after), strict=True)


def test_a_text_may_have_lost_characters_where_values_did_not_have_to_fit() -> None:
    """Its charset may be another one, which the definition does not tell."""
    assert not holds(column("varchar(10)"), column("varchar(20)"), strict=False)
    assert holds(column("varchar(10)"), column("varchar(10)"), strict=False)
