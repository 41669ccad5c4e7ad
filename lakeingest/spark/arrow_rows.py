"""Rows of an Arrow table as a DataFrame of Spark, with the types of a copy: the opposite of `collected`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 4_096


def as_dataframe(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """The rows as a DataFrame. A timestamp without a zone stays one, and each value stays exact."""
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    messages = [(_as_message(rows.schema, batch),) for batch in rows.to_batches(_BATCH_ROWS)]
    return spark.createDataFrame(messages, "message binary").mapInArrow(_from_messages, columns)


def _as_message(schema: pa.Schema, batch: pa.RecordBatch) -> bytearray:
    """A batch with its schema, in Arrow's IPC stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch)
    return bytearray(sink.getvalue())


def _from_messages(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """The batches that `_as_message` has put into the messages."""
    for batch in batches:
        for message in batch["message"]:
            yield from pa.ipc.open_stream(message.as_buffer())
