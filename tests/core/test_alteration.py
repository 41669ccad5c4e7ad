"""Definitions between several alterations are put together from those before and after all of them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.alteration import FIRST, Act, Alteration, Change, lifts
from lakeingest.core.lift import Lift, NotLiftable, Unexplained
from lakeingest.core.schema import Choices, Column, Kind, SourceType, TableId, TableSchema
from lakeingest.mysql.source_types import source_type

ORDERS = TableId("shop", "orders")


def column(name: str, *, nullable: bool = True, kind: str = "int") -> Column:
    """A column of numbers."""
    return Column(name, Kind.INT64 if kind == "bigint" else Kind.INT32, SourceType(kind, kind), nullable=nullable)


def table(*names: str, key: str = "id") -> TableSchema:
    """A table of numbers; the key is never NULL."""
    return TableSchema(ORDERS, tuple(column(name, nullable=name != key) for name in names), (key,))


def added(*places: tuple[str, str | None]) -> Alteration:
    """Columns that one statement adds, each with its place."""
    return Alteration(tuple(Change(Act.ADD, name, name, after) for name, after in places))


def test_a_column_stands_where_the_statement_says() -> None:
    """First, after another one, or last; one that was just added can be the neighbour."""
    before, now = table("id", "a"), table("x", "id", "y", "z", "a", "w")
    [lift] = lifts(before, [added(("w", None), ("x", FIRST), ("y", "ID"), ("z", "y"))], now)
    assert lift == Lift(before, now, (None, "id", None, None, "a", None))


def test_between_two_alterations_a_column_is_as_it_is_now() -> None:
    """Each lift leads to the next definition."""
    before, now = table("id"), table("id", "a", "b")
    first, second = lifts(before, [added(("a", None)), added(("b", None))], now)
    assert (first.before, first.after, first.origins) == (before, table("id", "a"), ("id", None))
    assert (second.before, second.after, second.origins) == (first.after, now, ("id", "a", None))
    assert lifts(before, [], before) == []


@pytest.mark.parametrize(
    ("alteration", "now", "reason"),
    [
        (Alteration(is_barrier=True), table("id"), "DDL changed its values, its key or the table itself"),
        (added(("b", None)), table("id", "a", "c"), "by its DDL its columns would be id, a, b, and they are id, a, c"),
        (added(("b", "x")), table("id", "a", "b"), "names a column x, which is not known"),
        (added(("A", None)), table("id", "a"), "two columns of one name"),
        (Alteration((Change(Act.DROP, "id", "id"),)), table("a", key="a"), "a column of its key was dropped"),
        (added(("b", None)), replace(table("id", "a", "b"), key=("a",)), "its key, or how its rows are mapped"),
        (
            added(("b", None)),
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
        lifts(table("id"), [added(("b", None)), drop], table("id"))
    define = Alteration((Change(Act.DEFINE, "a", "a"),))
    with pytest.raises(NotLiftable, match="how its column a was defined between two"):
        lifts(table("id", "a"), [define, define], table("id", "a"))


def test_a_column_is_as_it_was_before_it_is_defined_anew() -> None:
    """The first alteration knows it of before, the second of now; here it is the same, and moves."""
    before, now = table("id", "a", "c"), table("a", "id", "c", "b")
    define = Alteration((Change(Act.DEFINE, "a", "a", FIRST),))
    first, second = lifts(before, [added(("b", None)), define], now)
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


def texts(*charsets: str) -> TableSchema:
    """A table with texts of these charsets."""
    names = zip("abc", charsets, strict=False)
    return TableSchema(
        ORDERS,
        (column("id", nullable=False), *(Column(a, Kind.STRING, source_type("text"), charset=b) for a, b in names)),
        ("id",),
    )


def test_a_column_that_no_statement_defines_stays_as_it_is() -> None:
    """Otherwise DDL that the binlog lacks has changed it, and rows may have been read by the wrong definition."""
    before = table("id", "a")
    now = replace(before, columns=(column("id", nullable=False), column("a", kind="bigint"), column("b")))
    with pytest.raises(Unexplained, match="no DDL in the binlog says why its column a is another now"):
        lifts(before, [added(("b", None))], now)
    with pytest.raises(Unexplained, match="no DDL in the binlog says why its column a is another now"):
        lifts(texts("latin1"), [added(("b", None))], texts("gbk", "gbk"))
    [lift] = lifts(texts(""), [added(("b", None))], texts("gbk", "gbk"))
    assert lift.origins == ("id", "a", None)


def test_a_statement_that_changes_the_layout_alone_is_not_lifted() -> None:
    """Nobody could tell which of the two definitions, which have one fingerprint, the rows of a copy have."""
    define = Alteration((Change(Act.DEFINE, "a", "a"),))
    with pytest.raises(NotLiftable, match="the charset of a column, or the place"):
        lifts(texts("latin1"), [define], texts("gbk"))
    assert len(lifts(texts("latin1"), [define], texts("latin1"))) == 1


CHANGES = st.builds(Change, st.sampled_from(Act), st.text(min_size=1), st.text(min_size=1), st.none() | st.text())


@given(st.builds(Alteration, st.lists(CHANGES).map(tuple), st.booleans(), st.booleans(), st.booleans(), st.text()))
def test_an_alteration_is_stored_whole(alteration: Alteration) -> None:
    """As the manifest of its segment has it."""
    assert Alteration.from_json(json.loads(json.dumps(alteration.to_json()))) == alteration


def test_a_column_that_is_dropped_is_told() -> None:
    """One that gets its name in the same statement is another one."""
    before = table("id", "a", "b")
    drop = Change(Act.DROP, "a", "a"), Change(Act.DROP, "B", "B")
    [lift] = lifts(before, [Alteration((*drop, Change(Act.ADD, "a", "a")))], table("id", "a"))
    assert (lift.origins, lift.dropped) == (("id", None), ("a", "b"))


def filled(new: Column) -> dict[str, str]:
    """What rows of before have in a column that is added."""
    before = table("id")
    return Lift(before, replace(before, columns=(*before.columns, new)), ("id", None)).fills


@pytest.mark.parametrize(
    ("kind", "text", "default", "found"),
    [
        (Kind.INT32, "int", None, "0"),
        (Kind.UINT64, "bigint unsigned", "7", "7"),
        (Kind.DECIMAL, "decimal(5,2)", None, "0"),
        (Kind.STRING, "varchar(5)", None, ""),
        (Kind.STRING, "enum('x','y')", None, "x"),
        (Kind.STRING, "set('x','y')", "x,y", "x,y"),
        (Kind.DATE, "date", "2026-02-03", "2026-02-03"),
        (Kind.DATETIME, "datetime(3)", "2026-02-03 04:05:06.789", "2026-02-03 04:05:06.789"),
    ],
)
def test_rows_of_before_have_the_default(kind: Kind, text: str, default: str | None, found: str) -> None:
    """Where there is none, that of the type, unless the column may be NULL."""
    new = Column("c", kind, source_type(text), nullable=False, default=default)
    assert filled(new) == {"c": found}
    assert filled(replace(new, nullable=True, default=None)) == {}


@pytest.mark.parametrize(
    ("kind", "text", "default", "reason"),
    [
        (Kind.DATE, "date", None, "c is new and NOT NULL, and has no default"),
        (Kind.BINARY, "binary(3)", None, "c is new and NOT NULL, and has no default"),
        (Kind.STRING, "set('x')", None, "c is new and NOT NULL, and has no default"),
        (Kind.DATE, "date", "0000-00-00", "the default of c, of type date, is not known exactly"),
        (
            Kind.TIMESTAMP,
            "timestamp",
            "2026-02-03 04:05:06",
            "the default of c, of type timestamp, is not known exactly",
        ),
        (Kind.STRING, "char(5)", "x ", "the default of c, of type char"),
        (Kind.INT32, "year", "2026", "the default of c, of type year"),
    ],
)
def test_a_default_that_is_not_known_exactly_is_not_filled_in(
    kind: Kind, text: str, default: str | None, reason: str
) -> None:
    """The table stops."""
    with pytest.raises(NotLiftable, match=reason):
        filled(Column("c", kind, source_type(text), nullable=False, default=default))
