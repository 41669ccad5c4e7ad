"""The names of the Iceberg types of columns. They are known without PyIceberg, whose import takes long."""

from collections.abc import Mapping

from lakeingest import config
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import UnsupportedTable
from lakeingest.lake.refusals import assert_nameable

_NAMES: Mapping[Kind, str] = {
    Kind.INT32: "int",
    Kind.INT64: "long",
    Kind.UINT64: "decimal(20, 0)",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.DATE: "date",
    Kind.DATETIME: "timestamp",
    Kind.TIMESTAMP: "timestamptz",
    Kind.TIME: "string",
    Kind.STRING: "string",
    Kind.NUMERAL: "string",
    Kind.JSON: "string",
    Kind.UUID: "string",
    Kind.ADDRESS: "string",
    Kind.BOOLEAN: "boolean",
    Kind.BINARY: "binary",
    Kind.MOMENT: "string",
    Kind.MICROS: "long",
    Kind.VECTOR: "list<float>",
}

# names of Iceberg's metadata columns: Spark cannot read a table with a column of such a name
_RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)


def type_names(settings: config.Target, schema: TableSchema) -> tuple[str, ...]:
    """The name of each column's Iceberg type. Raises UnsupportedTable if the catalog cannot have the table."""
    assert_nameable(settings.catalog.type or "sql", settings.identifier(schema.table))
    return tuple(map(type_name, schema.lake_columns))


def type_name(column: Column) -> str:
    """The name of the column's Iceberg type. Raises UnsupportedTable as `assert_not_reserved`."""
    assert_not_reserved(column)
    if column.kind is Kind.DECIMAL:
        return f"decimal({column.precision}, {column.scale})"
    return _NAMES[column.kind]


def assert_not_reserved(column: Column) -> None:
    """Raises UnsupportedTable if Iceberg reserves the column's name."""
    if column.name.lower() in _RESERVED:
        raise UnsupportedTable(f"column {column.name}: Iceberg reserves this name; use tables.exclude")
