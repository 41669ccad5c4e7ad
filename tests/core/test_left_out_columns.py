"""Columns that are left out by name: which they are, and how DDL of them is followed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from lakeingest.core.ddl.alteration import FIRST, Act, Alteration, Change, lifts
from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.ddl.new_names import revealed
from lakeingest.core.tables.column_choice import ALL_COLUMNS, ColumnChoice
from lakeingest.core.tables.schema import Choices, TableSchema
from tests.core.test_alteration import adding, table

SECRET = ColumnChoice(exclude=("s", "S2"))


def without(schema: TableSchema, choice: ColumnChoice = SECRET, *, has_places: bool = True) -> TableSchema:
    """The definition of the same table, with the columns that this choice leaves."""
    return replace(
        schema,
        columns=tuple(column for column in schema.columns if not choice.leaves_out(column.name)),
        skipped=tuple(filter(choice.leaves_out, schema.names)),
        stored=schema.names if has_places else (),
        choices=Choices(columns=choice),
    )


def renaming(name: str, to: str) -> Alteration:
    """A statement that gives a column another name."""
    return Alteration((Change(Act.RENAME, name, to),))


def dropping(name: str) -> Alteration:
    """A statement that drops a column."""
    return Alteration((Change(Act.DROP, name, name),))


def defining(name: str, after: str | None = None) -> Alteration:
    """A statement that defines a column anew, and may move it."""
    return Alteration((Change(Act.DEFINE, name, name, after),))


def test_a_column_is_left_out_by_its_name_in_any_case() -> None:
    """By not being among those that are included, or by being among the excluded ones."""
    assert not any(map(ALL_COLUMNS.leaves_out, ("id", "s", "")))
    assert [name for name in ("id", "S", "s2", "ss") if SECRET.leaves_out(name)] == ["S", "s2"]
    chosen = ColumnChoice(include=("ID", "s"), exclude=("s",))
    assert [name for name in ("id", "s", "x") if chosen.leaves_out(name)] == ["s", "x"]
    assert chosen.without_column(["id", "x"]) == ("s",)
    assert ColumnChoice(("a", "b"), ("c", "a")).without_column("B") == ("a", "c")


def test_columns_that_are_left_out_are_in_the_fingerprint() -> None:
    """By their names, in any order; whether they were chosen by one list or the other does not count."""
    full = table("id", "s", "a")
    found = without(full)
    assert found.left_out == ("s",)
    assert found.fingerprint == without(full, ColumnChoice(include=("a", "id"))).fingerprint
    assert found.fingerprint == without(table("id", "a", "s")).fingerprint
    assert found.fingerprint != without(table("id", "a")).fingerprint
    assert without(table("id", "a")).fingerprint == table("id", "a").fingerprint
    computed = replace(table("id", "a"), skipped=("s",))
    assert (computed.left_out, computed.fingerprint) == ((), table("id", "a").fingerprint)


@pytest.mark.parametrize(
    ("ddl", "before", "now"),
    [
        (adding(("s", None)), table("id", "a"), table("id", "a", "s")),
        (adding(("s", FIRST), ("b", "s")), table("id", "a"), table("s", "b", "id", "a")),
        (dropping("s"), table("id", "s", "a"), table("id", "a")),
        (defining("s"), table("id", "s", "a"), table("id", "s", "a")),
        (renaming("s", "S2"), table("id", "s", "a"), table("id", "S2", "a")),
        (defining("a", "s"), table("a", "id", "s"), table("id", "s", "a")),
    ],
)
def test_ddl_of_such_a_column_is_followed(ddl: Alteration, before: TableSchema, now: TableSchema) -> None:
    """Its rows stay as they are, and its places are known."""
    [lift] = lifts(without(before), [ddl], without(now))
    assert (lift.after, lift.after.stored, lift.dropped) == (without(now), now.names, ())
    assert all(origin in {None, name} for origin, name in zip(lift.origins, lift.after.names, strict=True))
    assert (None in lift.origins) == ("b" in now.names)


def test_a_column_that_gets_such_a_name_is_dropped_from_the_copy() -> None:
    """It is left out from then on. The key cannot go."""
    [lift] = lifts(without(table("id", "a", "b")), [renaming("b", "s")], without(table("id", "a", "s")))
    assert (lift.dropped, lift.after.skipped) == (("b",), ("s",))
    now = without(replace(table("id", "a", "b"), key=("b",)))
    with pytest.raises(NotLiftable, match="by its DDL its columns would be a, b"):
        lifts(without(table("id", "a", "b")), [renaming("id", "s")], now)
    with pytest.raises(NotLiftable, match="a column of its key was dropped"):
        lifts(
            without(replace(table("id", "a"), key=("id",))),
            [renaming("id", "s"), adding(("id", FIRST))],
            without(table("id", "s", "a")),
        )


def test_the_values_of_a_column_that_was_left_out_are_not_made_up() -> None:
    """Its rows are read again, also if it was left out only between two statements."""
    before, now = without(table("id", "a", "s")), without(table("id", "a", "b"))
    with pytest.raises(NotLiftable, match="b was left out, so the values of its older rows are not known"):
        lifts(before, [renaming("s", "b")], now)
    hidden = [renaming("b", "s"), renaming("s", "b")]
    with pytest.raises(NotLiftable, match="b was left out, so the values"):
        lifts(now, hidden, now)


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        (dropping("s"), ("id", "g")),
        (defining("s"), ("id", "s", "g")),
        (renaming("s", "s2"), ("id", "s2", "g")),
        (adding(("s2", None)), ("id", "s", "g", "s2")),
    ],
)
def test_a_generated_column_may_be_computed_from_a_column_that_is_left_out(
    ddl: Alteration, names: tuple[str, ...]
) -> None:
    """Then the server computes it anew, and no row event says so."""
    both = ("id", "s", "g"), names
    before, now = (without(computed_from("`s` + `s2`", *each)) for each in both)
    with pytest.raises(NotLiftable, match="the generated column g may be computed from s"):
        lifts(before, [ddl], now)
    before, now = (without(computed_from("`id` + 1", *each)) for each in both)
    assert len(lifts(before, [ddl], now)) == 1


def computed_from(expression: str, *names: str) -> TableSchema:
    """A table whose column g has this expression."""
    plain = table(*names)
    columns = tuple(replace(column, generation=expression * (column.name == "g")) for column in plain.columns)
    return replace(plain, columns=columns, generated=("g",))


def test_of_columns_whose_places_nobody_knows_only_the_names_are_followed() -> None:
    """A column that is put behind one of them has no known place."""
    before, now = without(table("id", "s", "a"), has_places=False), without(table("id", "s", "a", "b"))
    first, second = lifts(before, [defining("s"), adding(("b", None))], now)
    assert (first.after.stored, first.after.skipped, second.after.stored) == ((), ("s",), now.stored)
    with pytest.raises(NotLiftable, match="names a column s, which is not known"):
        lifts(before, [adding(("b", "s"))], without(table("id", "s", "b", "a")))


def test_of_a_skipped_generated_column_only_the_place_is_known() -> None:
    """A column can be put behind it; what the statement does to the column itself is not known."""
    before, now = (
        replace(table("id", *names), skipped=("g",), stored=("id", "g", *names)) for names in (("a",), ("b", "a"))
    )
    [lift] = lifts(before, [adding(("b", "g"))], now)
    assert lift.after.names == ("id", "b", "a")
    with pytest.raises(NotLiftable, match="names a column g, which is not known"):
        lifts(before, [dropping("g")], replace(before, skipped=(), stored=before.names))


def test_a_place_that_changes_between_definitions_of_one_fingerprint_is_not_lifted() -> None:
    """A copy names its definition by the fingerprint, so the rows are read again."""
    with pytest.raises(NotLiftable, match="the place of one that is left out, is another now"):
        lifts(without(table("id", "s", "a")), [defining("s", FIRST)], without(table("s", "id", "a")))


NAMES = ("a", "b", "c", "s", "s2")
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "rename", "move"]), st.integers(0, 9), st.integers(0, 9)), max_size=6
)


def altered(names: Sequence[str], act: str, one: int, other: int) -> tuple[tuple[str, ...], Alteration] | None:
    """The names after a statement that these numbers choose, and the statement; None if it is none."""
    free = [name for name in NAMES if name not in names]
    plain = [name for name in names if name != "id"]
    left = list(names)
    if act == "add" and free:
        name, after = free[one % len(free)], names[other % len(names)]
        left.insert(names.index(after) + 1, name)
        return tuple(left), adding((name, after))
    if not plain:
        return None
    name = plain[one % len(plain)]
    if act == "drop":
        left.remove(name)
        return tuple(left), dropping(name)
    if act == "rename" and free:
        to = free[other % len(free)]
        return tuple(to if one == name else one for one in names), renaming(name, to)
    if act == "move":
        left.remove(name)
        after = left[other % len(left)]
        left.insert(left.index(after) + 1, name)
        return tuple(left), Alteration((Change(Act.DEFINE, name, name, after),))
    return None


@dataclass(frozen=True)
class Course:
    """The definitions that DDL gives a table one after the other, and what is made of the DDL."""

    definitions: list[TableSchema]
    ddl: list[Alteration]
    lifts: list[Lift]


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """Random DDL that can be followed: nobody asks for a column of which nobody knows the definition."""
    start, count = draw(st.permutations(("id", *NAMES))), draw(st.integers(0, 5))
    names = tuple(name for name in start if name == "id" or name in start[:count])
    states, ddl = [names], list[Alteration]()
    for step in draw(STEPS):
        if statement := altered(states[-1], *step):
            states.append(statement[0])
            ddl.append(statement[1])
    definitions = [table(*each) for each in states]
    try:
        return Course(definitions, ddl, lifts(definitions[0], ddl, definitions[-1]))
    except NotLiftable:
        reject()


@given(courses())
def test_a_table_without_columns_is_followed_as_the_whole_table_is(course: Course) -> None:
    """Each definition is the whole table's without these columns, or it is said that it cannot be followed."""
    definitions, ddl, whole = course.definitions, course.ddl, course.lifts
    assert [lift.after for lift in whole] == definitions[1:]
    renamed = {
        (SECRET.leaves_out(origin), SECRET.leaves_out(name))
        for lift in whole
        for name, origin in zip(lift.after.names, lift.origins, strict=True)
        if origin is not None
    }
    becomes_copied = (True, False) in renamed
    is_only_moved = any(
        old.fingerprint == new.fingerprint and old.stored != new.stored
        for old, new in pairwise(map(without, definitions))
    )
    try:
        found = lifts(without(definitions[0]), ddl, without(definitions[-1]))
    except NotLiftable:
        # nobody knows the definition of a column that is left out now, if an earlier statement defined it anew
        assert becomes_copied or is_only_moved or (False, True) in renamed
        return
    assert not becomes_copied
    assert not is_only_moved
    for lift, of_whole in zip(found, whole, strict=True):
        assert (lift.after, lift.after.stored) == (without(of_whole.after), of_whole.after.names)
        origin_of = dict(zip(of_whole.after.names, of_whole.origins, strict=True))
        assert lift.origins == tuple(origin_of[name] for name in lift.after.names)


@pytest.mark.parametrize(
    ("choice", "before", "now", "shown"),
    [
        (SECRET, ("id", "s"), ("id", "n"), ("n",)),  # renamed, or dropped beside a new one
        (SECRET, ("id", "S"), ("id", "s", "n"), ()),  # the column is there, so `n` is another one
        (SECRET, ("id", "s"), ("id", "s2"), ()),  # its new name is left out, too
        (SECRET, ("id", "s", "n"), ("id", "n"), ()),
        (SECRET, ("id", "v"), ("id", "n"), ()),
        (ColumnChoice(include=("id", "s", "n"), exclude=("s",)), ("id", "s"), ("id", "n", "m"), ()),
        (ColumnChoice(hash=("s",)), ("id", "s"), ("id", "n", "m"), ("n", "m")),
        (ColumnChoice(mask=("s", "N")), ("id", "s"), ("id", "n"), ()),
    ],
)
def test_a_new_column_may_be_a_hidden_one_of_another_name(
    choice: ColumnChoice, before: tuple[str, ...], now: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    """Unless the hidden one is still there, or the user has named the new one."""

    def chosen(names: tuple[str, ...]) -> TableSchema:
        schema = without(table(*names), choice)
        columns = (replace(column, choice=choice.form(column.name)) for column in schema.columns)
        return replace(schema, columns=tuple(columns))

    assert revealed(chosen(before), chosen(now)) == shown
