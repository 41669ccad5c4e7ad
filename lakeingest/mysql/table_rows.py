"""Reads the rows of a table with the decoder that LAKEINGEST_WIRE selects."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pymysql

from lakeingest.core.keys import quote
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.mysql.reference.text_rows import stream_texts, text_columns
from lakeingest.mysql.row_stream import is_reference, stream_rows


def select_rows(
    connection: pymysql.Connection, schema: TableSchema, select: str, rest: str, nulled: Counter[TableId] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a SELECT of all columns, whose text is `select`, the columns, and `rest`; as in `stream_rows`."""
    if is_reference():
        return stream_texts(connection, schema, f"{select} {text_columns(schema)} {rest}")
    return stream_rows(connection, schema, f"{select} {', '.join(map(quote, schema.names))} {rest}", nulled)
