"""Reads a few rows by their keys, with the decoders of a chunk."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql

from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.mysql.connection import table_name
from lakeingest.mysql.row_stream import stream_rows
from lakeingest.mysql.wire.matching import matching
from lakeingest.rows import table_schema

_AT_ONCE = 200  # how many keys one SELECT has


def rows_of(connection: pymysql.Connection, schema: TableSchema, keys: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows with these keys; for text keys, also rows whose keys are equal in the column's collation.

    Only rows that meet the condition of the user are returned. The values of `keys` are those of Arrow. Each SELECT
    reads `_AT_ONCE` keys, in a read view of its own.
    """
    names = ", ".join(map(quote, schema.source_names))
    batches: list[pa.RecordBatch] = []
    for where in conditions_of(schema, keys):
        rows = stream_rows(connection, schema, f"SELECT {names} FROM {table_name(schema.table)} WHERE {where}")
        batches += (matching(batch, schema) for batch in rows)
    return pa.Table.from_batches(batches, table_schema(schema))


def conditions_of(schema: TableSchema, keys: Sequence[Mapping[str, Any]]) -> list[str]:
    """SQL conditions, one for each group of `_AT_ONCE` keys; together they select the rows of `rows_of`."""
    for_each_key = [
        " AND ".join(
            f"{quote(column.source_name)} = {value_of(column, key[column.name])}" for column in schema.key_columns
        )
        for key in keys
    ]
    return [
        " OR ".join(f"({condition})" for condition in for_each_key[first : first + _AT_ONCE])
        for first in range(0, len(for_each_key), _AT_ONCE)
    ]


def value_of(column: Column, value: Any) -> str:
    """The SQL literal for a value of the lake, as MySQL compares it with the column."""
    if column.kind is Kind.MICROS:
        # not `value / 1000000` in SQL: its digits depend on div_precision_increment
        return f"SEC_TO_TIME({Decimal(value).scaleb(-6):f})"
    match value:
        case bool() | int():
            return str(int(value))
        case Decimal():
            return f"{value:f}"
        case bytes():
            return str(int.from_bytes(value)) if column.source_type.name == "bit" else f"x'{value.hex()}'"
        case str() if column.kind is Kind.STRING:
            return f"_utf8mb4 x'{value.encode().hex()}'"
        case dt.datetime():
            # not strftime, which writes a year before 1000 with fewer digits
            return f"'{value.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
        case _:  # numerals, times, dates
            return f"'{value}'"
