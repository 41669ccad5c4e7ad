"""Which types hold every value of others, so that rows need no change."""

from dataclasses import fields, replace
from typing import Any

import pytest

from lakeingest.core.ddl.widening import RULES, holds, is_same, unfitting_properties
from lakeingest.core.tables.default import Default
from lakeingest.core.tables.schema import Column, Kind, SourceType
from lakeingest.mysql.source_types import source_type

KINDS = {"decimal": Kind.DECIMAL, "bit": Kind.BINARY, "datetime": Kind.DATETIME, "time": Kind.TIME, "year": Kind.INT32}
KINDS |= dict.fromkeys(["tinyint", "smallint", "mediumint", "int"], Kind.INT32) | {"bigint": Kind.INT64}
KINDS |= dict.fromkeys(["char", "varchar", "text", "longtext", "enum", "set"], Kind.STRING)
KINDS |= dict.fromkeys(["binary", "varbinary", "blob", "longblob"], Kind.BINARY) | {"double": Kind.DOUBLE}
TEXTS = {name for name, kind in KINDS.items() if kind is Kind.STRING}


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
        charset="utf8mb4" if kind.name in TEXTS else "",
        collation="utf8mb4_bin" if kind.name in TEXTS else "",
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
    assert holds(column(before), column(after))
    assert holds(column(after), column(before)) is (before in {after, "tinyint(1)"})


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
    assert not holds(column(before), column(after))


def test_every_property_of_a_column_has_a_rule() -> None:
    """A field that is new in a column or its type needs a decision: what is not looked at is not held."""
    own = {one.name for one in fields(Column)} - {"source_type"}
    assert RULES.keys() == own | {f"source_type.{one.name}" for one in fields(SourceType)}


TEXT, INT, MEMBERS = column("varchar(10)"), column("int"), column("enum('a')")


@pytest.mark.parametrize(
    ("before", "changes", "rules"),
    [
        (TEXT, {"charset": "latin1"}, ("charset",)),
        (TEXT, {"charset": "latin1", "source_type": source_type("varchar(40)")}, ("charset",)),
        (replace(TEXT, charset=""), {}, ("charset",)),
        (MEMBERS, {"charset": "latin1"}, ("charset",)),
        (replace(MEMBERS, charset=""), {}, ("charset",)),
        (column("enum('?')"), {}, ("source_type.members",)),
        (column("enum('a')"), {"source_type": source_type("enum('a','?')")}, ("source_type.members",)),
        (INT, {"default": Default.NUMBERED}, ("default",)),
        (INT, {"generation": "`a` + 1"}, ("generation",)),
        (replace(INT, generation="`a` + 1"), {"generation": "`a` + 1"}, ("generation",)),
        (column("bit(3)"), {"choice": "other"}, ("choice",)),
    ],
)
def test_what_a_statement_may_have_changed_is_not_held(
    before: Column, changes: dict[str, Any], rules: tuple[str, ...]
) -> None:
    """Also where nobody knows what it was before."""
    assert unfitting_properties(before, replace(before, **changes)) == rules


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        (TEXT, {"collation": "utf8mb4_general_ci", "name": "d", "comment": "new"}),
        (replace(INT, default=Default.NUMBERED), {"default": Default.NONE}),
        (replace(column("enum('?')"), charset="latin1"), {"source_type": source_type("enum('?','b')")}),
    ],
)
def test_what_changes_no_value_is_held(before: Column, changes: dict[str, Any]) -> None:
    """Orders, names, comments and what new rows get."""
    assert unfitting_properties(before, replace(before, **changes)) == ()


def test_a_column_is_the_same_only_where_all_is_known() -> None:
    """What is computed from it, and the order of a key, depend on more than its values."""
    assert all(is_same(one, one) for one in (TEXT, INT, MEMBERS))
    assert not is_same(TEXT, replace(TEXT, collation="utf8mb4_general_ci"))
    assert not is_same(replace(TEXT, collation=""), replace(TEXT, collation=""))
    assert not is_same(column("set('?')"), column("set('?')"))
    assert not is_same(INT, replace(INT, nullable=False))
    assert not is_same(INT, replace(INT, generation="1"))
