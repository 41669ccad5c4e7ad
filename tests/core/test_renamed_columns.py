"""Columns that have another name in the copy: how they are named, and how DDL of them is followed."""

from dataclasses import replace

import pytest
from hypothesis import given

from lakeingest.core.ddl.alteration import added, lifts
from lakeingest.core.ddl.any_ddl import changed_by_any_ddl
from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.ddl.new_names import unnamed
from lakeingest.core.ddl.origins import origins
from lakeingest.core.tables.column_choice import ALL_COLUMNS, ColumnChoice
from lakeingest.core.tables.schema import Choices, Column, Kind, SourceType, TableSchema
from tests.core.test_alteration import adding, column, table
from tests.core.test_left_out_columns import Course, courses, renaming

Pairs = tuple[tuple[str, str], ...]

NAMED: Pairs = (("A", "x"), ("s", "b"), ("b", "s"))


def named(schema: TableSchema, pairs: Pairs = NAMED) -> TableSchema:
    """The definition of the same table, whose columns get these names in the copy."""
    choice = ColumnChoice(rename=pairs)
    return replace(
        schema,
        columns=tuple(column.named(column.name, choice) for column in schema.columns),
        key=tuple(map(choice.name_in_copy, schema.key)),
        generated=tuple(map(choice.name_in_copy, schema.generated)),
        choices=Choices(columns=choice),
    )


def test_a_column_gets_its_name_in_any_case_of_letters() -> None:
    """Other columns keep theirs; a name that no column has is named."""
    choice = ColumnChoice(exclude=("e",), rename=NAMED)
    assert [choice.name_in_copy(name) for name in ("a", "A", "B", "e", "id")] == ["x", "x", "s", "e", "id"]
    assert choice.without_column(["id", "a", "B"]) == ("e", "s")
    assert [choice.copies_as_is(name) for name in ("id", "a", "e")] == [True, False, False]
    assert ColumnChoice(rename=(("a", "a"),)).copies_as_is("a")


def test_names_of_both_sides_are_known() -> None:
    """In the order of the columns, and of the key."""
    schema = named(table("id", "a", "s", "b"))
    assert schema.names == ("id", "x", "b", "s")
    assert schema.source_names == ("id", "a", "s", "b")
    assert named(table("a", "id", key="a"), (("a", "k"),)).key == ("k",)
    assert named(table("a", "id", key="a"), (("a", "k"),)).source_key == ("a",)
    assert schema.layout[0] == ("id", "a", "s", "b")
    assert not replace(schema, stored=("id", "a", "s", "b")).hides


def test_only_names_that_columns_get_are_in_the_fingerprint() -> None:
    """A name for a column that is not there changes nothing, and a table without such names is as it always was."""
    plain = table("id", "a")
    renamed = named(plain, (("a", "x"),))
    assert len({plain.fingerprint, renamed.fingerprint, named(plain, (("a", "y"),)).fingerprint}) == 3
    assert named(plain, (("a", "x"), ("later", "y"))) == renamed
    assert named(plain, (("a", "x"), ("later", "y"))).fingerprint == renamed.fingerprint
    assert named(plain, (("a", "a"),)).fingerprint == named(plain, ()).fingerprint == plain.fingerprint
    swapped = named(table("id", "a", "b"), (("a", "b"), ("b", "a")))
    assert swapped.fingerprint != table("id", "b", "a").fingerprint
    assert ColumnChoice(rename=NAMED) == ALL_COLUMNS


@given(courses())
def test_a_table_with_other_names_is_followed_as_the_table_is(course: Course) -> None:
    """Each definition is the table's with these names, unless a column would lose its name or two would have one."""
    definitions, ddl, whole = course.definitions, course.ddl, course.lifts
    name_of = ColumnChoice(rename=NAMED).name_in_copy
    first = {name: name for name in definitions[0].names}  # by the present name, the first one
    for lift in whole:
        pairs = zip(lift.after.names, lift.origins, strict=True)
        first = {name: first[origin] for name, origin in pairs if origin in first}
    loses_name = any(name_of(old) != old and old != new and name_of(new) == new for new, old in first.items())
    if loses_name:
        with pytest.raises(NotLiftable, match="in the copy"):
            lifts(named(definitions[0]), ddl, named(definitions[-1]))
        return
    found = lifts(named(definitions[0]), ddl, named(definitions[-1]))
    for lift, plain in zip(found, whole, strict=True):
        assert (lift.before, lift.after) == (named(plain.before), named(plain.after))
        assert lift.origins == tuple(None if origin is None else name_of(origin) for origin in plain.origins)
        assert lift.defined == frozenset(map(name_of, plain.defined or ()))


def test_a_renamed_column_may_get_its_name_by_its_new_name() -> None:
    """If the user gives it the same name, no column of the copy changes; another name is given to it."""
    before, rename = named(table("id", "a"), (("a", "x"),)), renaming("a", "n")
    now = named(table("id", "n"), (("a", "x"), ("n", "x")))
    [lift] = lifts(before, [rename], now)
    assert (lift.after.names, lift.origins, lift.dropped) == (("id", "x"), ("id", "x"), ())
    [lift] = lifts(before, [rename], named(table("id", "n"), (("n", "y"),)))
    assert (lift.after.names, lift.origins) == (("id", "y"), ("id", "x"))
    with pytest.raises(NotLiftable, match="a is n now, and x in the copy"):
        lifts(before, [rename], named(table("id", "n"), (("a", "x"),)))


def test_two_columns_never_get_one_name_in_between() -> None:
    """Then the rows are read again."""
    pairs = (("a", "x"), ("n", "X"), ("o", "z"))
    steps = [adding(("n", None)), renaming("a", "o"), renaming("n", "a")]
    with pytest.raises(NotLiftable, match="two columns of its copy get one name"):
        lifts(named(table("id", "a"), pairs), steps, named(table("id", "o", "a"), pairs))


def test_an_expression_names_columns_by_their_names_at_the_source() -> None:
    """So a generated column is read again if a column that it may name is changed there."""
    wide = Column("g", Kind.INT64, SourceType("bigint", "bigint"), generation="(`a` + 1)")
    base = replace(table("id", "a", "x"), generated=("g",))
    before = replace(base, columns=(*base.columns, wide))
    after = replace(before, columns=(*before.columns[:1], column("a", kind="bigint"), *before.columns[2:]))
    pairs = (("a", "x"), ("x", "a"), ("g", "a2"))
    names = named(before, pairs).names
    with pytest.raises(NotLiftable, match="the generated column a2 may be computed from a"):
        Lift(named(before, pairs), named(after, pairs), names, frozenset({"x"}))
    other = replace(before, columns=(*before.columns[:2], column("x", kind="bigint"), *before.columns[3:]))
    assert Lift(named(before, pairs), named(other, pairs), names, frozenset({"a"})).dropped == ()
    assert changed_by_any_ddl(named(before, pairs)) == ()


@pytest.mark.parametrize(
    ("pairs", "before", "now", "found"),
    [
        ((("a", "x"),), ("id", "a"), ("id", "n"), ("n",)),
        ((("A", "x"),), ("id", "a"), ("id", "A", "n"), ()),  # the column is there
        ((("a", "x"), ("n", "x")), ("id", "a"), ("id", "n"), ()),  # it keeps its name
        ((("a", "x"), ("n", "y")), ("id", "a"), ("id", "n"), ()),  # the user names the new one
        ((("a", "x"),), ("id", "a", "n"), ("id", "n"), ()),  # the other one was there
        ((("b", "x"),), ("id", "a"), ("id", "n"), ()),
    ],
)
def test_a_new_column_may_be_one_that_loses_its_name(
    pairs: Pairs, before: tuple[str, ...], now: tuple[str, ...], found: tuple[str, ...]
) -> None:
    """Unless that one is still there, or the user has named the new one."""
    assert unnamed(named(table(*before), pairs), named(table(*now), pairs)) == found


def test_origins_and_new_columns_are_found_by_names_at_the_source() -> None:
    """And are names of the copy."""
    before, now = named(table("id", "a", "b")), named(table("id", "c", "b", "s"), (("c", "y"), ("b", "s"), ("s", "b")))
    assert origins(before, [renaming("a", "c")], now) == {"id": "id", "y": "x", "s": "s", "b": None}
    again = named(table("id", "a"), (("a", "y"),))
    assert origins(named(table("id", "a"), (("a", "x"),)), [], again) == {"id": "id", "y": "x"}
    assert added(before, [], now) == {"y", "b"}
    assert added(before, [adding(("b", None))], now) == {"y", "b", "s"}
