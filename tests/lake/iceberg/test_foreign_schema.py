"""The columns of another tool's table as those of a copy: types, names, and what nobody can take over."""

from dataclasses import replace

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakeingest.core.tables.column_choice import MASKED
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.lake.iceberg.foreign.foreign_schema import CopySchema, copy_schema
from lakeingest.mysql.source_types import source_type

TABLE = TableId("shop", "orders")


def column(name: str, type_: str, kind: Kind, **more: object) -> Column:
    """A column of the source."""
    return Column(name, kind, source_type(type_), **more)  # type: ignore[arg-type]


ID = column("id", "int", Kind.INT32, nullable=False)


def of_table(*fields: NestedField) -> TableMetadata:
    """The metadata of another tool's table."""
    return new_table_metadata(Schema(*fields), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})


def taken(*fields: NestedField, columns: tuple[Column, ...], drop: tuple[str, ...] = ()) -> CopySchema:
    """The schema of the copy of a table with these columns, beside `id`, that takes over a table with these fields."""
    table = TableSchema(TABLE, (ID, *columns), ("id",))
    key = NestedField(1, "id", IntegerType(), required=True)
    return copy_schema(of_table(key, *fields), table, drop, keeps_dropped=True)


@pytest.mark.parametrize(
    ("found", "type_", "kind", "expected"),
    [
        (IntegerType(), "int", Kind.INT32, IntegerType()),
        (IntegerType(), "bigint", Kind.INT64, LongType()),
        (LongType(), "int", Kind.INT32, None),
        (FloatType(), "double", Kind.DOUBLE, DoubleType()),
        (DoubleType(), "float", Kind.FLOAT, None),
        (TimestamptzType(), "datetime", Kind.DATETIME, None),
        (TimestampType(), "datetime", Kind.DATETIME, TimestampType()),
        (StringType(), "int", Kind.INT32, None),
        (StringType(), "json", Kind.JSON, StringType()),
    ],
)
def test_types_stay_or_become_wider(found: IcebergType, type_: str, kind: Kind, expected: IcebergType | None) -> None:
    """Only where each value stays what it is; anything else is named with both types."""
    copy = taken(NestedField(2, "v", found), columns=(column("v", type_, kind),))
    if expected is None:
        [refusal] = copy.refusals
        assert refusal.startswith(f"v is {found}, and the copy's v ({type_}) is ")
        return
    assert copy.refusals == ()
    assert (copy.schema.find_field("v").field_id, copy.schema.find_field("v").field_type) == (2, expected)
    assert copy.widened == (() if found == expected else (f"v ({found} to {expected})",))


@pytest.mark.parametrize(
    ("found", "type_", "kind", "way"),
    [
        (LongType(), "int", Kind.INT32, "bigint"),
        (StringType(), "int", Kind.INT32, "string"),
        (BooleanType(), "tinyint(1)", Kind.INT32, "boolean"),
        (BooleanType(), "tinyint(4)", Kind.INT32, None),
        (LongType(), "float", Kind.FLOAT, None),
        (TimestamptzType(), "datetime", Kind.DATETIME, None),
    ],
)
def test_a_refusal_names_the_cast_with_which_a_column_stays(
    found: IcebergType, type_: str, kind: Kind, way: str | None
) -> None:
    """As the source names the column. Where no cast gives its type, none is named; nor for hidden columns."""
    wanted = replace(column("v", type_, kind), renamed_from="V of source")
    [refusal] = taken(NestedField(2, "v", found), columns=(wanted,)).refusals
    assert refusal.endswith(f"(it stays with columns: {{cast: {{V of source: {way}}}}})") == (way is not None)
    [refusal] = taken(NestedField(2, "v", found), columns=(replace(wanted, choice=MASKED),)).refusals
    assert "cast" not in refusal


@pytest.mark.parametrize(("found", "fits"), [((10, 2), True), ((12, 2), True), ((13, 2), False), ((10, 3), False)])
def test_decimals_get_more_digits_before_the_point_alone(found: tuple[int, int], *, fits: bool) -> None:
    """The digits after it are those of the source."""
    wanted = column("v", "decimal(12,2)", Kind.DECIMAL, precision=12, scale=2)
    copy = taken(NestedField(2, "v", DecimalType(*found)), columns=(wanted,))
    assert (copy.refusals == ()) == fits
    if fits:
        assert copy.schema.find_field("v").field_type == DecimalType(12, 2)


def test_columns_of_the_tool_go_or_stay_as_null() -> None:
    """Only those that the user names. A struct has parts, and goes; a name that the copy uses is not there twice."""
    fields = (
        NestedField(2, "_op", StringType(), required=True),
        NestedField(3, "_meta", StructType(NestedField(4, "a", IntegerType()))),
        NestedField(5, "at", TimestamptzType()),
    )
    at = column("at", "datetime", Kind.DATETIME)
    unnamed = taken(*fields, columns=(at,))
    assert "the source has no column _op, _meta" in unnamed.refusals[0]
    copy = taken(*fields, columns=(at,), drop=("_*", "at"))
    assert copy.refusals == ()
    assert copy.matched.dropped == ("_op", "_meta", "at")
    assert [(field.name, field.field_id > 5, field.required) for field in copy.schema.fields] == [
        ("id", False, True),
        ("at", True, False),
        ("_op", True, False),
    ]
    assert copy.schema.identifier_field_ids == [1]


def test_a_column_that_is_missing_is_new_and_optional() -> None:
    """Also where the source requires it: old rows have no value. A key column must be there."""
    copy = taken(columns=(column("v", "int", Kind.INT32, nullable=False),))
    assert (copy.refusals, copy.schema.find_field("v").required) == ((), False)
    table = TableSchema(TABLE, (ID,), ("id",))
    without = copy_schema(of_table(NestedField(1, "x", IntegerType())), table, ("x",), keeps_dropped=False)
    assert without.refusals == ("the key's column id is not in it",)


def test_a_key_that_is_optional_identifies_no_rows() -> None:
    """Iceberg does not allow it; the column stays as it is."""
    table = TableSchema(TABLE, (ID,), ("id",))
    copy = copy_schema(of_table(NestedField(1, "ID", IntegerType())), table, (), keeps_dropped=False)
    assert [(field.name, field.field_id, field.required) for field in copy.schema.fields] == [("id", 1, False)]
    assert copy.schema.identifier_field_ids == []


def test_lists_of_numbers_keep_the_field_id_of_their_elements() -> None:
    """Lists of anything else are no vectors."""
    vector = column("v", "vector(3)", Kind.VECTOR)
    numbers = NestedField(2, "v", ListType(7, FloatType(), element_required=False))
    copy = taken(numbers, columns=(vector,))
    kept = copy.schema.find_field("v").field_type
    assert copy.refusals == ()
    assert isinstance(kept, ListType)
    assert (kept.element_id, kept.element_required) == (3, False)  # the id that the metadata has given it
    assert taken(NestedField(2, "v", ListType(7, StringType())), columns=(vector,)).refusals
