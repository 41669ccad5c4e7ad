"""The encoding of each MySQL type in result sets and in row images: its width, and its reader.

The width tells the walk how many bytes a value takes. The reader decodes the values that the walk found to an Arrow
column. A type with the same bytes in result sets and in row images has the same reader for both.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeingest.core.tables.kinds import as_read
from lakeingest.core.tables.schema import EWKB, NULL_DATES, SRID_BYTES, Column, Kind
from lakeingest.mysql.wire import charsets, identifiers, members, numbers, temporals
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.hiding import hidden
from lakeingest.mysql.wire.json_text import json_texts
from lakeingest.mysql.wire.values import Values
from lakeingest.mysql.wire.walk import PACKED
from lakeingest.rows import arrow_type


class Mismatch(ValueError):
    """The server sends a column with another type, or other digits, than the column has in the table's definition."""


class FieldType(enum.IntEnum):
    """MySQL's numbers of types."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140  # this and the next are MariaDB's; only columns that are left out may have these types
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


@dataclass(frozen=True, slots=True)
class Sent:
    """The server's description of a column that it sends, from a column definition packet or a TABLE_MAP event.

    With `fraction_counts`, a TIMESTAMP of 0 seconds and a fraction is a moment, as for MariaDB. Without it, a TIMESTAMP
    of 0 seconds is always the zero date, as for MySQL.
    """

    type: FieldType
    unsigned: bool = False
    size: int = 0  # in row images: the bytes of each value, or of the length before each value
    precision: int = 0  # of a decimal, with `scale`
    scale: int = 0
    digits: int = 0  # of a fraction of a second
    charset: str = "utf8mb4"  # in which values are sent
    members: tuple[str, ...] = ()  # of an ENUM or SET
    fraction_counts: bool = False


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a column's values: `width` is for the walk, `array` decodes the values that the walk found.

    `column`: the column with the kind in which its values are decoded. `shown`: the column as the copy has it, if the
    copy hides or casts the decoded values; else None.

    With `is_key`, values that differ in MySQL never become equal: `array` raises ValueError for a value that could
    become equal to another value.
    """

    column: Column
    sent: Sent
    width: int
    reader: "Reader"
    is_key: bool = False
    shown: Column | None = None

    @property
    def nulls_dates(self) -> bool:
        """Whether the user chose that zero and partial dates of the column become NULL."""
        return self.column.choice == NULL_DATES

    def nulled_rows(self, values: Values, array: pa.Array) -> np.ndarray:
        """For each row, whether its value is NULL in `array` only because the user chose so."""
        is_nulled: np.ndarray = array.is_null().to_numpy(zero_copy_only=False) & (values.start >= 0)
        return is_nulled

    def array(self, values: Values) -> pa.Array:
        """The values as a column of type `rows.arrow_type`.

        Raises Damaged, NotADay, or ValueError for an invalid value.
        """
        if self.shown is None:
            return self.reader(values, self)
        if not self.shown.is_hidden:
            return self.reader(values, self).cast(arrow_type(self.shown))
        try:
            read = self.reader(values, self)
        except ValueError:  # its message, which is dropped here, may have a part of the value
            raise ValueError("a value cannot be read, and the copy hides the values of this column") from None
        return hidden(read, self.shown)


Reader = Callable[[Values, Encoding], pa.Array]
Readers = dict[tuple[Kind, FieldType], Reader]

_INTEGER_BYTES = {FieldType.TINY: 1, FieldType.SHORT: 2, FieldType.INT24: 3, FieldType.LONG: 4, FieldType.LONGLONG: 8}
_TEXTS = {FieldType.VARCHAR, FieldType.VAR_STRING, FieldType.STRING, FieldType.BLOB}
_DATES, _DATETIMES, _STAMPS = (Kind.DATE, Kind.MOMENT), (Kind.DATETIME, Kind.MOMENT), (Kind.TIMESTAMP, Kind.MOMENT)
_TIMES = (Kind.TIME, Kind.MICROS)
_IDENTIFIERS = (Kind.UUID, Kind.ADDRESS)
_ADDRESSES = {"inet6": 16, "inet4": 4}  # bytes
_INTEGER_TYPES = {Kind.INT32: pa.int32(), Kind.INT64: pa.int64(), Kind.UINT64: pa.decimal128(20, 0)}

_WITH_SRID = 0x20000000  # in the type of a geometry in PostGIS's form

# type → bytes of a value in a result set; −1: a length of one byte precedes the value
_RESULT_WIDTHS: dict[FieldType, int] = {
    **_INTEGER_BYTES,
    FieldType.INT24: 4,
    FieldType.YEAR: 2,
    FieldType.FLOAT: 4,
    FieldType.DOUBLE: 8,
    FieldType.DATE: -1,
    FieldType.DATETIME: -1,
    FieldType.TIMESTAMP: -1,
    FieldType.TIME: -1,
}  # all other types: PACKED

# type → bytes of a value in a row image
_EVENT_WIDTHS: dict[FieldType, Callable[[Sent], int]] = {
    **{kind: (lambda _, size=size: size) for kind, size in _INTEGER_BYTES.items()},  # type: ignore[misc]
    FieldType.YEAR: lambda _: 1,
    FieldType.FLOAT: lambda _: 4,
    FieldType.DOUBLE: lambda _: 8,
    FieldType.DATE: lambda _: 3,
    FieldType.DATETIME2: lambda sent: 5 + temporals.fraction_bytes(sent.digits),
    FieldType.TIMESTAMP2: lambda sent: 4 + temporals.fraction_bytes(sent.digits),
    FieldType.TIME2: lambda sent: 3 + temporals.fraction_bytes(sent.digits),
    FieldType.NEWDECIMAL: lambda sent: numbers.decimal_bytes(sent.precision, sent.scale),
    FieldType.BIT: lambda sent: sent.size,
    FieldType.ENUM: lambda sent: sent.size,
    FieldType.SET: lambda sent: sent.size,
}  # all other types: a length of `Sent.size` bytes precedes the value


def _integers(values: Values, encoding: Encoding) -> pa.Array:
    type_ = _INTEGER_TYPES[encoding.column.kind]
    return numbers.integers(values, encoding.width, type_, signed=not encoding.sent.unsigned)


def _texts(values: Values, of: Encoding) -> pa.Array:
    """The values as texts. In result sets, values of ENUM and SET are texts, too."""
    # not for ENUM and SET: the values of a key differ as texts (`mysql.key_choice`), and `key_texts` refuses more
    read = charsets.key_texts if of.is_key and not of.column.members else charsets.texts
    return read(values, of.sent.charset)


def _geometries(values: Values, of: Encoding) -> pa.Array:
    """Geometries as WKB, or as EWKB if the user chose EWKB. Raises Damaged for a value without an SRID."""
    if (values.size[values.start >= 0] < SRID_BYTES).any():
        raise Damaged("a geometry without its SRID")
    if of.column.choice == EWKB:
        return pa.array([None if raw is None else _ewkb(raw) for raw in values.raw()], pa.binary())
    return charsets.binary(values.without_first_bytes(SRID_BYTES))


def _ewkb(raw: bytes) -> bytes:
    """A geometry in PostGIS's form: a bit of its type says that the SRID follows. The SRID 0 gives plain WKB."""
    srid, wkb = raw[:SRID_BYTES], raw[SRID_BYTES:]
    if srid == bytes(SRID_BYTES):
        return wkb
    kind = int.from_bytes(wkb[1:5], "little") | _WITH_SRID
    return wkb[:1] + kind.to_bytes(4, "little") + srid + wkb[5:]


def _for_each(kinds: Iterable[Kind], sent: FieldType, reader: Reader) -> Readers:
    """The table of readers in which the sent type has `reader` for columns of each of these kinds."""
    return dict.fromkeys(((kind, sent) for kind in kinds), reader)


# Types that have the same bytes in result sets and in row images.
_SHARED: Readers = {
    **{(kind, sent): _integers for kind in _INTEGER_TYPES for sent in _INTEGER_BYTES},
    **{(Kind.STRING, sent): _texts for sent in _TEXTS},
    **{(Kind.BINARY, sent): lambda values, of: charsets.binary(values, of.column.length) for sent in _TEXTS},
    (Kind.FLOAT, FieldType.FLOAT): lambda values, _: numbers.floats(values),
    (Kind.DOUBLE, FieldType.DOUBLE): lambda values, _: numbers.doubles(values),
    (Kind.BOOLEAN, FieldType.BIT): lambda values, _: numbers.booleans(values),
    (Kind.BOOLEAN, FieldType.TINY): lambda values, _: numbers.flags(values),
    (Kind.BINARY, FieldType.BIT): lambda values, _: charsets.binary(values),
    (Kind.BINARY, FieldType.GEOMETRY): _geometries,
    **{
        (Kind.VECTOR, sent): lambda values, _: numbers.vectors(values)
        for sent in (FieldType.VECTOR, FieldType.VARCHAR, FieldType.VAR_STRING)  # the last two: MariaDB's
    },
}

_RESULT_READERS: Readers = {
    **_SHARED,
    (Kind.INT32, FieldType.YEAR): _integers,
    **_for_each(_DATES, FieldType.DATE, lambda values, of: temporals.binary_days(values, of.column)),
    **_for_each(_DATETIMES, FieldType.DATETIME, lambda values, of: temporals.binary_days(values, of.column)),
    **_for_each(_STAMPS, FieldType.TIMESTAMP, lambda values, of: temporals.binary_days(values, of.column)),
    **_for_each(_TIMES, FieldType.TIME, lambda values, of: temporals.binary_times(values, of.column)),
    (Kind.DECIMAL, FieldType.NEWDECIMAL): lambda values, of: numbers.decimal_texts(
        values, of.column.precision, of.column.scale
    ),
    (Kind.NUMERAL, FieldType.NEWDECIMAL): lambda values, _: numbers.numeral_texts(values),
    (Kind.JSON, FieldType.JSON): lambda values, _: charsets.texts(values, "utf8mb4"),
    **{(kind, FieldType.STRING): lambda values, of: charsets.texts(values, of.sent.charset) for kind in _IDENTIFIERS},
}

_EVENT_READERS: Readers = {
    **_SHARED,
    (Kind.INT32, FieldType.YEAR): lambda values, _: numbers.years(values),
    **_for_each(_DATES, FieldType.DATE, lambda values, of: temporals.dates(values, of.column)),
    **_for_each(
        _DATETIMES, FieldType.DATETIME2, lambda values, of: temporals.datetimes(values, of.sent.digits, of.column)
    ),
    **_for_each(
        _STAMPS,
        FieldType.TIMESTAMP2,
        lambda values, of: temporals.timestamps(
            values, of.sent.digits, of.column, fraction_counts=of.sent.fraction_counts
        ),
    ),
    **_for_each(_TIMES, FieldType.TIME2, lambda values, of: temporals.times(values, of.sent.digits, of.column)),
    (Kind.DECIMAL, FieldType.NEWDECIMAL): lambda values, of: numbers.packed_decimals(
        values, of.sent.precision, of.sent.scale
    ),
    (Kind.NUMERAL, FieldType.NEWDECIMAL): lambda values, of: numbers.numerals(values, of.sent.precision, of.sent.scale),
    (Kind.STRING, FieldType.ENUM): lambda values, of: members.enums(values, of.width, of.sent.members),
    (Kind.STRING, FieldType.SET): lambda values, of: members.sets(values, of.width, of.sent.members),
    (Kind.JSON, FieldType.JSON): lambda values, _: json_texts(values),
    (Kind.UUID, FieldType.STRING): lambda values, _: identifiers.uuids(values),
    (Kind.ADDRESS, FieldType.STRING): lambda values, of: identifiers.addresses(
        values, _ADDRESSES[of.column.source_type.name]
    ),
}


def result_encoding(column: Column, sent: Sent, *, is_key: bool = False) -> Encoding:
    """The encoding of a column in a result set of the binary protocol.

    Raises Mismatch if the sent type or digits are not those of the column.
    """
    return _encoding(_RESULT_READERS, column, sent, _RESULT_WIDTHS.get(sent.type, PACKED), is_key=is_key)


def event_encoding(column: Column, sent: Sent, *, is_key: bool = False) -> Encoding:
    """The encoding of a column in the row images of the binlog.

    Raises Mismatch if the sent type or digits are not those of the column.
    """
    return _encoding(_EVENT_READERS, column, sent, event_width(sent), is_key=is_key)


def event_width(sent: Sent) -> int:
    """The width of a column in row images, for the walk: the bytes of a value, or minus the bytes of its length."""
    return _EVENT_WIDTHS[sent.type](sent) if sent.type in _EVENT_WIDTHS else -sent.size


def _encoding(readers: Readers, column: Column, sent: Sent, width: int, *, is_key: bool) -> Encoding:
    """The encoding of a column, with the reader of its kind and the sent type.

    Raises Mismatch if there is no such reader, or the sent digits of a decimal are not those of the column.
    """
    decoded = as_read(column)
    shown = None if decoded == column else column
    reader = readers.get((decoded.kind, sent.type))
    is_flag = decoded.kind is Kind.BOOLEAN and sent.type is FieldType.TINY
    # each integer type has a reader for every kind of integers, so the kinds are compared, too; a flag is no integer
    is_other_integer = sent.type in _INTEGER_BYTES and not is_flag and _kind_of_integer(sent) is not decoded.kind
    if reader is None or is_other_integer:
        raise Mismatch(f"column {column.source_name} is {sent.type.name} now, it was {column.source_type}")
    has_other_digits = (sent.precision, sent.scale) != (decoded.precision, decoded.scale)
    if decoded.kind in {Kind.DECIMAL, Kind.NUMERAL} and has_other_digits:
        raise Mismatch(f"column {column.source_name} has other digits, it was {column.source_type}")
    return Encoding(decoded, sent, width, reader, is_key, shown)


def _kind_of_integer(sent: Sent) -> Kind:
    """The smallest kind that can hold every value of the sent integer type."""
    if sent.type is FieldType.LONGLONG:
        return Kind.UINT64 if sent.unsigned else Kind.INT64
    return Kind.INT64 if sent.type is FieldType.LONG and sent.unsigned else Kind.INT32
