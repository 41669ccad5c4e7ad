"""The type of every kind of column, in each format."""

import re

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from lakeingest.core.schema import Column, Kind, TableSchema
from lakeingest.errors import UnsupportedTable

_TYPES: dict[Kind, iceberg.IcebergType] = {
    Kind.INT32: iceberg.IntegerType(),
    Kind.INT64: iceberg.LongType(),
    Kind.UINT64: iceberg.DecimalType(20, 0),
    Kind.FLOAT: iceberg.FloatType(),
    Kind.DOUBLE: iceberg.DoubleType(),
    Kind.DATE: iceberg.DateType(),
    Kind.DATETIME: iceberg.TimestampType(),
    Kind.TIMESTAMP: iceberg.TimestamptzType(),
    Kind.TIME: iceberg.StringType(),
    Kind.STRING: iceberg.StringType(),
    Kind.NUMERAL: iceberg.StringType(),
    Kind.JSON: iceberg.StringType(),
    Kind.UUID: iceberg.StringType(),
    Kind.ADDRESS: iceberg.StringType(),
    Kind.BOOLEAN: iceberg.BooleanType(),
    Kind.BINARY: iceberg.BinaryType(),
    Kind.MOMENT: iceberg.StringType(),
    Kind.MICROS: iceberg.LongType(),
}

# Iceberg's own columns: Spark does not read a table that has one of the name
_ICEBERG_OWN = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)

_SPARK_TYPES = {
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.UINT64: "decimal(20,0)",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.DATE: "date",
    Kind.DATETIME: "timestamp_ntz",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIME: "string",
    Kind.STRING: "string",
    Kind.NUMERAL: "string",
    Kind.JSON: "string",
    Kind.UUID: "string",
    Kind.ADDRESS: "string",
    Kind.BOOLEAN: "boolean",
    Kind.BINARY: "binary",
    Kind.VECTOR: "array<float>",
    Kind.MOMENT: "string",
    Kind.MICROS: "bigint",
}


def iceberg_type(column: Column, element_id: int = 0) -> iceberg.IcebergType:
    """The type that holds every value of the column exactly; `element_id` is the field id of a list's elements.

    UnsupportedTable for a name that is Iceberg's own.
    """
    if column.name.lower() in _ICEBERG_OWN:
        raise UnsupportedTable(f"column {column.name}: Iceberg has one of its own of this name; use tables.exclude")
    if column.kind is Kind.DECIMAL:
        return iceberg.DecimalType(column.precision, column.scale)
    if column.kind is Kind.VECTOR:
        return iceberg.ListType(element_id, iceberg.FloatType(), element_required=True)
    return _TYPES[column.kind]


def iceberg_schema(schema: TableSchema) -> Schema:
    """The table's Iceberg schema: the key's columns are required and its identifier, all others are optional."""
    count = len(schema.columns)
    fields = [
        iceberg.NestedField(
            number, column.name, iceberg_type(column, count + number), required=column.name in schema.key
        )
        for number, column in enumerate(schema.columns, start=1)
    ]
    key = [field.field_id for field in fields if field.name in schema.key]
    return Schema(*fields, identifier_field_ids=key)


def hudi_type(column: Column) -> str:
    """Spark's name for the type that holds every value of the column exactly.

    UnsupportedTable for a name that Hudi, whose schemas are Avro's, cannot have.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column.name) or column.name.startswith("_hoodie_"):
        raise UnsupportedTable(
            f"column {column.name!r}: Hudi has only names of letters, digits and _; use Iceberg, or tables.exclude"
        )
    if column.kind is Kind.DECIMAL:
        return f"decimal({column.precision},{column.scale})"
    return _SPARK_TYPES[column.kind]
