"""How partitions are written in pipeline.yml, and which columns can have them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.partitioning import PartitionField, Transform, parse_all, refusal
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.mysql.source_types import source_type


@pytest.mark.parametrize(
    ("text", "field", "canonical"),
    [
        ("country", PartitionField(Transform.IDENTITY, "country"), "country"),
        ("identity(country)", PartitionField(Transform.IDENTITY, "country"), "country"),
        ("days(created_at)", PartitionField(Transform.DAY, "created_at"), "day(created_at)"),
        (" HOUR ( created at ) ", PartitionField(Transform.HOUR, "created at"), "hour(created at)"),
        ("years(d)", PartitionField(Transform.YEAR, "d"), "year(d)"),
        ("month(d)", PartitionField(Transform.MONTH, "d"), "month(d)"),
        ("bucket(16,id)", PartitionField(Transform.BUCKET, "id", 16), "bucket(16, id)"),
        ("truncate(3, <script> 🎉)", PartitionField(Transform.TRUNCATE, "<script> 🎉", 3), "truncate(3, <script> 🎉)"),
        ("`days(x)`", PartitionField(Transform.IDENTITY, "days(x)"), "`days(x)`"),
        ("bucket(4, `a``b, c`)", PartitionField(Transform.BUCKET, "a`b, c", 4), "bucket(4, `a``b, c`)"),
        ('say "it"', PartitionField(Transform.IDENTITY, 'say "it"'), 'say "it"'),
    ],
)
def test_a_column_or_a_transform_is_read(text: str, field: PartitionField, canonical: str) -> None:
    """By Iceberg's names and by Spark's; names of columns are data."""
    assert PartitionField.parse(text) == field
    assert str(field) == canonical


@given(st.sampled_from(Transform), st.text(min_size=1), st.integers(1, 999_999_999))
def test_every_name_of_a_column_comes_back(transform: Transform, column: str, number: int) -> None:
    """Whatever letters it has."""
    is_numbered = transform in {Transform.BUCKET, Transform.TRUNCATE}
    field = PartitionField(transform, column, number if is_numbered else 0)
    assert PartitionField.parse(str(field)) == field


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dayz(created_at)", "there is no transform dayz; known are identity, year"),
        ("void(id)", "leave it out"),
        ("bucket(id)", "bucket needs a number from 1 on, as in bucket(16, id)"),
        ("bucket(0, id)", "needs a number from 1 on"),
        ("days(4, created_at)", "day has no number, as in day(created_at)"),
        ("bucket(id, 16)", "is no partition: write a column"),
        ("bucket(4294967296, id)", "is no partition"),
        ("days(a", "is no partition"),
        ("", "is no partition"),
        ("a, b", "is no partition"),
    ],
)
def test_what_is_no_partition_is_refused_with_the_reason(text: str, reason: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        PartitionField.parse(text)


def test_a_column_divides_the_rows_once() -> None:
    """MySQL's names of columns have no case."""
    assert [str(field) for field in parse_all(["days(at)", "bucket(4, id)"])] == ["day(at)", "bucket(4, id)"]
    with pytest.raises(ValueError, match="AT is named twice"):
        parse_all(["id", "days(AT)", "bucket(2, at)"])


KINDS = {
    "id": (Kind.INT64, "bigint"),
    "u": (Kind.UINT64, "bigint unsigned"),
    "d": (Kind.DATE, "date"),
    "dt": (Kind.DATETIME, "datetime"),
    "ts": (Kind.TIMESTAMP, "timestamp"),
    "s": (Kind.STRING, "varchar(9)"),
    "b": (Kind.BINARY, "blob"),
    "f": (Kind.DOUBLE, "double"),
    "on": (Kind.BOOLEAN, "bit(1)"),
    "m": (Kind.MOMENT, "date"),
    "v": (Kind.VECTOR, "vector(2)"),
}
SCHEMA = TableSchema(
    TableId("shop", "orders"),
    tuple(Column(name, kind, source_type(text)) for name, (kind, text) in KINDS.items()),
    ("id",),
)


@pytest.mark.parametrize(
    "texts",
    [
        ["days(d)", "hours(dt)", "months(ts)", "bucket(4, id)"],
        ["on", "s", "b", "u", "d"],
        ["truncate(2, s)", "truncate(10, id)", "bucket(3, b)", "years(dt)"],
        [],
    ],
)
def test_columns_of_fitting_types_are_taken(texts: list[str]) -> None:
    """Of each family of types."""
    assert refusal(parse_all(texts), SCHEMA) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("days(gone)", "partition_by names gone, which is not a column of the table, or is skipped"),
        ("hours(d)", "partition_by: hour(d): d is date, which hour cannot take"),
        ("days(m)", "m is date, which day cannot take"),  # a text, by `zero_dates: string`
        ("days(s)", "s is varchar(9), which day cannot take"),
        ("f", "f is double, which identity cannot take"),
        ("v", "which identity cannot take"),
        ("bucket(4, on)", "on is bit(1), which bucket cannot take"),
        ("truncate(4, d)", "d is date, which truncate cannot take"),
    ],
)
def test_other_columns_are_refused_by_name(text: str, reason: str) -> None:
    """With the type that the source has."""
    assert reason in (refusal(parse_all(["bucket(2, id)", text]), SCHEMA) or "")
