"""How far values of foreign keys are compared outside of the server."""

from dataclasses import replace

import pytest

from lakeingest.core.cascades.cascades import ForeignKey, Rule
from lakeingest.core.cascades.comparison import Comparison, collations, comparison
from lakeingest.core.tables.schema import NULL_DATES, Column, Kind, SourceType, TableId, TableSchema

P, C = TableId("m", "parent"), TableId("m", "child")
VALUES, CHANGES, NOTHING = Comparison


def column(kind: Kind, text: str, *members: str) -> Column:
    """A column of this type."""
    return Column("x", kind, SourceType(text, text.partition("(")[0], members=members), charset="utf8mb4")


INT, LONG = column(Kind.INT32, "int"), column(Kind.UINT64, "bigint unsigned")
DATE, BITS, FLAG = column(Kind.DATE, "date"), column(Kind.BOOLEAN, "bit(1)"), column(Kind.BOOLEAN, "tinyint(1)")
WORD, MOMENT, REAL = column(Kind.STRING, "varchar(9)"), column(Kind.MOMENT, "date"), column(Kind.DOUBLE, "double")


@pytest.mark.parametrize(
    ("own", "above", "types", "wanted"),
    [
        (INT, INT, (), VALUES),
        (INT, LONG, (), VALUES),
        (DATE, DATE, ("date",), VALUES),
        (BITS, BITS, ("bit(1)",), VALUES),
        (WORD, WORD, ("varchar utf8mb4_0900_ai_ci",), VALUES),
        (WORD, WORD, ("text latin1_bin",), VALUES),
        (WORD, WORD, ("char cp932_bin",), CHANGES),
        (DATE, DATE, ("?",), CHANGES),
        (DATE, MOMENT, ("date",), CHANGES),
        (MOMENT, MOMENT, ("date",), CHANGES),
        (replace(DATE, choice=NULL_DATES), DATE, ("date",), CHANGES),
        (column(Kind.STRING, "enum('a')", "a"), column(Kind.STRING, "enum('a')", "a"), ("?",), CHANGES),
        (column(Kind.STRING, "enum('')", ""), column(Kind.STRING, "enum('')", ""), ("?",), NOTHING),
        (DATE, replace(DATE, choice=NULL_DATES), ("date",), NOTHING),
        (FLAG, FLAG, (), VALUES),
        (INT, FLAG, (), CHANGES),
        (REAL, REAL, ("double",), NOTHING),
        (replace(WORD, charset="cp932"), replace(WORD, charset="cp932"), ("text cp932_bin",), NOTHING),
        (replace(INT, name="y"), INT, (), NOTHING),
        (INT, replace(INT, name="y"), (), NOTHING),
    ],
)
def test_what_can_be_told(own: Column, above: Column, types: tuple[str, ...], wanted: Comparison) -> None:
    """Of types whose values are each another one in the lake, of texts, and of what loses or hides a difference."""
    key = ForeignKey(C, ("x",), P, ("x",), Rule.CASCADE, Rule.CASCADE, types)
    found = comparison(key, TableSchema(C, (own,), (own.name,)), TableSchema(P, (above,), (above.name,)))
    assert found is wanted


def test_the_collations_of_a_foreign_key() -> None:
    """By the child's columns; an ENUM whose member looks like one has none."""
    types = ("text utf8mb4_bin", "enum('char a')", "")
    key = ForeignKey(C, ("a", "b", "c"), P, ("x", "y", "z"), Rule.CASCADE, Rule.CASCADE, types)
    assert collations(key) == {"a": "utf8mb4_bin"}
    assert collations(replace(key, types=())) == {}
