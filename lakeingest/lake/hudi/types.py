"""The Spark type of every kind of column of a Hudi table."""

import re

from lakeingest.core.schema import Column, Kind
from lakeingest.errors import UnsupportedTable

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


def hudi_type(column: Column) -> str:
    """Spark's name for the type that holds every value of the column exactly.

    UnsupportedTable for a name that an Avro schema, and so Hudi, does not allow.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column.name) or column.name.startswith("_hoodie_"):
        raise UnsupportedTable(
            f"column {column.name!r}: Hudi allows only letters, digits and _ in a name; use Iceberg, or tables.exclude"
        )
    if column.kind is Kind.DECIMAL:
        return f"decimal({column.precision},{column.scale})"
    return _SPARK_TYPES[column.kind]
