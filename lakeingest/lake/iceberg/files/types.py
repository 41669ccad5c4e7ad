"""The Iceberg type of every kind of column, as PyIceberg has it. `type_names` decides which type that is."""

from collections.abc import Mapping

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.lake.iceberg.files.type_names import type_name


def iceberg_type(column: Column, element_id: int = 0) -> iceberg.IcebergType:
    """The type that holds every value of the column exactly. `element_id` is the field id of the elements of a list.

    Raises UnsupportedTable if Iceberg reserves the column's name.
    """
    name = type_name(column)
    if column.kind is Kind.VECTOR:
        return iceberg.ListType(element_id, iceberg.FloatType(), element_required=True)
    return iceberg.IcebergType.model_validate(name)


def iceberg_schema(schema: TableSchema, comments: Mapping[str, str]) -> Schema:
    """The Iceberg schema of the table's copy, with these comments of columns.

    The key's columns are required, and are the identifier. Any other column is required if it is never NULL in the
    copy. So a NOT NULL column of the source is optional if the user chose NULL for some of its values.
    """
    column_count = len(schema.lake_columns)
    fields = [
        iceberg.NestedField(
            number,
            column.name,
            iceberg_type(column, column_count + number),  # elements of lists have field ids after those of the columns
            doc=comments.get(column.name),
            required=column.name in schema.key or not column.nullable,
        )
        for number, column in enumerate(schema.lake_columns, start=1)
    ]
    key = [field.field_id for field in fields if field.name in schema.key]
    return Schema(*fields, identifier_field_ids=key)
