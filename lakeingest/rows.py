"""Rows as Arrow tables: what source, spool and lake share.

Each kind of column has one Arrow type, which holds every value of the kind exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakeingest.core import change
from lakeingest.core.schema import Column, Kind, TableId, TableSchema

BATCH_ROWS = 4_096
INSTANT = pa.timestamp("us", "UTC")

VECTOR = pa.list_(pa.field("element", pa.float32(), nullable=False))

_TYPES: dict[Kind, pa.DataType] = {
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.DATETIME: pa.timestamp("us"),
    Kind.TIMESTAMP: INSTANT,
    Kind.TIME: pa.string(),
    Kind.STRING: pa.string(),
    Kind.NUMERAL: pa.string(),
    Kind.JSON: pa.string(),
    Kind.UUID: pa.string(),
    Kind.ADDRESS: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.BINARY: pa.binary(),
    Kind.VECTOR: VECTOR,
    Kind.MOMENT: pa.string(),
    Kind.MICROS: pa.int64(),
}

_ORIGIN = [
    pa.field(change.KIND, pa.int8(), nullable=False),
    pa.field(change.EPOCH, pa.int32(), nullable=False),
    pa.field(change.FILE, pa.int64(), nullable=False),
    pa.field(change.POS, pa.int64(), nullable=False),
    pa.field(change.ORDINAL, pa.int64(), nullable=False),
    pa.field(change.COMMITTED_AT, INSTANT, nullable=False),
    pa.field(change.GTID, pa.string()),
]

TRANSACTIONS = pa.schema(
    [
        pa.field("uuid", pa.string()),  # null where the source has no GTIDs
        pa.field("tag", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("file", pa.int64(), nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        pa.field("committed_at", INSTANT, nullable=False),
    ]
)


Part = tuple[TableId | None, pa.RecordBatch]  # change rows of a table, or with None rows of TRANSACTIONS


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type that holds every value of the column exactly."""
    if column.kind is Kind.DECIMAL:
        return pa.decimal128(column.precision, column.scale)
    return _TYPES[column.kind]


def table_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's rows."""
    return pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in schema.columns])


def change_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's change rows: their kind and origin (core.change), then the table's columns."""
    return pa.schema([*_ORIGIN, *table_schema(schema)])


def laid_over(
    rows: Iterable[pa.RecordBatch], changes: Sequence[pa.Table], key: Sequence[str], schema: TableSchema
) -> Iterator[pa.RecordBatch]:
    """Rows without those whose key is in `changes`, then the last change of each key, unless that deletes it.

    Changes have `core.change.DELETED`. Their keys are held in memory.
    """
    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    for number, part in enumerate(changes):
        for row, values in enumerate(zip(*(part[name].to_pylist() for name in key), strict=True)):
            last[values] = number, row
    for batch in rows:
        keys = zip(*(batch[name].to_pylist() for name in key), strict=True)
        yield batch.filter(pa.array([values not in last for values in keys], pa.bool_())) if last else batch
    for number, part in enumerate(changes):
        wanted = part.take(pa.array(sorted(row for where, row in last.values() if where == number), pa.int64()))
        stays = [not deleted for deleted in wanted[change.DELETED].to_pylist()]
        left = wanted.filter(pa.array(stays, pa.bool_())).select(list(schema.names)).cast(table_schema(schema))
        yield from left.to_batches(BATCH_ROWS)
