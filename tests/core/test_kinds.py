"""Which type is which kind of column, and how values are read that a copy hides."""

from dataclasses import replace

import pytest

from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.tables.column_choice import HASHED, MASKED, ColumnChoice
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.kinds import as_read, kind_to_hash, usual_kind
from lakeingest.core.tables.schema import Choices, Column, Kind, TableSchema
from lakeingest.mysql.source_types import source_type
from tests.core.test_alteration import table

# type, and digits of a decimal -> its kind, and the kind in which its values are read to be hashed
TYPES = [
    ("tinyint(1)", 0, Kind.INT32, Kind.INT32),
    ("int unsigned", 0, Kind.INT64, Kind.INT64),
    ("bigint unsigned", 0, Kind.UINT64, Kind.UINT64),
    ("decimal(10,2)", 10, Kind.DECIMAL, Kind.DECIMAL),
    ("decimal(60,2)", 60, Kind.NUMERAL, Kind.NUMERAL),
    ("bit(1)", 0, Kind.BOOLEAN, None),
    ("bit(9)", 0, Kind.BINARY, None),
    ("varbinary(9)", 0, Kind.BINARY, Kind.BINARY),
    ("point", 0, Kind.BINARY, None),
    ("double", 0, Kind.DOUBLE, None),
    ("datetime(3)", 0, Kind.DATETIME, Kind.MOMENT),
    ("date", 0, Kind.DATE, Kind.MOMENT),
    ("enum('a')", 0, Kind.STRING, Kind.STRING),
    ("unknown", 0, None, None),
]


@pytest.mark.parametrize(("text", "digits", "kind", "hashed"), TYPES)
def test_a_type_has_a_kind_and_may_have_an_exact_text(
    text: str, digits: int, kind: Kind | None, hashed: Kind | None
) -> None:
    """A type without one text for each value cannot be hashed."""
    type_ = source_type(text)
    assert (usual_kind(type_, digits), kind_to_hash(type_, digits)) == (kind, hashed)


def hashed(text: str, name: str = "e", **more: object) -> Column:
    """A column that the copy has as hashes."""
    return Column(name, Kind.STRING, source_type(text), choice=HASHED, **more)  # type: ignore[arg-type]


def test_a_hidden_column_is_read_as_the_source_has_it() -> None:
    """A masked one as a text, a hashed one in its kind; any other column as it is copied."""
    plain = Column("e", Kind.STRING, source_type("text"))
    assert as_read(plain) is plain
    assert as_read(replace(plain, choice=MASKED)) == plain
    assert as_read(hashed("date")) == Column("e", Kind.MOMENT, source_type("date"))
    assert [column.is_hidden for column in (plain, replace(plain, choice=MASKED), hashed("date"))] == [
        False,
        True,
        True,
    ]


def test_a_form_is_chosen_by_name() -> None:
    """In any case of letters."""
    choice = ColumnChoice(hash=("Email",), mask=("phone", "gone"))
    assert [choice.form(name) for name in ("EMAIL", "PHONE", "id")] == [HASHED, MASKED, ""]
    assert choice.without_column(["email", "Phone"]) == ("gone",)


def with_email(key_id: str, column: Column) -> TableSchema:
    """A table with this column, whose hashes have the key with this digest."""
    base = table("id")
    choices = Choices(columns=ColumnChoice(hash=("e",), key_id=key_id))
    return replace(base, columns=(*base.columns, column), choices=choices)


def test_another_key_or_form_is_another_definition() -> None:
    """And the secret itself is in no fingerprint, no text and no comparison."""
    email = hashed("varchar(9)")
    kept = with_email("1", email)
    others = [with_email("2", email), with_email("1", replace(email, choice=MASKED)), with_email("1", hashed("text"))]
    assert len({kept.fingerprint, *(other.fingerprint for other in others)}) == 4
    secret = with_email("1", replace(email, secret=b"hush-hush"))
    assert (secret, secret.fingerprint) == (kept, kept.fingerprint)
    assert "hush" not in repr(secret)


def test_older_rows_of_a_new_hashed_column_are_null_or_not_known() -> None:
    """The hash of a default is not made up."""
    before = replace(table("id"), choices=with_email("1", hashed("int")).choices)
    after = with_email("1", hashed("int", default=Value(None)))
    assert not Lift(before, after, ("id", None)).fills
    for default in (Value(5), Default.NONE, Default.UNKNOWN):
        with pytest.raises(NotLiftable, match="e, which is new and hashed, is not known"):
            Lift(before, with_email("1", hashed("int", nullable=False, default=default)), ("id", None))
