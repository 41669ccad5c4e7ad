"""Reads the rows of a SELECT into Arrow batches by the driver and the text protocol: slowly, without compiled code."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import SRID_BYTES, Column, Kind, TableSchema
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.connection import literal, query
from lakeingest.mysql.wire.codes import has_one_code_each
from lakeingest.mysql.wire.refusals import beyond_reference, is_chosen, no_day
from lakeingest.rows import INSTANT, arrow_type, table_schema

FETCH_ROWS = 2_000  # the most rows of a fetch, because the fetched rows are Python objects
FETCH_BYTES = 4 << 20  # about the size of a fetch in Arrow
FETCH_GROWTH = 10  # a fetch has at most so many times the rows of the fetch before, because later rows may be larger


def stream_texts(connection: pymysql.Connection, schema: TableSchema, sql: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `sql`, a SELECT of `text_columns`, as `row_stream.stream_rows` does."""
    types = table_schema(schema)
    _require_one_code_each(connection, schema)
    fetch_rows = 1  # because the size of the rows is not known before the first fetch
    with connection.cursor(pymysql.cursors.SSCursor) as cursor:
        cursor.execute(sql)
        while rows := cursor.fetchmany(fetch_rows):
            batch = pa.record_batch(_columns(schema, rows), schema=types)
            yield batch
            fitting_rows = FETCH_BYTES * len(rows) // max(batch.nbytes, 1)  # if later rows are as large as these
            fetch_rows = max(1, min(fetch_rows * FETCH_GROWTH, FETCH_ROWS, fitting_rows))


def text_columns(schema: TableSchema) -> str:
    """The expressions of a SELECT of all columns, written so that the texts of their values are exact."""
    return ", ".join(map(_expression, schema.columns))


def _expression(column: Column) -> str:
    """SQL for the column's value, written so that the server's text of it is exact."""
    name = quote(column.source_name)
    if column.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return f"CAST({name} AS DOUBLE)"  # MySQL rounds the text of a FLOAT to six digits
    return f"{name} + 0" if column.kind is Kind.NUMERAL else name  # `+ 0` removes the zeros of ZEROFILL


def _require_one_code_each(connection: pymysql.Connection, schema: TableSchema) -> None:
    """Raise UnsupportedValue if a text key has a charset with several codes for a character.

    The server converts texts before it sends them in the text protocol, so the original codes are not known here.
    """
    table = schema.table
    rows = query(
        connection,
        "SELECT COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS WHERE CHARACTER_SET_NAME IS NOT NULL"
        f" AND TABLE_SCHEMA = {literal(table.database)} AND TABLE_NAME = {literal(table.name)}",
    )
    charsets = {str(name): str(charset) for name, charset in rows}
    for column in schema.key_columns:
        if not column.members and not has_one_code_each(charsets.get(column.source_name, "utf8mb4")):
            raise beyond_reference(column)


def _columns(schema: TableSchema, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    """The Arrow columns of fetched rows. Errors of `from_text` get the table's name."""
    try:
        values_of_columns = zip(*rows, strict=True)
        return [from_text(column, values) for column, values in zip(schema.columns, values_of_columns, strict=True)]
    except UnsupportedValue as error:
        raise UnsupportedValue(f"{schema.table}: {error}") from error


def from_text(column: Column, values: Sequence[Any]) -> pa.Array:
    """The Arrow column of values of MySQL's text protocol.

    The values of BINARY and BOOLEAN are bytes, and the values of FLOAT are the texts of a DOUBLE. Raises
    UnsupportedValue for a value that the type cannot hold, such as a zero date, and for each column that only the fast
    decoders can read.
    """
    if column.kind is Kind.VECTOR or is_chosen(column):
        raise beyond_reference(column)
    if column.kind is Kind.BOOLEAN:
        return pa.array([None if value is None else value == b"\1" for value in values], pa.bool_())
    if column.kind is Kind.BINARY:
        if column.is_geometry:
            values = [None if value is None else value[SRID_BYTES:] for value in values]
        return pa.array(values, pa.binary())
    texts = pa.array(values, pa.string())
    if arrow_type(column) == texts.type:
        return texts
    # Arrow has a year 0, so its cast would accept a date such as 0000-01-01
    if column.kind in {Kind.DATE, Kind.DATETIME} and pc.any(pc.starts_with(texts, "0000")).as_py():
        raise no_day(column, next(text for text in texts.to_pylist() if text and text.startswith("0000")))
    try:
        if column.kind is Kind.FLOAT:
            return texts.cast(pa.float64()).cast(pa.float32(), safe=False)
        if column.kind is Kind.TIMESTAMP:
            return texts.cast(pa.timestamp("us")).cast(INSTANT)
        return texts.cast(arrow_type(column))
    except pa.ArrowInvalid as error:
        raise no_day(column, _invalid_text(column, texts)) from error


def _invalid_text(column: Column, texts: pa.Array) -> str:
    """The first text that cannot be cast to the column's type; '?' if each text can be cast alone."""
    wanted_type = pa.timestamp("us") if column.kind is Kind.TIMESTAMP else arrow_type(column)
    for text in pc.unique(texts.drop_null()).to_pylist():
        try:
            pa.array([text]).cast(wanted_type)
        except pa.ArrowInvalid:
            return str(text)
    return "?"
