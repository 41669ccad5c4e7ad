"""The types and values of debezium-json: those of Debezium's connector for MySQL with its default settings.

Two types are different from these defaults, so that no value is lost. `bigint unsigned` is a Decimal, as with
Debezium's setting `bigint.unsigned.handling.mode=precise`. Dates that `zero_dates: string` turns into text are strings.
Source: Debezium's documentation of the MySQL connector, "Data type mappings".
"""

import base64
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from lakeingest.commands.change_lines import (
    Encode,
    json_binary,
    json_boolean,
    json_float32,
    json_text,
    json_vector,
    time_encoder,
)
from lakeingest.core.tables.kinds import is_cast_number
from lakeingest.core.tables.schema import EWKB, Column, Kind

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DAY = date(1970, 1, 1)
_MILLIS_DIGITS = 3  # a DATETIME with so many decimals or fewer is a number of milliseconds, with more of microseconds
_WKB_SRID = 0x20000000  # the bit in the type number of an EWKB value that says that the value has an SRID

# Debezium's types for MySQL's integer types; `_integer_type` has the exceptions
_INTEGERS = {"tinyint": "int16", "smallint": "int16", "mediumint": "int32", "int": "int32"}


def connect_field(column: Column) -> dict[str, Any]:
    """The column's field in a schema of Kafka Connect, as a JSON document."""
    kind = {"type": "string"} if _is_text(column) else _TYPES[column.kind](column)
    return {"optional": column.nullable, "field": column.name} | kind


def _is_text(column: Column) -> bool:
    """Whether the copy has a number as a text because the user chose so."""
    return column.kind is Kind.NUMERAL and is_cast_number(column)


def _integer_type(column: Column) -> dict[str, Any]:
    """The type of an integer or a year. Types that `_INTEGERS` does not list are an int32."""
    source = column.source_type
    if source.name == "year":
        return _named_type("int32", "io.debezium.time.Year")
    is_wide = source.name == "smallint" and source.unsigned  # up to 65,535, which an int16 cannot hold
    return {"type": "int32" if is_wide else _INTEGERS.get(source.name, "int32")}


def _datetime_type(column: Column) -> dict[str, Any]:
    """The type of a DATETIME: milliseconds if they can hold all its decimals, otherwise microseconds."""
    is_coarse = column.fraction <= _MILLIS_DIGITS
    return _named_type("int64", f"io.debezium.time.{'Timestamp' if is_coarse else 'MicroTimestamp'}")


def _string_type(column: Column) -> dict[str, Any]:
    """The type of a text, an ENUM or a SET. A hash or a masked text in place of a member is only a text."""
    if not column.members or column.is_hidden:
        return {"type": "string"}
    name = "Enum" if column.source_type.name == "enum" else "EnumSet"
    allowed = {"parameters": {"allowed": ",".join(column.members)}} if column.has_exact_members else {}
    return _named_type("string", f"io.debezium.data.{name}") | allowed


def _bytes_type(column: Column) -> dict[str, Any]:
    """The type of a column with binary values: a point, another geometry, a BIT, or plain bytes."""
    if column.is_geometry:
        fields: list[dict[str, Any]] = [
            {"type": "bytes", "optional": False, "field": "wkb"},
            {"type": "int32", "optional": True, "field": "srid"},
        ]
        if column.source_type.name == "point":
            axes = [{"type": "double", "optional": False, "field": axis} for axis in "xy"]
            return _named_type("struct", "io.debezium.data.geometry.Point") | {"fields": axes + fields}
        return _named_type("struct", "io.debezium.data.geometry.Geometry") | {"fields": fields}
    if column.source_type.name == "bit":
        return _named_type("bytes", "io.debezium.data.Bits") | {"parameters": {"length": str(column.source_type.size)}}
    return {"type": "bytes"}


def _named_type(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1}


def _decimal_type(precision: int, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return _named_type("bytes", _DECIMAL) | {"parameters": parameters}


_VECTOR_TYPE = {"type": "array", "name": "io.debezium.data.FloatVector", "version": 1}
_TIME_TYPE = _named_type("int64", "io.debezium.time.MicroTime")
_TYPES: dict[Kind, Callable[[Column], dict[str, Any]]] = {
    Kind.INT32: _integer_type,
    Kind.INT64: lambda _: {"type": "int64"},
    Kind.UINT64: lambda _: _decimal_type(20, 0),  # the greatest value, 2**64 - 1, has 20 digits
    Kind.DECIMAL: lambda column: _decimal_type(column.precision, column.scale),
    Kind.NUMERAL: lambda column: _decimal_type(column.precision, column.scale),
    Kind.FLOAT: lambda _: {"type": "float"},
    Kind.DOUBLE: lambda _: {"type": "double"},
    Kind.BOOLEAN: lambda _: {"type": "boolean"},
    Kind.DATE: lambda _: _named_type("int32", "io.debezium.time.Date"),
    Kind.DATETIME: _datetime_type,
    Kind.TIMESTAMP: lambda _: _named_type("string", "io.debezium.time.ZonedTimestamp"),
    Kind.TIME: lambda _: _TIME_TYPE,
    Kind.MICROS: lambda _: _TIME_TYPE,
    Kind.JSON: lambda _: _named_type("string", "io.debezium.data.Json"),
    Kind.UUID: lambda _: _named_type("string", "io.debezium.data.Uuid"),
    Kind.VECTOR: lambda _: _VECTOR_TYPE | {"items": {"type": "float", "optional": False}},
    Kind.BINARY: _bytes_type,
    Kind.STRING: _string_type,
    Kind.ADDRESS: lambda _: {"type": "string"},
    Kind.MOMENT: lambda _: {"type": "string"},
}


def encoder(column: Column) -> Encode:
    """The function that writes a value of this column as JSON. The function is not called for NULL."""
    if _is_text(column):
        return json_text
    if column.kind in {Kind.DECIMAL, Kind.NUMERAL, Kind.UINT64}:
        return _decimal_encoder(column.scale)
    if column.kind is Kind.DATETIME:
        return _datetime_encoder(1000 if column.fraction <= _MILLIS_DIGITS else 1)  # the unit, in microseconds
    if column.kind is Kind.TIMESTAMP:
        return time_encoder(column.fraction, "Z")
    if column.kind is Kind.BINARY and column.is_geometry:
        return _geometry_encoder(column)
    if column.kind is Kind.BINARY and column.source_type.name == "bit":
        return lambda value: json_binary(value[::-1])  # Debezium writes bits as little endian
    return _ENCODERS.get(column.kind, json_text)


def _decimal_encoder(scale: int) -> Callable[[Decimal | str], str]:
    """The encoder of Kafka Connect's Decimal: the digits as one integer in two's complement, big endian."""

    def encode(value: Decimal | str) -> str:
        number = Decimal(value)
        # the text of a number with decimals, without its point, is the unscaled integer
        unscaled = int(f"{number:f}".replace(".", "")) if scale else int(number)
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()  # without the sign bit
        size = bits // 8 + 1  # in bytes, with room for the sign bit
        return json_binary(unscaled.to_bytes(size, "big", signed=True))

    return encode


def _datetime_encoder(unit: int) -> Callable[[datetime], str]:
    """The encoder of a time without a zone: the time since 1970, as if in UTC, in units of `unit` microseconds."""

    def encode(value: datetime) -> str:
        elapsed = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return str(((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds) // unit)

    return encode


def _encode_time(value: str) -> str:
    """A TIME as a number of microseconds; `value` is MySQL's text of the TIME, such as -838:59:59.000001."""
    hours, minutes, seconds = value.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, "0"))
    return str(-micros if value.startswith("-") else micros)


def _geometry_encoder(column: Column) -> Callable[[bytes], str]:
    """The encoder of geometries: a JSON object with WKB and SRID; for a point, also with x and y.

    An EWKB value is split into its SRID and plain WKB. The SRID is null if the copy has plain WKB, or if the value has
    no SRID.
    """

    def encode(value: bytes) -> str:
        # WKB has the byte order in byte 0 and the type in bytes 1 to 4. EWKB can have an SRID in bytes 5 to 8.
        order = "<" if value[0] else ">"
        srid = "null"
        type_number = struct.unpack_from(f"{order}I", value, 1)[0]
        if column.choice == EWKB and type_number & _WKB_SRID:
            srid = str(struct.unpack_from(f"{order}I", value, 5)[0])
            value = value[:1] + struct.pack(f"{order}I", type_number & ~_WKB_SRID) + value[9:]
        parts = f'"wkb":"{base64.b64encode(value).decode()}","srid":{srid}'
        if column.source_type.name == "point":  # its coordinates come after the type
            x, y = struct.unpack_from(f"{order}dd", value, 5)
            parts = f'"x":{x!r},"y":{y!r},{parts}'
        return f"{{{parts}}}"

    return encode


_ENCODERS: dict[Kind, Encode] = {
    Kind.INT32: str,
    Kind.INT64: str,
    Kind.MICROS: str,
    Kind.FLOAT: json_float32,
    Kind.DOUBLE: repr,
    Kind.BOOLEAN: json_boolean,
    Kind.DATE: lambda value: str((value - _DAY).days),
    Kind.TIME: _encode_time,
    Kind.VECTOR: json_vector,
    Kind.BINARY: json_binary,
}
