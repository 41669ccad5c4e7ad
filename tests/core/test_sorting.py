"""How sort orders are written in pipeline.yml, and by which columns rows can be sorted."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.core.tables.sorting import SortField, parse_all, refusal
from lakeingest.mysql.source_types import source_type


@pytest.mark.parametrize(
    ("text", "field", "canonical"),
    [
        ("country", SortField("country"), "country"),
        (" country  ASC ", SortField("country"), "country"),
        ("created_at desc", SortField("created_at", descending=True), "created_at desc"),
        ("made at DESC", SortField("made at", descending=True), "made at desc"),
        ("made at", SortField("made at"), "made at"),
        ("desc", SortField("desc"), "desc"),
        ("`sorted desc`", SortField("sorted desc"), "`sorted desc`"),
        ("`a``b, c` desc", SortField("a`b, c", descending=True), "`a``b, c` desc"),
        ("` x`", SortField(" x"), "` x`"),
    ],
)
def test_a_column_with_or_without_a_direction_is_read(text: str, field: SortField, canonical: str) -> None:
    """Names of columns are data."""
    assert SortField.parse(text) == field
    assert str(field) == canonical


@given(st.text(min_size=1), st.booleans())
def test_every_name_of_a_column_comes_back(column: str, descending: bool) -> None:  # noqa: FBT001 - drawn
    """Whatever letters it has."""
    field = SortField(column, descending)
    assert SortField.parse(str(field)) == field


@pytest.mark.parametrize("text", ["", " ", "a, b", "days(created_at)", "`a", "``"])
def test_what_is_no_column_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no column to sort by")):
        SortField.parse(text)


def test_a_column_is_named_once() -> None:
    """As MySQL compares names, in any case of letters."""
    assert parse_all(["b desc", "a"]) == (SortField("b", descending=True), SortField("a"))
    with pytest.raises(ValueError, match="A is named twice"):
        parse_all(["A", "b", "a desc"])


def test_a_column_that_cannot_be_compared_is_refused_by_name() -> None:
    """So is one that the table does not have."""
    columns = (
        Column("id", Kind.INT32, source_type("int"), nullable=False),
        Column("f", Kind.DOUBLE, source_type("double")),
        Column("v", Kind.STRING, source_type("text")),
    )
    schema = TableSchema(TableId("shop", "orders"), columns, ("id",))
    assert refusal(parse_all(["v desc", "id"]), schema) is None
    assert refusal((), schema) is None
    assert (
        refusal(parse_all(["id", "w"]), schema) == "sort_by names w, which is not a column of the table, or is skipped"
    )
    assert refusal(parse_all(["f"]), schema) == "sort_by: f is double, by which rows cannot be sorted"
