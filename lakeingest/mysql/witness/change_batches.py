"""Collects the rows of each table until a batch is full, and converts the batch to Arrow."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import concerning
from lakeingest.mysql.wire.matching import matching_changes
from lakeingest.mysql.witness.values import column_array
from lakeingest.rows import TRANSACTIONS, Part, change_schema

BATCH_ROWS = 10_000  # the most rows of a batch: as Python objects they take much memory
_BATCH_BYTES = 32 << 20  # a batch of fewer rows is full, too, once its row events have so many bytes


class ChangeBatches:
    """Collects change rows of the tables in `schemas`, and log rows of transactions, in batches of up to BATCH_ROWS.

    The log has a row for each transaction. Where a method takes a table, None stands for the log.
    """

    def __init__(self, schemas: Mapping[TableId, TableSchema]) -> None:
        self._schemas = schemas
        self._rows: dict[TableId | None, list[tuple[Any, ...]]] = {table: [] for table in (*schemas, None)}
        self._bytes = Counter[TableId | None]()  # by table: of the row events whose rows are collected

    def add(self, table: TableId | None, row: tuple[Any, ...]) -> Iterator[Part]:
        """Add a row, which has its origin (kind, place, transaction) before its values; yield its batch if it is full.

        A log row (`table` is None) has no values.
        """
        self._rows[table].append(row)
        is_full = len(self._rows[table]) >= BATCH_ROWS
        if is_full and (table is None or row[0] != RowKind.UPDATE_BEFORE):  # the two rows of an update stay together
            yield from self._flush(table)

    def count_bytes(self, table: TableId, size: int) -> Iterator[Part]:
        """Count the `size` bytes of the row event whose rows were just added; yield the batch if it is too large."""
        self._bytes[table] += size
        if self._rows[table] and self._bytes[table] >= _BATCH_BYTES:
            yield from self._flush(table)

    def rest(self) -> Iterator[Part]:
        """Yield the batches of all rows that are still collected."""
        for table, rows in self._rows.items():
            if rows:
                yield from self._flush(table)

    def _flush(self, table: TableId | None) -> Iterator[Part]:
        """Yield the collected rows of a table, or of the log, as a batch. Removes them from the collection.

        The batch of a table has only rows that meet the condition of the user; if there are none, nothing is yielded.
        """
        rows = self._rows[table]
        types = TRANSACTIONS if table is None else change_schema(self._schemas[table])
        table_columns = () if table is None else self._schemas[table].columns
        columns = list(zip(*rows, strict=True))  # of the origin, then of the table; the log has only the origin
        origin_count = len(types) - len(table_columns)
        origin_columns, value_columns = columns[:origin_count], columns[origin_count:]
        # not strict, because `types` goes on with the columns of the table
        arrays = [pa.array(values, field.type) for field, values in zip(types, origin_columns, strict=False)]
        _, _, file, pos, *_ = rows[-1]  # the place of a change row, for messages; unused for the log
        with concerning(table):
            arrays += [
                column_array(column, values, f"{table} up to {file}:{pos}")
                for column, values in zip(table_columns, value_columns, strict=True)
            ]
        rows.clear()
        self._bytes[table] = 0
        batch = pa.record_batch(arrays, schema=types)
        if table is not None:
            batch = matching_changes(batch, self._schemas[table])
        if batch.num_rows:
            yield table, batch
