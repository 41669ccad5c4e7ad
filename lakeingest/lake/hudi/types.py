"""The Spark type of each kind of column in a Hudi table, and the names that Hudi's tables and columns can have."""

import re

from lakeingest.config import Target
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import UnsupportedTable
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.refusals import assert_nameable

_FOLDER = re.compile(r"[\w$./:+~-]+")  # Hudi's SQL does not find a table whose folder has other characters

_FOLDER_BYTES = 255 - len(BUILDING)  # file systems allow 255 bytes; until the first publish, the name has this suffix

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


def hudi_types(settings: Target, schema: TableSchema) -> tuple[str, ...]:
    """The Spark types of a table's columns.

    Raises UnsupportedTable if Hudi or the catalog does not allow the name of the folder, the table or a column.
    """
    folder = settings.folder(schema.table).hadoop
    if not _FOLDER.fullmatch(folder):
        raise UnsupportedTable(
            f"Hudi cannot merge into {folder}: its name may have letters, digits and _ $ . + ~ -; use Iceberg"
        )
    if any(len(part.encode()) > _FOLDER_BYTES for part in folder.split("/")):
        raise UnsupportedTable(
            f"the name of the folder {folder} is longer than {_FOLDER_BYTES} bytes; shorten it by target.table"
        )
    assert_nameable(settings.catalog.type, settings.identifier(schema.table))
    return tuple(map(hudi_type, schema.lake_columns))


def hudi_type(column: Column) -> str:
    """Spark's name for the type that holds every value of the column exactly.

    Raises UnsupportedTable if Hudi reserves the column's name, or if Avro, which Hudi uses, does not allow the name.
    """
    if column.name.startswith("_hoodie_"):
        raise UnsupportedTable(
            f"column {column.name!r}: Hudi reserves names that begin with _hoodie_; use Iceberg, or tables.exclude"
        )
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column.name):
        raise UnsupportedTable(
            f"column {column.name!r}: Hudi allows only letters, digits and _ in a name; use Iceberg, or tables.exclude"
        )
    if column.kind is Kind.DECIMAL:
        return f"decimal({column.precision},{column.scale})"
    return _SPARK_TYPES[column.kind]
