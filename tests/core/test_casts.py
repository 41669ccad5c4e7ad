"""Columns that have another type in the copy: which types can have which, and how DDL of them is followed."""

from dataclasses import replace

import pytest

from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.tables.casts import CASTS, kind_in_copy, why_not
from lakeingest.core.tables.column_choice import ALL_COLUMNS, ColumnChoice
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.kinds import as_read, is_cast_number
from lakeingest.core.tables.schema import Choices, Column, Kind, TableSchema
from lakeingest.mysql.source_types import source_type
from tests.core.test_alteration import table

# type, and digits of a decimal -> the kind as string, bigint and boolean; None where a value might be lost
TYPES = [
    ("tinyint(1)", 0, Kind.NUMERAL, Kind.INT64, Kind.BOOLEAN),
    ("tinyint(4)", 0, Kind.NUMERAL, Kind.INT64, None),
    ("tinyint(1) unsigned", 0, Kind.NUMERAL, Kind.INT64, None),
    ("int", 0, Kind.NUMERAL, Kind.INT64, None),
    ("int unsigned", 0, Kind.NUMERAL, Kind.INT64, None),
    ("bigint", 0, Kind.NUMERAL, Kind.INT64, None),
    ("bigint unsigned", 0, Kind.NUMERAL, None, None),
    ("year", 0, None, Kind.INT64, None),
    ("decimal(10,0)", 10, Kind.NUMERAL, None, None),
    ("decimal(60,2)", 60, Kind.NUMERAL, None, None),
    ("float", 0, None, None, None),
    ("double", 0, None, None, None),
    ("date", 0, Kind.MOMENT, None, None),
    ("datetime(3)", 0, Kind.MOMENT, None, None),
    ("timestamp", 0, Kind.MOMENT, None, None),
    ("time(6)", 0, Kind.TIME, None, None),
    ("varchar(9)", 0, Kind.STRING, None, None),
    ("enum('a')", 0, Kind.STRING, None, None),
    ("json", 0, Kind.JSON, None, None),
    ("uuid", 0, Kind.UUID, None, None),
    ("inet6", 0, Kind.ADDRESS, None, None),
    ("bit(1)", 0, None, None, Kind.BOOLEAN),
    ("bit(9)", 0, None, None, None),
    ("varbinary(9)", 0, None, None, None),
    ("point", 0, None, None, None),
    ("unknown", 0, None, None, None),
]


@pytest.mark.parametrize(("text", "digits", "string", "bigint", "boolean"), TYPES)
def test_a_type_is_cast_only_if_no_value_can_be_lost(
    text: str, digits: int, string: Kind | None, bigint: Kind | None, boolean: Kind | None
) -> None:
    """Else the reason is known."""
    found = [kind_in_copy(source_type(text), digits, to) for to in ("string", "bigint", "boolean")]
    assert found == [string, bigint, boolean]
    assert all(to in why_not(to) for to in CASTS)


def test_a_cast_is_known_by_the_name_at_the_source() -> None:
    """In any case of letters; such a column is not copied as it is."""
    choice = ColumnChoice(cast=(("A", "string"), ("later", "bigint")))
    assert [choice.type_in_copy(name) for name in ("a", "A", "b", "Later")] == ["string", "string", "", "bigint"]
    assert [choice.copies_as_is(name) for name in ("a", "b")] == [False, True]
    assert choice.without_column(["a"]) == ("later",)
    assert choice != ALL_COLUMNS


def number(text: str, kind: Kind, name: str = "n", **more: object) -> Column:
    """A column of numbers."""
    return Column(name, kind, source_type(text), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "read", "is_cast"),
    [
        (number("int", Kind.INT32), Kind.INT32, False),
        (number("int", Kind.INT64), Kind.INT32, True),
        (number("int unsigned", Kind.INT64), Kind.INT64, False),
        (number("bigint", Kind.NUMERAL), Kind.INT64, True),
        (number("bigint unsigned", Kind.NUMERAL), Kind.UINT64, True),
        (number("decimal(10,2)", Kind.NUMERAL, precision=10, scale=2), Kind.NUMERAL, True),  # read as a text
        (number("decimal(60,2)", Kind.NUMERAL, precision=60, scale=2), Kind.NUMERAL, False),
        (number("date", Kind.MOMENT), Kind.MOMENT, False),
    ],
)
def test_a_cast_number_is_read_as_the_source_has_it(column: Column, read: Kind, *, is_cast: bool) -> None:
    """Then it becomes what the copy has. Other kinds have readers of their own."""
    assert as_read(column) == replace(column, kind=read)
    assert is_cast_number(column) is is_cast


def schema(*columns: Column) -> TableSchema:
    """A table with these columns, which are cast."""
    choices = Choices(columns=ColumnChoice(cast=(("n", "string"),)))
    plain = table("id")
    return replace(plain, columns=(*plain.columns, *columns), choices=choices, stored=())


@pytest.mark.parametrize(
    ("before", "after", "is_followed"),
    [
        ("int", "bigint", True),
        ("int unsigned", "bigint", True),
        ("smallint unsigned", "int", True),
        ("bigint", "int", False),
        ("int", "int unsigned", False),
        ("int", "decimal(10,0)", False),
    ],
)
def test_the_texts_of_numbers_stay_if_the_new_type_holds_every_old_value(
    before: str, after: str, *, is_followed: bool
) -> None:
    """A text has no sign of the width of its number. Else the rows are read again."""
    old, new = (schema(number(text, Kind.NUMERAL)) for text in (before, after))
    if is_followed:
        assert Lift(old, new, ("id", "n")).after == new
        return
    with pytest.raises(NotLiftable):
        Lift(old, new, ("id", "n"))


def test_a_column_that_is_cast_no_more_is_read_again() -> None:
    """As after a rename, where the new name is not cast."""
    with pytest.raises(NotLiftable):
        Lift(schema(number("int", Kind.NUMERAL)), schema(number("int", Kind.INT32, "m")), ("id", "n"))


def test_a_new_cast_column_is_followed_if_its_default_is_known() -> None:
    """The value is one of the copy, as the source's reader makes it."""
    old = schema()
    followed = schema(number("int", Kind.NUMERAL, default=Value("5")))
    assert Lift(old, followed, ("id", None)).fills == {"n": "5"}
    with pytest.raises(NotLiftable):  # the text of 0 is only known to the server
        Lift(old, schema(number("int", Kind.NUMERAL, nullable=False, default=Default.NONE)), ("id", None))
