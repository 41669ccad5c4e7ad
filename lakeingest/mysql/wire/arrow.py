"""The Arrow type of every kind of column, and MySQL's values as columns of it.

Snapshot and binlog must give the same type and value. A value that its type cannot hold exactly is refused by name,
never rounded or replaced.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.schema import GEOMETRIES, SRID_BYTES, Column, Kind
from lakeingest.errors import UnsupportedValue
from lakeingest.rows import INSTANT, arrow_type

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# MySQL's names of the types that the reference decoder misreads, and the charsets that Python reads as MySQL does
_MISREAD = GEOMETRIES | {"bit", "json", "set", "time", "vector", "year"}
_REFERENCE_CHARSETS = {"ascii", "utf8mb3", "utf8mb4"}


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

    UnsupportedValue for a value that the type cannot hold. A BINARY(n) is padded with the zero bytes that the binlog
    omits.
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
        raise unholdable(column, error) from error


def require_reference(column: Column, charset: str = "utf8mb4") -> None:
    """UnsupportedValue unless the reference binlog decoder reads every value of such a column exactly."""
    misread = column.source_type.name in _MISREAD or _is_chosen(column)
    if misread or charset not in _REFERENCE_CHARSETS:
        raise _beyond_reference(column)


def refused(column: Column, value: object) -> UnsupportedValue:
    """The error for a date that the lake cannot hold exactly."""
    return UnsupportedValue(
        f"column {column.name} ({column.source_type}) holds {value!r}, which is no day of the calendar; correct the"
        " row, or choose zero_dates in tables.options → types, or leave the table out with tables.exclude"
    )


def unholdable(column: Column, why: ValueError) -> UnsupportedValue:
    """The error for a value that the column's type in the lake cannot hold exactly."""
    return UnsupportedValue(
        f"column {column.name} ({column.source_type}): {why}; correct the row and copy the table again, or leave it"
        " out with tables.exclude"
    )


def _beyond_reference(column: Column) -> UnsupportedValue:
    return UnsupportedValue(
        f"column {column.name} ({column.source_type}): LAKEINGEST_WIRE=reference cannot read it exactly; "
        "unset that variable, or exclude the table with tables.exclude"
    )


def _is_chosen(column: Column) -> bool:
    """Whether the user chose another mapping than the default, which the reference decoder does not know."""
    is_flag = column.kind is Kind.BOOLEAN and column.source_type.name == "tinyint"
    return is_flag or bool(column.choice) or column.kind in {Kind.MOMENT, Kind.MICROS}


def _instant(column: Column, value: dt.datetime) -> dt.datetime:
    instant = value.replace(tzinfo=dt.UTC)
    if instant == EPOCH_START:  # the binlog's form of a zero TIMESTAMP; the type's range begins a second later
        raise refused(column, "0000-00-00 00:00:00")
    return instant


def _offender(column: Column, texts: pa.Array) -> str:
    """The first text that cannot be cast to the column's type."""
    target = pa.timestamp("us") if column.kind is Kind.TIMESTAMP else arrow_type(column)
    for text in pc.unique(texts.drop_null()).to_pylist():
        try:
            pa.array([text]).cast(target)
        except pa.ArrowInvalid:
            return str(text)
    return "?"
