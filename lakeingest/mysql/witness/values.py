"""Converts values of the library mysql-replication to Arrow columns, equal to those of the fast decoder."""

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.wire.refusals import beyond_reference, no_day, unholdable
from lakeingest.mysql.witness.gaps import gap_of_column
from lakeingest.rows import arrow_type

_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WRAP = dt.timedelta(seconds=1 << 32)

# The Python type of the library's values, by kind; a kind that the library misreads has none
PYTHON: dict[Kind, type] = {
    Kind.INT32: int,
    Kind.INT64: int,
    Kind.UINT64: int,
    Kind.DECIMAL: Decimal,
    Kind.NUMERAL: Decimal,
    Kind.FLOAT: float,
    Kind.DOUBLE: float,
    Kind.DATE: dt.date,
    Kind.DATETIME: dt.datetime,
    Kind.TIMESTAMP: dt.datetime,
    Kind.STRING: str,
    Kind.BINARY: bytes,
}


def require_readable(column: Column, charset: str = "utf8mb4") -> None:
    """Raise UnsupportedValue if the library does not read every value of the column, in `charset`, exactly."""
    if gap_of_column(column, charset):
        raise beyond_reference(column)


def column_array(column: Column, values: Sequence[Any], where: str) -> pa.Array:
    """An Arrow column of the library's values.

    Raises UnsupportedValue, with `where`, for a value of an unexpected type, or one that Arrow's type cannot hold.
    """
    if column.kind is Kind.BINARY:  # the library decodes empty bytes to ''
        values = tuple(b"" if value == "" else value for value in values)
    expected = PYTHON[column.kind]
    unexpected = set(map(type, values)) - {expected, type(None)}
    if unexpected:
        names = ", ".join(sorted(type_.__name__ for type_ in unexpected))
        raise UnsupportedValue(
            f"{where}: column {column.source_name} ({column.source_type}) was decoded to {names}, not "
            f"{expected.__name__}; leave the table out with tables.exclude"
        )
    try:
        return from_objects(column, values)
    except UnsupportedValue as error:
        raise UnsupportedValue(f"{where}: {error}") from error


def from_objects(column: Column, values: Sequence[Any]) -> pa.Array:
    """An Arrow column of the library's Python values: naive UTC datetimes, Decimals, str, bytes, int.

    A BINARY(n) is padded with the zero bytes that the binlog omits, and a NUMERAL becomes a text. Raises
    UnsupportedValue for a column that the library misreads, and for a value that Arrow's type cannot hold.
    """
    require_readable(column)
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


def _instant(column: Column, value: dt.datetime) -> dt.datetime:
    """The value with its zone, UTC. Raises UnsupportedValue for a zero TIMESTAMP."""
    instant = value.replace(tzinfo=dt.UTC)
    if instant < _EPOCH_START:  # MariaDB's seconds since 1970 have no sign since version 11.5; the library reads one
        instant += _WRAP
    if instant == _EPOCH_START:  # the binlog's form of a zero TIMESTAMP; the type's range begins a second later
        raise no_day(column, "0000-00-00 00:00:00")
    return instant
