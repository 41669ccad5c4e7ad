"""The rows of a SELECT as Arrow batches, by the driver and MySQL's text protocol."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pymysql

from lakeingest.core.schema import TableSchema
from lakeingest.errors import UnsupportedValue
from lakeingest.wire import arrow

FETCH_ROWS = 2_000  # rows that are Python objects at once, and
FETCH_BYTES = 4 << 20  # about their bytes in Arrow
FETCH_GROWTH = 10  # of one fetch to the next: the rows so far say only roughly how wide the next ones are


def stream_texts(connection: pymysql.Connection, schema: TableSchema, sql: str) -> Iterator[pa.RecordBatch]:
    """As `row_stream.stream_rows`, of a SELECT in which a FLOAT is cast to DOUBLE: as text it has six digits."""
    types = arrow.table_schema(schema)
    fetch = 1
    with connection.cursor(pymysql.cursors.SSCursor) as cursor:
        cursor.execute(sql)
        while rows := cursor.fetchmany(fetch):
            batch = pa.record_batch(_columns(schema, rows), schema=types)
            yield batch
            fitting = FETCH_BYTES * len(rows) // max(batch.nbytes, 1)
            fetch = max(1, min(fetch * FETCH_GROWTH, FETCH_ROWS, fitting))


def _columns(schema: TableSchema, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    try:
        return [
            arrow.from_text(column, values)
            for column, values in zip(schema.columns, zip(*rows, strict=True), strict=True)
        ]
    except UnsupportedValue as error:
        raise UnsupportedValue(f"{schema.table}: {error}") from error
