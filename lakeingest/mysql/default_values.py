"""Reads the values of constant defaults by `SELECT DEFAULT(column)`, which returns a value only if the table has a row.

In the binary protocol the values have the column's own type, charset and digits (MySQL manual, "DEFAULT(col_name)").
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from lakeingest.config import Source
from lakeingest.core.tables.default import Default, Value
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import Column, TableId, TableSchema
from lakeingest.errors import SchemaChanged, UnsupportedValue
from lakeingest.mysql.connection import connect, table_name
from lakeingest.mysql.hash_key import keyed
from lakeingest.mysql.row_stream import stream_rows


def with_default_values(source: Source, schema: TableSchema, names: Collection[str]) -> TableSchema:
    """The definition, with the values of the constant defaults of the columns `names`.

    A default stays CONSTANT, without a value, if the table has no row, if the column is no longer as in `schema`, or if
    a copy cannot hold the value.
    """
    columns = (
        replace(column, default=_read(source, schema, column))
        if column.name in names and column.default is Default.CONSTANT
        else column
        for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def _read(source: Source, schema: TableSchema, column: Column) -> Default | Value:
    """The value of a column's default, read from the server; CONSTANT if it cannot be read.

    The SELECT has only this column, so that an error concerns only its default.
    """
    alone = keyed(TableSchema(schema.table, (column,), (column.name,), schema.choices), source)
    sql = f"SELECT DEFAULT({quote(column.source_name)}) FROM {table_name(schema.table)} LIMIT 1"
    nulled: Counter[TableId] = Counter()
    values: list[Any] = []  # one value, or none if the table has no row
    try:
        with connect(source, stream=True) as connection:  # a connection of its own, because an error makes it unusable
            for batch in stream_rows(connection, alone, sql, nulled):
                values += batch[0].to_pylist()
    except (UnsupportedValue, SchemaChanged):
        return Default.CONSTANT
    is_exact = not nulled.total()  # else the value is NULL only because the user chose so
    return Value(values[0]) if values and is_exact else Default.CONSTANT
