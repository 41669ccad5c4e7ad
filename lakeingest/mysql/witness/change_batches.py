"""Collects change rows until a batch of their table is full, and converts it to Arrow."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeingest.core.change import RowKind
from lakeingest.core.position import DomainGtid, Gtid
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import concerning
from lakeingest.mysql.witness.values import column_array
from lakeingest.rows import TRANSACTIONS, Part, change_schema

BATCH_ROWS = 10_000  # that are Python objects at a time
_BATCH_BYTES = 32 << 20  # of row events: large rows fill a batch early


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction of rows: its GTID, the place of its end, its commit time in µs."""

    gtid: Gtid | DomainGtid | None
    epoch: int
    file: int
    pos: int
    committed_at: int


class ChangeBatches:
    """The rows of every table in `schemas`, and the log of transactions, in batches of BATCH_ROWS."""

    def __init__(self, schemas: Mapping[TableId, TableSchema]) -> None:
        self._schemas = schemas
        self._types = {table: change_schema(schema) for table, schema in schemas.items()}
        self._rows: dict[TableId, list[tuple[Any, ...]]] = {table: [] for table in schemas}
        self._bytes = dict.fromkeys(schemas, 0)
        self._log: list[tuple[Any, ...]] = []

    def add(
        self, table: TableId, origin: Origin, ordinal: int, kind: RowKind, values: tuple[Any, ...]
    ) -> Iterator[Part]:
        """Add a row half; yields the batch when it is full."""
        gtid = None if origin.gtid is None else str(origin.gtid)
        place = (origin.epoch, origin.file, origin.pos)
        rows = self._rows[table]
        rows.append((int(kind), *place, ordinal, origin.committed_at, gtid, *values))
        if len(rows) >= BATCH_ROWS:
            yield self._flush(table)

    def count_bytes(self, table: TableId, size: int) -> Iterator[Part]:
        """Count `size` bytes for the rows just added; yields the batch when it is large."""
        self._bytes[table] += size
        if self._rows[table] and self._bytes[table] >= _BATCH_BYTES:
            yield self._flush(table)

    def end(self, origin: Origin) -> Iterator[Part]:
        """Log a transaction; yields the batch when it is full."""
        gtid = origin.gtid
        name = (gtid.uuid, gtid.tag, gtid.number) if isinstance(gtid, Gtid) else (None, None, None)
        self._log.append((*name, origin.epoch, origin.file, origin.pos, origin.committed_at))
        if len(self._log) >= BATCH_ROWS:
            yield self._flush_log()

    def rest(self) -> Iterator[Part]:
        """The batches of all remaining rows."""
        yield from (self._flush(table) for table, rows in self._rows.items() if rows)
        if self._log:
            yield self._flush_log()

    def _flush(self, table: TableId) -> Part:
        schema, types, rows = self._schemas[table], self._types[table], self._rows[table]
        columns = list(zip(*rows, strict=True))
        origins = len(types) - len(schema.columns)
        arrays = [pa.array(values, types.field(index).type) for index, values in enumerate(columns[:origins])]
        _, _, file, pos, *_ = rows[-1]
        with concerning(table):
            arrays += [
                column_array(column, values, f"{table} up to {file}:{pos}")
                for column, values in zip(schema.columns, columns[origins:], strict=True)
            ]
        rows.clear()
        self._bytes[table] = 0
        return table, pa.record_batch(arrays, schema=types)

    def _flush_log(self) -> Part:
        columns = zip(*self._log, strict=True)
        types = TRANSACTIONS
        arrays = [pa.array(values, field.type) for values, field in zip(columns, types, strict=True)]
        self._log.clear()
        return None, pa.record_batch(arrays, schema=types)
