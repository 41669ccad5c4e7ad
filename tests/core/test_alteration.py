"""Definitions between several alterations are put together from those before and after all of them."""

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.ddl.alteration import FIRST, Act, Alteration, Change, added, lifts
from lakeingest.core.ddl.lift import Lift, NotLiftable, Unexplained
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.schema import Choices, Column, Kind, SourceType, TableId, TableSchema
from lakeingest.mysql.source_types import source_type

ORDERS = TableId("shop", "orders")


def column(name: str, *, nullable: bool = True, kind: str = "int") -> Column:
    """A column of numbers; in older rows it is NULL, or 0."""
    default = Value(None) if nullable else Default.NONE
    found = Kind.INT64 if kind == "bigint" else Kind.INT32
    return Column(name, found, SourceType(kind, kind), nullable=nullable, default=default)


def table(*names: str, key: str = "id") -> TableSchema:
    """A table of numbers; the key is never NULL."""
    return TableSchema(ORDERS, tuple(column(name, nullable=name != key) for name in names), (key,))


def adding(*places: tuple[str, str | None]) -> Alteration:
    """Columns that one statement adds, each with its place."""
    return Alteration(tuple(Change(Act.ADD, name, name, after) for name, after in places))


def test_a_column_stands_where_the_statement_says() -> None:
    """First, after another one, or last; one that was just added can be the neighbour."""
    before, now = table("id", "a"), table("x", "id", "y", "z", "a", "w")
    [lift] = lifts(before, [adding(("w", None), ("x", FIRST), ("y", "ID"), ("z", "y"))], now)
    assert lift == Lift(before, now, (None, "id", None, None, "a", None), frozenset("wxyz"))


def test_between_two_alterations_a_column_is_as_it_is_now() -> None:
    """Each lift leads to the next definition."""
    before, now = table("id"), table("id", "a", "b")
    first, second = lifts(before, [adding(("a", None)), adding(("b", None))], now)
    assert (first.before, first.after, first.origins) == (before, table("id", "a"), ("id", None))
    assert (second.before, second.after, second.origins) == (first.after, now, ("id", "a", None))
    assert lifts(before, [], before) == []


def test_columns_of_two_statements_are_never_one_column() -> None:
    """Also if the first statement drops more columns than it adds."""
    before = table("id", "a", "b")
    swap = Alteration((Change(Act.DROP, "a", "a"), Change(Act.DROP, "b", "b"), Change(Act.ADD, "c", "c")))
    first, second = lifts(before, [swap, adding(("d", None))], table("id", "c", "d"))
    assert (first.after, first.origins, second.origins) == (table("id", "c"), ("id", None), ("id", "c", None))
    again = Alteration((Change(Act.ADD, "d", "d"), Change(Act.DROP, "c", "c")))
    with pytest.raises(NotLiftable, match="how its column c was defined"):
        lifts(before, [swap, again], table("id", "d"))


@pytest.mark.parametrize(
    ("alteration", "now", "reason"),
    [
        (Alteration(is_barrier=True), table("id"), "DDL changed its values, its key or the table itself"),
        (adding(("b", None)), table("id", "a", "c"), "by its DDL its columns would be id, a, b, and they are id, a, c"),
        (adding(("b", "x")), table("id", "a", "b"), "names a column x, which is not known"),
        (adding(("A", None)), table("id", "a"), "two columns of one name"),
        (Alteration((Change(Act.DROP, "id", "id"),)), table("a", key="a"), "a column of its key was dropped"),
        (adding(("b", None)), replace(table("id", "a", "b"), key=("a",)), "its key, or how its rows are mapped"),
        (
            adding(("b", None)),
            replace(table("id", "a", "b"), choices=Choices(metadata=("op",))),
            "mapped in another way",
        ),
    ],
)
def test_what_the_statements_do_not_lead_to_is_not_lifted(
    alteration: Alteration, now: TableSchema, reason: str
) -> None:
    """Whatever is not as derived."""
    with pytest.raises(NotLiftable, match=reason):
        lifts(table("id", "a"), [alteration], now)


def test_a_definition_that_nobody_knows_any_more_is_not_made_up() -> None:
    """A column that was there only between two statements, or that both defined anew."""
    drop = Alteration((Change(Act.DROP, "b", "b"),))
    with pytest.raises(NotLiftable, match="how its column b was defined between two"):
        lifts(table("id"), [adding(("b", None)), drop], table("id"))
    define = Alteration((Change(Act.DEFINE, "a", "a"),))
    with pytest.raises(NotLiftable, match="how its column a was defined between two"):
        lifts(table("id", "a"), [define, define], table("id", "a"))


def test_a_column_is_as_it_was_before_it_is_defined_anew() -> None:
    """The first alteration knows it of before, the second of now; here it is the same, and moves."""
    before, now = table("id", "a", "c"), table("a", "id", "c", "b")
    define = Alteration((Change(Act.DEFINE, "a", "a", FIRST),))
    first, second = lifts(before, [adding(("b", None)), define], now)
    assert first.after == table("id", "a", "c", "b")
    assert second.origins == ("a", "id", "c", "b")
    renamed = Alteration((Change(Act.RENAME, "a", "d"),))
    [lift] = lifts(before, [renamed], table("id", "d", "c"))
    assert lift.origins == ("id", "a", "c")


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (column("a", kind="tinyint"), "a was int and is tinyint"),
        (column("a", nullable=False), "a was int and is int"),
        (column("id", nullable=False, kind="bigint"), "id was int and is bigint"),
    ],
)
def test_a_lift_that_is_not_exact_cannot_be_built(new: Column, reason: str) -> None:
    """It is known from the definitions alone."""
    before = table("id", "a")
    after = replace(before, columns=(*[one for one in before.columns if one.name != new.name], new))
    origins = tuple(None if name == "b" else name for name in after.names)
    with pytest.raises(NotLiftable, match=reason):
        Lift(before, after, origins)


def test_a_new_generated_column_is_not_lifted() -> None:
    """The values of old rows are in no binlog. Nor is a table whose key is another."""
    before, after = table("id"), replace(table("id", "g"), generated=("g",))
    with pytest.raises(NotLiftable, match="g is a new generated column"):
        Lift(before, after, ("id", None))
    with pytest.raises(NotLiftable, match="its key is not what it was"):
        Lift(table("id", "a"), table("id", "a", key="a"), ("id", "a"))


def text(name: str, charset: str) -> Column:
    """A text that may be NULL."""
    return Column(name, Kind.STRING, source_type("text"), default=Value(None), charset=charset, collation=charset)


def texts(*charsets: str) -> TableSchema:
    """A table with texts of these charsets."""
    names = zip("abc", charsets, strict=False)
    return TableSchema(
        ORDERS,
        (column("id", nullable=False), *(text(name, charset) for name, charset in names)),
        ("id",),
    )


def test_a_column_that_no_statement_defines_stays_as_it_is() -> None:
    """Otherwise DDL that the binlog lacks has changed it, and rows may have been read by the wrong definition."""
    before = table("id", "a")
    now = replace(before, columns=(column("id", nullable=False), column("a", kind="bigint"), column("b")))
    with pytest.raises(Unexplained, match="no DDL in the binlog says why its column a is another now"):
        lifts(before, [adding(("b", None))], now)
    with pytest.raises(Unexplained, match="no DDL in the binlog says why its column a is another now"):
        lifts(texts("latin1"), [adding(("b", None))], texts("gbk", "gbk"))
    [lift] = lifts(texts(""), [adding(("b", None))], texts("gbk", "gbk"))
    assert lift.origins == ("id", "a", None)


def test_a_statement_that_changes_the_layout_alone_is_not_lifted() -> None:
    """Nobody could tell which of the two definitions, which have one fingerprint, the rows of a copy have."""
    define = Alteration((Change(Act.DEFINE, "a", "a"),))
    with pytest.raises(NotLiftable, match="the charset of a column, or the place"):
        lifts(texts("latin1"), [define], texts("gbk"))
    assert len(lifts(texts("latin1"), [define], texts("latin1"))) == 1


def test_a_charset_that_changes_beside_anything_else_is_not_lifted() -> None:
    """A session that is not strict may have lost characters; nor where nobody knows the charset of before."""
    both = Alteration((Change(Act.DEFINE, "a", "a"), Change(Act.ADD, "b", "b")))
    for charset in ("utf8mb4", ""):
        with pytest.raises(NotLiftable, match=r"a was text and is text, and rows may have other values \(by charset"):
            lifts(texts(charset), [both], texts("latin1", "latin1"))
    [lift] = lifts(texts("latin1"), [both], texts("latin1", "latin1"))
    assert lift.origins == ("id", "a", None)


def test_members_in_another_order_are_named_as_a_person_calls_them() -> None:
    """Not by the fields that we have for them."""
    before, after = (
        TableSchema(ORDERS, (column("id"), replace(text("a", "ascii"), source_type=source_type(members))), ("id",))
        for members in ("enum('x','y')", "enum('y','x')")
    )
    with pytest.raises(NotLiftable, match=r"rows may have other values \(by its type's members\)"):
        lifts(before, [Alteration((Change(Act.DEFINE, "a", "a"),))], after)


def keyed(collation: str) -> TableSchema:
    """A table with a text as its key."""
    key = replace(text("k", "utf8mb4"), source_type=source_type("varchar(9)"), nullable=False, collation=collation)
    return TableSchema(ORDERS, (key, column("a")), ("k",))


def test_a_key_keeps_the_order_of_its_values() -> None:
    """By the collation; that of another column changes no value."""
    define = Alteration((Change(Act.DEFINE, "k", "k"),))
    for collation in ("utf8mb4_general_ci", ""):
        with pytest.raises(NotLiftable, match=r"rows may have other values \(by collation\)"):
            lifts(keyed(collation), [define], keyed("utf8mb4_bin"))
    assert len(lifts(keyed("utf8mb4_bin"), [define], keyed("utf8mb4_bin"))) == 1
    other = texts("utf8mb4")
    other = replace(other, columns=(other.columns[0], replace(other.columns[1], collation="utf8mb4_bin")))
    define = Alteration((Change(Act.DEFINE, "a", "a"), Change(Act.ADD, "b", "b")))
    assert len(lifts(other, [define], texts("utf8mb4", "utf8mb4"))) == 1


def computed(expression: str, *, skipped: tuple[str, ...] = (), kind: str = "int", a: str = "a") -> TableSchema:
    """A table with a generated column g, which is computed from others."""
    g = replace(column("g"), generation=expression)
    base = TableSchema(ORDERS, (column("id", nullable=False), column(a, kind=kind), column("b"), g), ("id",))
    return replace(base, generated=("g",), skipped=skipped)


WIDER = Change(Act.DEFINE, "a", "a")
NAMED_ANEW = Change(Act.RENAME, "a", "x")


@pytest.mark.parametrize(
    ("change", "before", "now"),
    [
        (WIDER, computed("`a` + 1"), computed("`a` + 1", kind="bigint")),
        (WIDER, computed("concat(`A`, 1)"), computed("concat(`A`, 1)", kind="bigint")),
        (WIDER, computed(""), computed("", kind="bigint")),
        (WIDER, computed("`v` + 1", skipped=("v",)), computed("`v` + 1", skipped=("v",), kind="bigint")),
        (NAMED_ANEW, computed("`a`"), computed("`x`", a="x")),
        (Change(Act.DEFINE, "a", "a`b"), computed("`a`"), computed("`a``b`", a="a`b")),
        (Change(Act.DEFINE, "g", "g"), computed("`b`"), computed("`a`")),
    ],
)
def test_what_a_generated_column_may_be_computed_from_is_not_lifted(
    change: Change, before: TableSchema, now: TableSchema
) -> None:
    """The server computes it anew, and no row event says so; in doubt, also through a column that is skipped."""
    with pytest.raises(NotLiftable, match=r"generated column g may be computed from|rows may have other values"):
        lifts(before, [Alteration((change,))], now)


@pytest.mark.parametrize(
    ("change", "now"),
    [
        (WIDER, computed("`b` + `aa` + `a$`", kind="bigint")),
        (WIDER, computed("`a`")),
        (Change(Act.DEFINE, "a", "a", FIRST), None),
    ],
)
def test_what_no_generated_column_is_computed_from_is_lifted(change: Change, now: TableSchema | None) -> None:
    """Or if it is what it was, at another place too."""
    before = computed("`b` + `aa` + `a$`") if now is None or now.column("a").kind is Kind.INT64 else computed("`a`")
    now = now or replace(before, columns=(before.columns[1], before.columns[0], *before.columns[2:]))
    assert len(lifts(before, [Alteration((change,))], now)) == 1


def test_a_dropped_column_that_comes_back_computes_anew() -> None:
    """A generated column may name the new one."""
    again = Alteration((Change(Act.DROP, "a", "a"), Change(Act.ADD, "a", "a", "id")))
    with pytest.raises(NotLiftable, match="generated column g may be computed from a"):
        lifts(computed("`a`"), [again], computed("`a`"))


def test_a_column_that_changes_without_a_statement_is_refused() -> None:
    """A lift is built from what statements did."""
    other = replace(table("id", "a"), columns=(column("id", nullable=False), column("a", kind="tinyint")))
    with pytest.raises(NotLiftable, match="a was int and is tinyint"):
        Lift(table("id", "a"), other, other.names, defined=frozenset())


def test_a_guess_only_has_to_be_stored() -> None:
    """Its rows are compared with the source: what is not known is NULL there."""
    new = replace(text("b", "latin1"), default=Default.COMPUTED)
    after = replace(texts("latin1"), columns=(*texts("latin1").columns, new))
    lift = Lift(texts("utf8mb4"), after, ("id", "a", None), is_guess=True)
    assert lift.fills == {}
    with pytest.raises(NotLiftable, match="its default is computed for each row"):
        Lift(texts("latin1"), after, ("id", "a", None))
    known = replace(
        after, columns=(*after.columns[:2], Column("f", Kind.FLOAT, source_type("float"), default=Value(1.5)))
    )
    assert Lift(texts("utf8mb4"), known, ("id", "a", None), is_guess=True).fills == {"f": 1.5}
    assert len(Lift(computed("`a`"), computed("`a`", kind="bigint"), ("id", "a", "b", "g"), is_guess=True).origins) == 4


def test_the_columns_that_may_be_new_are_told() -> None:
    """Also one that has the name of another that went."""
    again = Alteration((Change(Act.DROP, "a", "a"), Change(Act.ADD, "A", "A")))
    assert added(table("id", "a"), [again, adding(("b", None))], table("id", "a", "b", "c")) == {"a", "b", "c"}


CHANGES = st.builds(Change, st.sampled_from(Act), st.text(min_size=1), st.text(min_size=1), st.none() | st.text())


@given(st.builds(Alteration, st.lists(CHANGES).map(tuple), st.booleans(), st.booleans(), st.text()))
def test_an_alteration_is_stored_whole(alteration: Alteration) -> None:
    """As the manifest of its segment has it."""
    assert Alteration.from_json(json.loads(json.dumps(alteration.to_json()))) == alteration


def test_a_column_that_is_dropped_is_told() -> None:
    """One that gets its name in the same statement is another one."""
    before = table("id", "a", "b")
    drop = Change(Act.DROP, "a", "a"), Change(Act.DROP, "B", "B")
    [lift] = lifts(before, [Alteration((*drop, Change(Act.ADD, "a", "a")))], table("id", "a"))
    assert (lift.origins, lift.dropped) == (("id", None), ("a", "b"))


def filled(new: Column) -> dict[str, object]:
    """What rows of before have in a column that is added."""
    before = table("id")
    return dict(Lift(before, replace(before, columns=(*before.columns, new)), ("id", None)).fills)


def of(kind: Kind, type_: str, default: Default | Value, *, nullable: bool = False) -> Column:
    """A column that is added."""
    return Column("c", kind, source_type(type_), nullable=nullable, default=default, charset="utf8mb4")


@pytest.mark.parametrize(
    ("kind", "type_", "found"),
    [
        (Kind.INT32, "int", 0),
        (Kind.INT32, "year", 0),
        (Kind.DECIMAL, "decimal(5,2)", 0),
        (Kind.FLOAT, "float", 0),
        (Kind.STRING, "varchar(5)", ""),
        (Kind.STRING, "char(5)", ""),
        (Kind.STRING, "set('x')", ""),
        (Kind.STRING, "enum('x','y')", "x"),
    ],
)
def test_rows_of_before_have_the_implicit_default_where_there_is_none(kind: Kind, type_: str, found: object) -> None:
    """That of the type."""
    assert filled(of(kind, type_, Default.NONE)) == {"c": found}


@pytest.mark.parametrize(
    ("kind", "type_", "value"),
    [
        (Kind.UINT64, "bigint unsigned", Decimal(7)),
        (Kind.DOUBLE, "double", 0.1),
        (Kind.FLOAT, "float", 0.0),
        (Kind.STRING, "enum('?')", "😀"),
        (Kind.BINARY, "binary(3)", b"a\0\0"),
        (Kind.DATETIME, "datetime(3)", datetime(2026, 2, 3, 4, 5, 6, 789000)),
    ],
)
def test_rows_of_before_have_the_value_that_the_server_sent(kind: Kind, type_: str, value: object) -> None:
    """NULL is a value, too."""
    assert filled(of(kind, type_, Value(value))) == {"c": value}
    assert filled(of(kind, type_, Value(None), nullable=True)) == {}


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (of(Kind.INT32, "int", Default.UNKNOWN), "nobody has looked at it"),
        (of(Kind.INT32, "int", Default.UNKNOWN, nullable=True), "nobody has looked at it"),
        (of(Kind.INT32, "int", Default.CONSTANT), "nobody has read its default"),
        (of(Kind.INT32, "int", Default.COMPUTED), "its default is computed for each row"),
        (of(Kind.UINT64, "bigint unsigned", Default.NUMBERED), "the server numbers its rows"),
        (of(Kind.DATE, "date", Default.NONE), "it is NOT NULL and has no default"),
        (of(Kind.BINARY, "binary(3)", Default.NONE), "it is NOT NULL and has no default"),
        (of(Kind.STRING, "enum('?')", Default.NONE), "it is NOT NULL and has no default"),
        (of(Kind.INT32, "int", Value(None)), "the default of c is NULL, and it cannot be NULL"),
        (of(Kind.FLOAT, "float", Value(1234567.75)), "a server may round the default of c, of type float, later"),
        (of(Kind.TIMESTAMP, "timestamp", Value(datetime(2026, 2, 3))), "a server may round the default of c"),
        (of(Kind.MOMENT, "timestamp", Value("2026-02-03 04:05:06")), "a server may round the default of c"),
    ],
)
def test_a_value_that_is_not_known_is_not_filled_in(new: Column, reason: str) -> None:
    """The rows are read again."""
    with pytest.raises(NotLiftable, match=reason):
        filled(new)
