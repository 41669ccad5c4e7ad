"""The Iceberg type of every kind of column."""

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from lakeingest.core.schema import Column, Kind, TableSchema

_TYPES: dict[Kind, iceberg.IcebergType] = {
    Kind.INT32: iceberg.IntegerType(),
    Kind.INT64: iceberg.LongType(),
    Kind.UINT64: iceberg.DecimalType(20, 0),
    Kind.FLOAT: iceberg.FloatType(),
    Kind.DOUBLE: iceberg.DoubleType(),
    Kind.DATE: iceberg.DateType(),
    Kind.DATETIME: iceberg.TimestampType(),
    Kind.TIMESTAMP: iceberg.TimestamptzType(),
    Kind.STRING: iceberg.StringType(),
    Kind.BINARY: iceberg.BinaryType(),
}


def iceberg_type(column: Column) -> iceberg.IcebergType:
    """The type that holds every value of the column exactly."""
    if column.kind is Kind.DECIMAL:
        return iceberg.DecimalType(column.precision, column.scale)
    return _TYPES[column.kind]


def iceberg_schema(schema: TableSchema) -> Schema:
    """The table's Iceberg schema: the key's columns are required and its identifier, all others are optional."""
    fields = [
        iceberg.NestedField(number, column.name, iceberg_type(column), required=column.name in schema.key)
        for number, column in enumerate(schema.columns, start=1)
    ]
    key = [field.field_id for field in fields if field.name in schema.key]
    return Schema(*fields, identifier_field_ids=key)
