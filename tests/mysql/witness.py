"""What the server itself says of a column's values, as text: the third witness beside the two decoders."""

import datetime as dt
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import Column, Kind

# Of MySQL's columns of which the user chose nothing
USUAL = set(Kind) - {Kind.MOMENT, Kind.MICROS, Kind.UUID, Kind.ADDRESS}


def asked(column: Column) -> str:
    """The expression that makes the server say what it holds."""
    name = quote(column.name)
    if column.is_geometry:
        return f"HEX(ST_AsWKB({name}, 'axis-order=long-lat'))"
    if column.kind in {Kind.BINARY, Kind.VECTOR}:
        return f"HEX({name})"
    if column.kind is Kind.FLOAT:
        return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
    if column.kind is Kind.BOOLEAN or column.source_type.name == "year":
        return f"CAST({name} + 0 AS CHAR)"
    return f"CAST({name} AS CHAR)"


def shown(column: Column, values: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """The values of an Arrow column in the words of the server."""
    return [None if value is None else _text(column, value) for value in values.to_pylist()]


def heard(column: Column, texts: Sequence[Any]) -> list[str | None]:
    """What the server said, with floats as Python writes them, padding of integers left out."""
    return [None if text is None else _normal(column, str(text)) for text in texts]


def _normal(column: Column, text: str) -> str:
    if column.kind is Kind.FLOAT:
        return repr(struct.unpack("<f", struct.pack("<f", float(text)))[0])
    if column.kind is Kind.DOUBLE:
        return repr(float(text))
    if column.kind in {Kind.INT32, Kind.INT64, Kind.UINT64}:
        return str(int(text))
    if column.kind in {Kind.DECIMAL, Kind.NUMERAL} and "zerofill" in column.source_type.text:
        whole, point, rest = text.partition(".")
        return (whole.lstrip("0") or "0") + point + rest
    if column.source_type.name == "bit":  # the server shows a number
        return text.zfill((column.source_type.size + 7) // 8 * 2) if column.kind is Kind.BINARY else text
    return text


def _text(column: Column, value: Any) -> str:
    match column.kind:
        case Kind.DATETIME | Kind.TIMESTAMP:
            day: dt.datetime = value
            whole = day.replace(tzinfo=None, microsecond=0).isoformat(" ")
            return whole + (f".{day.microsecond:06d}"[: column.fraction + 1] if column.fraction else "")
        case Kind.BINARY:
            return str(value.hex().upper())
        case Kind.VECTOR:
            return struct.pack(f"<{len(value)}f", *value).hex().upper()
        case Kind.BOOLEAN:
            return str(int(value))
        case Kind.FLOAT | Kind.DOUBLE:
            return repr(value)
        case Kind.DECIMAL:
            return f"{value:f}"
        case _:
            return str(value)
