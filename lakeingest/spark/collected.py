"""Rows of Spark as an Arrow table on the driver. PySpark 3.5 has no public way for this, other than `mapInArrow`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collected(rows: "DataFrame") -> pa.Table | None:
    """All rows, with the types that Spark gives its columns in Arrow; None if there are no rows."""
    numbers = [f"column{number}" for number in range(len(rows.columns))]  # `mapInArrow` fails for names with a dot
    parts = rows.toDF(*numbers).mapInArrow(_as_messages, "message binary").collect()
    tables = [pa.ipc.open_stream(bytes(part["message"])).read_all() for part in parts]
    return pa.concat_tables(tables).rename_columns(rows.columns) if tables else None


def _as_messages(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Each batch as a row of one value: the batch and its schema in Arrow's IPC stream format."""
    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"message": [sink.getvalue().to_pybytes()]})
