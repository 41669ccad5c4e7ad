"""Schema change events of debezium-json, as Debezium's connector for MySQL writes them to its schema change topic.

Two fields are lakeingest's own: without these fields a reader would have to parse the statement. `previousName` is the
column's name before the DDL, null for a new column. `fill` has the value of the existing rows in each new column.
Fields of Debezium whose values the spool does not have are null. Source: Debezium's documentation of the MySQL
connector, "Schema change topic", and Debezium's class `SchemaFactory`.
"""

import json
import time
from typing import Any

from lakeingest.commands.change_lines import statement, values_of_added
from lakeingest.commands.debezium_types import connect_field, encoder
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.spool.followed import Altered

# The fields of a column: name, type, whether the field is optional
_COLUMN: tuple[tuple[str, str, bool], ...] = (
    ("name", "string", False),
    ("jdbcType", "int32", False),
    ("nativeType", "int32", True),
    ("typeName", "string", False),
    ("typeExpression", "string", True),
    ("charsetName", "string", True),
    ("length", "int32", True),
    ("scale", "int32", True),
    ("position", "int32", False),
    ("optional", "boolean", True),
    ("autoIncremented", "boolean", True),
    ("generated", "boolean", True),
    ("comment", "string", True),
    ("defaultValueExpression", "string", True),
    ("previousName", "string", True),
)
_TEXTS = {"type": "array", "items": {"type": "string", "optional": False}, "optional": True}

# Constants of java.sql.Types
_JDBC_TYPES = {
    Kind.INT32: 4,
    Kind.INT64: -5,
    Kind.UINT64: -5,
    Kind.DECIMAL: 3,
    Kind.NUMERAL: 3,
    Kind.FLOAT: 7,
    Kind.DOUBLE: 8,
    Kind.DATE: 91,
    Kind.DATETIME: 93,
    Kind.TIMESTAMP: 2014,
    Kind.TIME: 92,
    Kind.MICROS: 92,
    Kind.BOOLEAN: -7,
    Kind.BINARY: -3,
    Kind.JSON: 1111,
    Kind.VECTOR: 1111,
}
_VARCHAR = 12


def compact_json(doc: Any) -> str:
    """The document as JSON in one line."""
    return json.dumps(doc, ensure_ascii=False, separators=(",", ":"))


def change_payload(part: Altered, source: dict[str, Any]) -> dict[str, Any]:
    """The payload of the event: the DDL statement, and the table's definition after the statement."""
    followed = part.followed
    after, columns_after = followed.after, {column.name: column for column in followed.after.columns}
    table = {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": list(after.key),
        "columns": [
            _column(column, number, old_name, is_generated=column.name in after.generated)
            for number, (column, old_name) in enumerate(zip(after.columns, followed.origins, strict=True), start=1)
        ],
        "comment": None,
    }
    filled = {
        name: None if value is None else json.loads(encoder(columns_after[name])(value))
        for name, value in values_of_added(part).items()
    }
    return {
        "source": source,
        "ts_ms": time.time_ns() // 1_000_000,
        "databaseName": after.table.database,
        "schemaName": None,
        "ddl": statement(part),
        "tableChanges": [{"type": "ALTER", "id": _table_id(after), "table": table}],
        "fill": filled or None,
    }


def change_schema(part: Altered, source: dict[str, Any]) -> dict[str, Any]:
    """The schema of the payload that `change_payload` builds. `source` is the schema of its field `source`."""
    column_fields = [{"type": kind, "optional": optional, "field": name} for name, kind, optional in _COLUMN]
    after, added = part.followed.after, values_of_added(part)
    table_fields = [
        {"type": "string", "optional": True, "field": "defaultCharsetName"},
        _TEXTS | {"field": "primaryKeyColumnNames"},
        {
            "type": "array",
            "items": _struct_type(
                "io.debezium.connector.schema.Column", [*column_fields, _TEXTS | {"field": "enumValues"}]
            ),
            "optional": False,
            "field": "columns",
        },
        {"type": "string", "optional": True, "field": "comment"},
    ]
    change_fields = [
        {"type": "string", "optional": False, "field": "type"},
        {"type": "string", "optional": False, "field": "id"},
        _struct_type("io.debezium.connector.schema.Table", table_fields, optional=True) | {"field": "table"},
    ]
    fill_fields = [connect_field(column) | {"optional": True} for column in after.columns if column.name in added]
    fields = [
        source,
        {"type": "int64", "optional": False, "field": "ts_ms"},
        *({"type": "string", "optional": True, "field": name} for name in ("databaseName", "schemaName", "ddl")),
        {
            "type": "array",
            "items": _struct_type("io.debezium.connector.schema.Change", change_fields),
            "optional": False,
            "field": "tableChanges",
        },
        {"type": "struct", "fields": fill_fields, "optional": True, "field": "fill"},
    ]
    return _struct_type("io.debezium.connector.mysql.SchemaChangeValue", fields)


def _struct_type(name: str, fields: list[dict[str, Any]], *, optional: bool = False) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, "version": 1}


def _column(column: Column, number: int, old_name: str | None, *, is_generated: bool) -> dict[str, Any]:
    """The document of a column of the new definition.

    `number` is the column's place among the columns, from 1 on. `old_name` is its name before the DDL, None for a new
    column.
    """
    source = column.source_type
    return {
        "name": column.name,
        "jdbcType": _JDBC_TYPES.get(column.kind, _VARCHAR),
        "nativeType": None,
        "typeName": f"{source.name}{' unsigned' if source.unsigned else ''}".upper(),
        "typeExpression": source.text,
        "charsetName": column.charset or None,
        "length": column.precision or source.size or None,
        "scale": column.scale if source.name == "decimal" else None,
        "position": number,
        "optional": column.nullable,
        "autoIncremented": None,
        "generated": is_generated,
        "comment": None,
        "defaultValueExpression": None,
        "previousName": old_name,
        "enumValues": list(column.members) or None,
    }


def _table_id(schema: TableSchema) -> str:
    """Debezium's name of a table: database and name, each in double quotes, joined by a dot."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema.table.database, schema.table.name))
