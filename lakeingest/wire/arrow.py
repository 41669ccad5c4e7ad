"""The Arrow type of every kind of column, and MySQL's values as columns of it.

Snapshot and binlog must come to the same type and value. What a type cannot hold exactly is refused by name, never
rounded or replaced.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core import change
from lakeingest.core.schema import GEOMETRIES, SRID_BYTES, Column, Kind, TableId, TableSchema
from lakeingest.errors import UnsupportedValue

INSTANT = pa.timestamp("us", "UTC")
EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

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

# What the reference binlog decoder misreads, by MySQL's names; and the charsets in which Python reads as MySQL does
_MISREAD = GEOMETRIES | {"bit", "json", "set", "time", "vector", "year"}
_REFERENCE_CHARSETS = {"ascii", "utf8mb3", "utf8mb4"}

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


def from_text(column: Column, values: Sequence[Any]) -> pa.Array:
    """A column from MySQL's text protocol (FLOAT read as DOUBLE; bytes for BINARY, BOOLEAN and VECTOR).

    UnsupportedValue for a value that the type cannot hold, such as a zero date.
    """
    if column.kind is Kind.VECTOR or _is_chosen(column):
        raise _beyond_reference(column)
    if column.kind is Kind.BOOLEAN:
        return pa.array([None if value is None else value == b"\1" for value in values], pa.bool_())
    if column.kind is Kind.BINARY:
        if column.is_geometry:
            values = [None if value is None else value[SRID_BYTES:] for value in values]
        return pa.array(values, pa.binary())
    texts = pa.array(values, pa.string())
    if arrow_type(column) == texts.type:
        return texts
    if column.kind in {Kind.DATE, Kind.DATETIME} and pc.any(pc.starts_with(texts, "0000")).as_py():
        raise refused(column, next(text for text in texts.to_pylist() if text and text.startswith("0000")))
    try:
        if column.kind is Kind.FLOAT:
            return texts.cast(pa.float64()).cast(pa.float32(), safe=False)
        if column.kind is Kind.TIMESTAMP:
            return texts.cast(pa.timestamp("us")).cast(INSTANT)
        return texts.cast(arrow_type(column))
    except pa.ArrowInvalid as error:
        raise refused(column, _offender(column, texts)) from error


def from_objects(column: Column, values: Sequence[Any]) -> pa.Array:
    """A column from the Python values of the reference binlog decoder: naive UTC datetimes, Decimals, str, bytes, int.

    UnsupportedValue for a value that the type cannot hold. BINARY(n) gets back the zero bytes that the binlog leaves
    out.
    """
    require_reference(column)
    if column.kind is Kind.BINARY and column.length:
        values = [None if value is None else value.ljust(column.length, b"\0") for value in values]
    elif column.kind is Kind.NUMERAL:
        values = [None if value is None else f"{value:f}" for value in values]
    elif column.kind is Kind.TIMESTAMP:
        values = [None if value is None else _instant(column, value) for value in values]
    try:
        return pa.array(values, arrow_type(column))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UnsupportedValue(f"column {column.name} ({column.source_type}): {error}") from error


def require_reference(column: Column, charset: str = "utf8mb4") -> None:
    """UnsupportedValue unless the reference binlog decoder reads every value of such a column exactly."""
    misread = column.source_type.partition("(")[0] in _MISREAD or _is_chosen(column)
    if misread or charset not in _REFERENCE_CHARSETS:
        raise _beyond_reference(column)


def refused(column: Column, value: object) -> UnsupportedValue:
    """The error for a date that would not arrive exact."""
    return UnsupportedValue(
        f"column {column.name} ({column.source_type}) holds {value!r}, which {arrow_type(column)} cannot; correct the"
        " row, or set zero_dates in tables.options → types"
    )


def _beyond_reference(column: Column) -> UnsupportedValue:
    return UnsupportedValue(
        f"column {column.name} ({column.source_type}): LAKEINGEST_WIRE=reference cannot read it exactly; "
        "leave that variable out, or the table with tables.exclude"
    )


def _is_chosen(column: Column) -> bool:
    """Whether it comes in a form that the user chose, which the reference does not know."""
    is_flag = column.kind is Kind.BOOLEAN and column.source_type.startswith("tinyint")
    return is_flag or bool(column.choice) or column.kind in {Kind.MOMENT, Kind.MICROS}


def _instant(column: Column, value: dt.datetime) -> dt.datetime:
    instant = value.replace(tzinfo=dt.UTC)
    if instant == EPOCH_START:  # how the binlog stores a zero TIMESTAMP; the type's own range begins a second later
        raise refused(column, "0000-00-00 00:00:00")
    return instant


def _offender(column: Column, texts: pa.Array) -> str:
    """The first text that the column's type does not take."""
    target = pa.timestamp("us") if column.kind is Kind.TIMESTAMP else arrow_type(column)
    for text in pc.unique(texts.drop_null()).to_pylist():
        try:
            pa.array([text]).cast(target)
        except pa.ArrowInvalid:
            return str(text)
    return "?"
