"""information_schema to TableSchema. Keys and types that are not yet copied exactly are refused by name."""

import re
from typing import Any

import pymysql

from lakeingest.core.schema import GEOMETRIES, KEY_KINDS, Column, Kind, TableId, TableSchema
from lakeingest.errors import OperatorNeeded, UnsupportedTable
from lakeingest.mysql.connection import literal, query, query_dicts

_SYSTEM = {"mysql", "information_schema", "performance_schema", "sys"}
_DIGITS_MAX = 38  # of a decimal in Arrow and in both formats
_NAME = re.compile(r"[\w$][\w$ -]*")
_OURS = "_lakeingest_"
_KINDS: dict[str, Kind] = {
    "tinyint": Kind.INT32,
    "smallint": Kind.INT32,
    "mediumint": Kind.INT32,
    "int": Kind.INT32,
    "bigint": Kind.INT64,
    "decimal": Kind.DECIMAL,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "year": Kind.INT32,
    "date": Kind.DATE,
    "datetime": Kind.DATETIME,
    "timestamp": Kind.TIMESTAMP,
    "time": Kind.TIME,
    "char": Kind.STRING,
    "varchar": Kind.STRING,
    "tinytext": Kind.STRING,
    "text": Kind.STRING,
    "mediumtext": Kind.STRING,
    "longtext": Kind.STRING,
    "enum": Kind.STRING,
    "set": Kind.STRING,
    "json": Kind.JSON,
    "bit": Kind.BINARY,
    "binary": Kind.BINARY,
    "varbinary": Kind.BINARY,
    "tinyblob": Kind.BINARY,
    "blob": Kind.BINARY,
    "mediumblob": Kind.BINARY,
    "longblob": Kind.BINARY,
    **dict.fromkeys(GEOMETRIES, Kind.BINARY),
    "vector": Kind.VECTOR,
}
_UNSIGNED: dict[str, Kind] = {"int": Kind.INT64, "bigint": Kind.UINT64}


def list_tables(connection: pymysql.Connection) -> list[TableId]:
    """Every base table of the source outside MySQL's own schemas that the user may see."""
    rows = query(
        connection, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'"
    )
    return sorted(TableId(database, name) for database, name in rows if database.lower() not in _SYSTEM)


def read_schema(connection: pymysql.Connection, table: TableId) -> TableSchema:
    """The table's definition as it is now.

    OperatorNeeded when there is no such table; UnsupportedTable when its key or a column would not arrive exact,
    naming all the reasons.
    """
    where = f"WHERE TABLE_SCHEMA = {literal(table.database)} AND TABLE_NAME = {literal(table.name)}"
    rows = query_dicts(connection, f"SELECT * FROM information_schema.COLUMNS {where} ORDER BY ORDINAL_POSITION")
    if not rows:
        raise OperatorNeeded(f"{table}: no such table, or the user may not SELECT from it")
    reasons: list[str] = []
    if not (_NAME.fullmatch(table.database) and _NAME.fullmatch(table.name)):
        reasons.append("names with other signs than letters, digits, _, $, - and space are not built yet")
    columns = tuple(_column(row, reasons) for row in rows)
    if len({column.name.lower() for column in columns}) < len(columns):
        reasons.append("two columns differ only by case")
    keys = query_dicts(
        connection,
        f"SELECT COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS {where} AND INDEX_NAME = 'PRIMARY'"
        " ORDER BY SEQ_IN_INDEX",
    )
    key = tuple(str(row["column_name"]) for row in keys)
    if not key:
        reasons.append("it has no primary key")
    reasons += [
        f"key column {column.name} is {column.source_type}; only integer keys are built yet"
        for column in columns
        if column.name in key and column.kind not in KEY_KINDS
    ]
    if reasons:
        raise UnsupportedTable(f"{table}: {'; '.join(reasons)}. Leave it out with tables.exclude")
    return TableSchema(table, columns, key)


def _column(row: dict[str, Any], reasons: list[str]) -> Column:
    name, data_type, column_type = (str(row[part]) for part in ("column_name", "data_type", "column_type"))
    data_type = data_type.lower()
    precision, scale = int(row["numeric_precision"] or 0), int(row["numeric_scale"] or 0)
    kind = _kind(data_type, precision, unsigned="unsigned" in column_type.lower())
    extra = str(row["extra"] or "").upper()
    refusals = (
        (kind is None, "this type is not built yet"),
        (kind is Kind.NUMERAL and "zerofill" in column_type.lower(), "its text form is padded by the server"),
        (
            kind in {Kind.FLOAT, Kind.DOUBLE} and row["numeric_scale"] is not None,
            "its text form is rounded by the server",
        ),
        ("GENERATED" in extra and "DEFAULT_GENERATED" not in extra, "generated columns are not built yet"),
        ("INVISIBLE" in extra, "invisible columns are not built yet"),
        (not _NAME.fullmatch(name), "names with such signs are not built yet"),
        (name.lower().startswith(_OURS), f"names that begin with {_OURS} are ours"),
    )
    reasons += [f"column {name} is {column_type}: {reason}" for refused, reason in refusals if refused]
    return Column(
        name=name,
        kind=kind or Kind.STRING,
        source_type=column_type,
        nullable=str(row["is_nullable"]).upper() == "YES",
        precision=precision if data_type == "decimal" else 0,
        scale=scale if data_type == "decimal" else 0,
        fraction=int(row["datetime_precision"] or 0),
        length=int(row["character_octet_length"] or 0) if data_type == "binary" else 0,
    )


def _kind(data_type: str, precision: int, *, unsigned: bool) -> Kind | None:
    """What a column of the type holds; None for a type that is not known."""
    if data_type == "bit" and precision == 1:
        return Kind.BOOLEAN
    if data_type == "decimal" and precision > _DIGITS_MAX:
        return Kind.NUMERAL
    return _UNSIGNED.get(data_type, _KINDS.get(data_type)) if unsigned else _KINDS.get(data_type)
