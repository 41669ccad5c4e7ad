"""Conditions on rows: what is understood, what is refused by name, and which DDL may change what they choose."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.ddl.alteration import Act, Alteration, Change, lifts
from lakeingest.core.ddl.lift import NotLiftable
from lakeingest.core.tables.column_choice import HASHED, ColumnChoice
from lakeingest.core.tables.row_filter import (
    OPERATORS,
    Both,
    Comparison,
    Condition,
    Either,
    IsNull,
    Not,
    OneOf,
    Operand,
    faults,
    is_padded,
    operands,
    parse,
)
from lakeingest.core.tables.schema import NULL_DATES, Choices, Column, Kind, TableSchema
from lakeingest.mysql.source_types import source_type
from tests.core.test_alteration import adding, table
from tests.core.test_left_out_columns import dropping, renaming

A, B = Operand("a"), Operand("b")
ONE, TWO = Decimal(1), Decimal(2)


@pytest.mark.parametrize(
    ("text", "condition", "written"),
    [
        ("a=1", Comparison(A, "=", ONE), "`a` = 1"),
        ("`a` != -1.50", Comparison(A, "<>", Decimal("-1.50")), "`a` <> -1.50"),
        ("a >= + .5", Comparison(A, ">=", Decimal("0.5")), "`a` >= 0.5"),
        ("a = 'it''s'", Comparison(A, "=", "it's"), "`a` = 'it''s'"),
        ("a in (1, 2)", OneOf(A, (ONE, TWO)), "`a` IN (1, 2)"),
        ("a NOT IN ('x')", Not(OneOf(A, ("x",))), "NOT (`a` IN ('x'))"),
        ("a is null", IsNull(A), "`a` IS NULL"),
        ("a IS NOT NULL", Not(IsNull(A)), "NOT (`a` IS NULL)"),
        (
            "a BETWEEN 1 AND 2 AND b = 1",
            Both((Both((Comparison(A, ">=", ONE), Comparison(A, "<=", TWO))), Comparison(B, "=", ONE))),
            "((`a` >= 1) AND (`a` <= 2)) AND (`b` = 1)",
        ),
        (
            "NOT a = 1 OR a < 2 AND b > 1",
            Either((Not(Comparison(A, "=", ONE)), Both((Comparison(A, "<", TWO), Comparison(B, ">", ONE))))),
            "(NOT (`a` = 1)) OR ((`a` < 2) AND (`b` > 1))",
        ),
        ("a NOT BETWEEN 1 AND 2", Not(Both((Comparison(A, ">=", ONE), Comparison(A, "<=", TWO)))), None),
        ("(((a <= 1)))", Comparison(A, "<=", ONE), "`a` <= 1"),
        (
            "`a``b` COLLATE UTF8MB4_BIN = 'x'",
            Comparison(Operand("a`b", "utf8mb4_bin"), "=", "x"),
            "`a``b` COLLATE utf8mb4_bin = 'x'",
        ),
        ("größe <> 1", Comparison(Operand("größe"), "<>", ONE), "`größe` <> 1"),
    ],
)
def test_a_condition_is_read_with_the_precedence_of_sql(text: str, condition: Condition, written: str | None) -> None:
    """And written in one form, which is read back as the same condition."""
    assert parse(text) == condition
    assert parse(str(condition)) == condition
    assert written in {None, str(condition)}


LEAVES = st.one_of(
    st.builds(
        Comparison,
        st.builds(Operand, st.sampled_from(["a", "b`", "AND", "ü x"]), st.sampled_from(["", "utf8mb4_bin"])),
        st.sampled_from(OPERATORS),
        st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000)
        | st.text("ab'é\n", max_size=4),
    ),
    st.builds(OneOf, st.just(A), st.lists(st.just(ONE) | st.just("x"), min_size=1, max_size=3).map(tuple)),
    st.builds(IsNull, st.just(B)),
)


def combined(terms: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    """Conditions of these conditions."""
    several = st.lists(terms, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, terms) | st.builds(Both, several) | st.builds(Either, several)


@given(condition=st.recursive(LEAVES, combined, max_leaves=6))
def test_what_is_written_is_read_back(condition: Condition) -> None:
    """Whatever the names and the literals are."""
    assert parse(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the end: a column should come here"),
        ("a", "the end: a comparison such as"),
        ("1 = a", "1: a column should come here"),
        ("a = b", "b: a number, or a text in single quotes should come here"),
        ("a = 1 b", "b: AND, OR or the end should come here"),
        ("a = 1 AND", "the end: a column should come here"),
        ("(a = 1", r"the end: \) should come here"),
        ("lower(a) = 'x'", r"lower\(…\): functions are not understood"),
        ("a LIKE 'x'", "LIKE: a comparison such as"),
        ("a NOT = 1", "=: a comparison such as"),
        ("a NOT LIKE 'x'", "LIKE: a comparison such as"),
        ("a IS TRUE", "TRUE: NULL should come here"),
        ("a = NULL", "NULL: a number, or a text"),
        ("a = -'x'", "x: a number, or a text"),
        ("a = - - 1", "-: a number, or a text"),
        ("a = 1e3", "'1e3' is not understood"),
        ("a = 0x1F", "'0x1F' is not understood"),
        ("a = 1.2.3", "'1.2.3' is not understood"),
        ('a = "x"', "'\"x\"' is not understood"),
        (r"a = 'x\'", "is not understood"),
        ("a = 1 -- x", "-: AND, OR or the end should come here"),
        ("a = 1 # x", "'# x' is not understood"),
        ("a = 1; DROP TABLE t", "'; DROP TABLE t' is not understood"),
        ("a && b", "'&& b' is not understood"),
        ("a + 1 = 2", r"\+: a comparison such as"),
        ("a IN ()", r"\): a number, or a text"),
        ("a IN (1", r"the end: \) should come here"),
        ("a COLLATE 1 = 'x'", "1: a collation should come here"),
        ("a = 1" + "0" * 38, "has more than 38 digits"),
        ("a <=> 1", r"(?s)>: a number|'> 1' is not understood"),
        ("t.a = 1", "is not understood"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, reason: str) -> None:
    """By its first part that is not understood."""
    with pytest.raises(ValueError, match=reason):
        parse(text)


def column(type_: str, collation: str = "", **fields: object) -> Column:
    """A column of this type, as the server describes it."""
    kinds = {
        "int": Kind.INT32,
        "bigint unsigned": Kind.UINT64,
        "decimal(9,2)": Kind.DECIMAL,
        "tinyint(1)": Kind.BOOLEAN,
        "bit(1)": Kind.BOOLEAN,
        "year": Kind.INT32,
        "date": Kind.DATE,
        "datetime(3)": Kind.DATETIME,
        "timestamp": Kind.TIMESTAMP,
        "double": Kind.DOUBLE,
        "time": Kind.TIME,
        "varbinary(9)": Kind.BINARY,
    }
    found = Column("a", kinds.get(type_, Kind.STRING), source_type(type_), collation=collation)
    return replace(found, charset=collation.partition("_")[0], **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("a = 1 AND a < 1.5", column("int")),
        ("a >= 0", column("bigint unsigned")),
        ("a IN (1.25, -3)", column("decimal(9,2)")),
        ("a = 1", column("tinyint(1)")),
        ("a > '2024-02-29'", column("date")),
        ("a > '2024-02-29' AND a <> '2024-02-29 23:59:59.123456'", column("datetime(3)")),
        ("a BETWEEN '1970-01-01' AND '2038-01-01 00:00:00'", column("timestamp")),
        ("a COLLATE utf8mb4_0900_bin <> 'x'", column("char(9)", "utf8mb4_bin")),
        ("a COLLATE latin1_nopad_bin IN ('x', 'y')", column("text", "latin1_swedish_ci")),
        ("a COLLATE utf8mb4_bin = 'x'", column("varchar(9)", "utf8mb4_0900_ai_ci")),
        ("a COLLATE utf8_bin = 'x'", column("varchar(9)", "utf8mb3_general_ci")),
        ("a COLLATE utf8mb4_bin = 'x'", column("enum('x')", "utf8mb4_general_ci")),
        ("a IS NULL", column("double")),
        ("a IS NOT NULL", column("enum('x')", "utf8mb4_bin")),
        ("a IS NULL", column("varchar(9)", choice=HASHED)),
    ],
)
def test_a_condition_may_compare_what_is_compared_exactly(text: str, of: Column) -> None:
    """Numbers with numbers, times with times, texts by their characters."""
    is_mariadb = "nopad" in text
    assert faults(parse(text), [table("id").columns[0], of], is_mariadb=is_mariadb) == []


@pytest.mark.parametrize(
    ("text", "of", "reason"),
    [
        ("b = 1", column("int"), "b: no such column is copied"),
        ("a = '1'", column("int"), "a: int is compared with numbers"),
        ("a COLLATE utf8mb4_bin = 1", column("int"), "a: int is compared with numbers"),
        ("a = 2024", column("year"), "a: year cannot be compared in a condition, only with IS NULL"),
        ("a = 1", column("bit(1)"), "a: bit(1) cannot be compared"),
        ("a = 1", column("double"), "a: double cannot be compared"),
        ("a = '10:00:00'", column("time"), "a: time cannot be compared"),
        ("a = 'x'", column("varbinary(9)"), "a: varbinary(9) cannot be compared"),
        ("a COLLATE utf8mb4_bin = 'x'", column("set('x')", "utf8mb4_bin"), "a: set('x') cannot be compared"),
        ("a COLLATE utf8mb4_nopad_bin = 'x'", column("text", "utf8mb4_bin"), "a: write `a COLLATE utf8mb4_bin`"),
        ("a = 20240229", column("date"), "a: date is compared with 'YYYY-MM-DD'"),
        ("a = '2024-2-29'", column("date"), "a: date is compared with 'YYYY-MM-DD'"),
        ("a = '2023-02-29'", column("date"), "a: date is compared with 'YYYY-MM-DD'"),
        ("a = '0000-00-00'", column("date"), "a: date is compared with 'YYYY-MM-DD'"),
        ("a = '2024-02-29 00:00:00'", column("date"), "a: date is compared with 'YYYY-MM-DD'"),
        ("a COLLATE utf8mb4_bin = '2024-02-29'", column("date"), "a: date is compared with 'YYYY-MM-DD'"),
        ("a = '2024-02-29T00:00:00'", column("datetime(3)"), "or YYYY-MM-DD hh:mm:ss'"),
        ("a = '2024-02-29 00:00:00+01:00'", column("timestamp"), "or YYYY-MM-DD hh:mm:ss'"),
        ("a = '2024-02-29'", column("date", choice=NULL_DATES), "a: zero dates are NULL in the copy"),
        ("a IS NULL", column("date", choice=NULL_DATES), "a: zero dates are NULL in the copy"),
        ("a COLLATE utf8mb4_bin IS NULL", column("varchar(9)", "utf8mb4_bin"), "a: IS NULL has no COLLATE"),
        ("a = 'x'", column("varchar(9)", "utf8mb4_bin", choice=HASHED), "a: its values are hashed or masked"),
        ("a = 1", column("varchar(9)", "utf8mb4_bin"), "a: varchar(9) is compared with texts"),
        (
            "a COLLATE utf8mb4_bin < 'x'",
            column("varchar(9)", "utf8mb4_bin"),
            "a: texts are compared by =, <> and IN alone",
        ),
        ("a = 'x'", column("varchar(9)", "utf8mb4_bin"), "a: write `a COLLATE utf8mb4_bin`, which says how texts are"),
        ("a COLLATE utf8mb4_general_ci = 'x'", column("varchar(9)", "utf8mb4_bin"), "a: write `a COLLATE utf8mb4_bin`"),
        ("a COLLATE utf8mb4_bin = 'x'", column("varchar(9)", "latin1_bin"), "write `a COLLATE latin1_bin`"),
        ("a = 'x'", column("varchar(9)", "sjis_bin"), "a: texts in the charset sjis cannot be compared"),
        ("a = 'x'", column("varchar(9)"), "a: texts in the charset binary cannot be compared"),
    ],
)
def test_what_a_server_may_compare_in_another_way_is_refused(text: str, of: Column, reason: str) -> None:
    """By the name of the column; each reason once."""
    for twice in (text, f"({text}) OR NOT ({text})"):
        [fault] = faults(parse(twice), [of], is_mariadb=False)
        assert fault.startswith("tables.options → rows: ")
        assert reason in fault


def test_columns_are_named_as_at_the_source_in_any_case() -> None:
    """Spaces at the end count in some collations."""
    renamed = column("int").named("Amount", ColumnChoice(rename=(("amount", "total"),)))
    assert faults(parse("AMOUNT > 1 AND NOT (amount IN (2) OR amount = 3)"), [renamed], is_mariadb=True) == []
    assert faults(parse("total > 1"), [renamed], is_mariadb=True) == [
        "tables.options → rows: total: no such column is copied"
    ]
    assert operands(parse("A = 1 OR `Ü` IS NULL AND NOT a = 2")) == {"a", "ü"}
    assert [is_padded(name) for name in ("utf8mb4_bin", "utf8mb4_0900_bin", "utf8mb4_nopad_bin")] == [
        True,
        False,
        False,
    ]


def chosen(schema: TableSchema, rows: str = "`a` > 1") -> TableSchema:
    """The definition of the same table, of which only these rows are copied."""
    return replace(schema, choices=Choices(rows=rows))


def test_a_condition_is_part_of_the_definition() -> None:
    """Another one means other rows; without one, a table is as it always was."""
    plain = table("id", "a")
    assert chosen(plain, "").fingerprint == plain.fingerprint
    assert len({plain.fingerprint, chosen(plain).fingerprint, chosen(plain, "`a` > 2").fingerprint}) == 3


@pytest.mark.parametrize(
    ("before", "ddl", "now"),
    [
        ("id a", [adding(("b", None))], "id a b"),
        ("id a b", [dropping("b")], "id a"),
        ("id a b", [renaming("b", "c")], "id a c"),
        ("id a", [Alteration((Change(Act.DEFINE, "a", "a", ""),))], "a id"),
        ("id a", [renaming("a", "A")], "id A"),
    ],
)
def test_ddl_of_other_columns_is_followed(before: str, ddl: Sequence[Alteration], now: str) -> None:
    """Also a move, and another case of letters."""
    [lift] = lifts(chosen(table(*before.split())), ddl, chosen(table(*now.split())))
    assert lift.after == chosen(table(*now.split()))


@pytest.mark.parametrize(
    ("ddl", "now", "reason"),
    [
        ([renaming("a", "c"), renaming("c", "a")], "id a b", "a column that chooses the rows has another name"),
        ([renaming("a", "c"), renaming("b", "a")], "id c a", "a column that chooses the rows has another name"),
        ([Alteration((Change(Act.RENAME, "a", "b"), Change(Act.RENAME, "b", "a")))], "id b a", "was another column"),
        ([Alteration((Change(Act.DROP, "a", "a"), Change(Act.ADD, "a", "a")))], "id b a", "was another column"),
    ],
)
def test_ddl_that_may_change_what_is_chosen_is_not_followed(ddl: Sequence[Alteration], now: str, reason: str) -> None:
    """Then all rows are read again, and chosen by the column that has the name now."""
    with pytest.raises(NotLiftable, match=reason):
        lifts(chosen(table("id", "a", "b")), ddl, chosen(table(*now.split())))
