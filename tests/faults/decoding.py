"""Faults of the fast decoder: it makes other rows of the binlog, or of chunks, than the source has."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql import binlog_source, chunk_reader, decoders
from lakeingest.pipeline.binlog import segment_task

Rows = Callable[[pa.RecordBatch], pa.RecordBatch]


def another_value(rows: pa.RecordBatch) -> pa.RecordBatch:
    """One value of the last row image is another one."""
    values = rows["a"].to_pylist()
    return rows.set_column(rows.schema.names.index("a"), "a", pa.array([*values[:-1], -7], rows["a"].type))


def a_lost_row(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The first row image is lost."""
    return rows.slice(1)


def a_doubled_row(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The first row image is there twice."""
    return rows.take(pa.array([0, *range(rows.num_rows)]))


FAULTS = {"another value": another_value, "a lost row": a_lost_row, "a doubled row": a_doubled_row}


def spoil(patch: pytest.MonkeyPatch, table: str, fault: Rows) -> None:
    """Let the fast decoder spoil each batch of row images of a table."""

    def spoilt(*of_segment: Any) -> Iterator[Any]:
        for name, batch in binlog_source.read_changes(*of_segment):
            yield name, fault(batch) if name is not None and name.name == table else batch

    patch.setattr(segment_task, "read_changes", spoilt)


def spoil_chunks(patch: pytest.MonkeyPatch, table: str, fault: Rows) -> None:
    """Let the fast decoder spoil each batch of rows of chunks of a table."""

    def spoilt(connection: pymysql.Connection, schema: TableSchema, *statement: Any) -> Iterator[pa.RecordBatch]:
        for batch in decoders.select_rows(connection, schema, *statement):
            yield fault(batch) if schema.table.name == table else batch

    patch.setattr(chunk_reader, "select_rows", spoilt)
