"""Decodes numbers of result sets and row images: integers, floats, years, bits, and decimals (packed, or as texts).

Sources: MySQL's protocol documentation, "Binary Protocol Value"; MySQL manual, "Precision Math: DECIMAL Data Type
Characteristics" (nine digits in four bytes).

In the kernels, `data`, `start` and `size` are those of `Values`.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.mysql.wire import charsets
from lakeingest.mysql.wire.compiled import big_number, int64, kernel, number, step
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.values import Values
from lakeingest.rows import VECTOR

_FLOAT_BYTES = 4
_GROUP = 9  # digits of a whole group of a packed decimal
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # the size of a group, by its number of digits
_POWERS = np.array([10**digits for digits in range(_GROUP + 1)], np.int64)
_LOW = 0xFFFFFFFF  # the lower 32 bits
_MINUS, _POINT, _ZERO = ord("-"), ord("."), ord("0")
_FIRST_YEAR = 1900


def integers(values: Values, width: int, arrow_type: pa.DataType, *, signed: bool) -> pa.Array:
    """Numbers of `width` bytes, least byte first, as a column of integers; a decimal type is for BIGINT UNSIGNED."""
    numbers = _as_int64(values, width, signed=signed)
    if pa.types.is_decimal(arrow_type):
        wide = np.zeros((len(values), 2), np.int64)  # the lower and the upper half of 128 bits
        wide[:, 0] = numbers
        return values.column(arrow_type, wide)
    return values.column(arrow_type, numbers.astype(arrow_type.to_pandas_dtype(), copy=False))


def floats(values: Values) -> pa.Array:
    """FLOAT, exact: MySQL's four bytes are the bits of Arrow's value."""
    return values.column(pa.float32(), _as_int64(values, 4, signed=False).astype(np.uint32))


def doubles(values: Values) -> pa.Array:
    """DOUBLE, exact: MySQL's eight bytes are the bits of Arrow's value."""
    return values.column(pa.float64(), _as_int64(values, 8, signed=True))


def vectors(values: Values) -> pa.Array:
    """VECTOR: consecutive FLOATs. Raises Damaged for a size that is not a multiple of the size of a FLOAT."""
    raw = charsets.binary(values)
    _, offsets, data = raw.buffers()
    byte_offsets = np.frombuffer(offsets, np.int32, len(values) + 1)
    if (byte_offsets % _FLOAT_BYTES).any():
        raise Damaged("a VECTOR whose size is not a multiple of 4 bytes")
    numbers = np.frombuffer(data, np.float32, int(byte_offsets[-1]) // _FLOAT_BYTES)
    return pa.ListArray.from_arrays(
        pa.array(byte_offsets // _FLOAT_BYTES, pa.int32()), pa.array(numbers), type=VECTOR, mask=raw.is_null()
    )


def years(values: Values) -> pa.Array:
    """YEAR in a row image: one byte, 0 for the year 0, else the number of years since 1900."""
    numbers = _as_int64(values, 1, signed=False)
    return values.column(pa.int32(), np.where(numbers == 0, 0, numbers + _FIRST_YEAR).astype(np.int32))


def booleans(values: Values) -> pa.Array:
    """BIT(1) as a boolean: the lowest bit of one byte."""
    bits = np.packbits(_as_int64(values, 1, signed=False) & 1, bitorder="little")
    return values.column(pa.bool_(), bits)


def flags(values: Values) -> pa.Array:
    """TINYINT(1) as a boolean. Raises ValueError for a value that is neither 0 nor 1."""
    numbers = _as_int64(values, 1, signed=True)
    if np.any((numbers != 0) & (numbers != 1) & (values.start >= 0)):
        raise ValueError("a TINYINT(1) is neither 0 nor 1, so it is not a boolean; set tinyint1 to int")
    return pa.array(numbers == 1, mask=values.start < 0)


def unsigned(values: Values, width: int) -> np.ndarray:
    """Unsigned numbers of `width` bytes as int64, 0 for NULL. Numbers of 8 bytes from 2^63 on become negative."""
    return _as_int64(values, width, signed=False)


def decimal_bytes(precision: int, scale: int) -> int:
    """The size of a packed decimal in bytes."""
    return sum(size for size, _ in _groups(precision, scale))


def packed_decimals(values: Values, precision: int, scale: int) -> pa.Array:
    """DECIMAL of up to 38 digits in a row image. Raises Damaged for invalid digits."""
    groups = np.array(_groups(precision, scale), np.int64)
    wide = np.empty((len(values), 2), np.int64)
    _require_no_invalid(_read_packed_decimals(values.data, values.start, groups, wide))
    return values.column(pa.decimal128(precision, scale), wide)


def decimal_texts(values: Values, precision: int, scale: int) -> pa.Array:
    """DECIMAL of up to 38 digits in a result set, from its text.

    Raises Damaged for a text that is no number, has too many digits, or has not exactly `scale` digits after the point.
    """
    wide = np.empty((len(values), 2), np.int64)
    _require_no_invalid(_read_decimal_texts(values.data, values.start, values.size, precision - scale, scale, wide))
    return values.column(pa.decimal128(precision, scale), wide)


def numerals(values: Values, precision: int, scale: int) -> pa.Array:
    """DECIMAL of more than 38 digits in a row image, as MySQL's text. Raises Damaged for invalid digits."""
    groups = _groups(precision, scale)
    return pa.array([None if raw is None else _numeral(raw, groups, scale) for raw in values.raw()], pa.string())


def numeral_texts(values: Values) -> pa.Array:
    """DECIMAL of more than 38 digits in a result set, as MySQL's text without the leading zeros of ZEROFILL."""
    return pc.replace_substring_regex(charsets.texts(values, "ascii"), r"^0+(\d)", r"\1")


def _numeral(raw: bytes, groups: list[tuple[int, int]], scale: int) -> str:
    """The text of a packed decimal; `groups` are its `_groups`. Raises Damaged for invalid digits."""
    is_negative = not raw[0] & 0x80  # the first bit is inverted; a negative decimal also has all bits inverted
    plain = bytes([raw[0] ^ 0x80, *raw[1:]])
    if is_negative:
        plain = bytes(byte ^ 0xFF for byte in plain)
    at, digits = 0, ""
    for size, power in groups:
        part = int.from_bytes(plain[at : at + size])
        if part >= power:
            raise Damaged("a decimal with invalid digits")
        digit_count = len(str(power)) - 1  # `power` is 10 to the digit count of the group
        digits += str(part).zfill(digit_count)
        at += size
    sign = "-" if is_negative else ""
    whole, fraction = digits[: len(digits) - scale].lstrip("0") or "0", digits[len(digits) - scale :]
    return f"{sign}{whole}.{fraction}" if scale else f"{sign}{whole}"


def _groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """The groups of digits of a packed decimal: each group's size in bytes, and 10 to the power of its digit count."""
    whole = precision - scale  # digits before the point
    # from the point on, groups have nine digits; the first and the last group have what is left
    digit_counts = [whole % _GROUP, *[_GROUP] * (whole // _GROUP), *[_GROUP] * (scale // _GROUP), scale % _GROUP]
    return [(_GROUP_BYTES[count], 10**count) for count in digit_counts if count]


def _require_no_invalid(row: int) -> None:
    """Raise Damaged if `row`, a kernel's result, is the first row with an invalid decimal; −1: all are valid."""
    if row >= 0:
        raise Damaged(f"an invalid decimal in row {row}")


def _as_int64(values: Values, width: int, *, signed: bool) -> np.ndarray:
    """Numbers of `width` bytes as int64, 0 for NULL. Unsigned numbers of 8 bytes from 2^63 on become negative."""
    numbers = np.empty(len(values), np.int64)
    _read_integers(values.data, values.start, width, int(signed), numbers)
    return numbers


@kernel
def _read_integers(data: np.ndarray, start: np.ndarray, width: int, signed: int, numbers: np.ndarray) -> None:
    """Fill `numbers` with the value of each row, 0 for NULL; `signed` is 0 or 1."""
    unused = (8 - width) * 8 if signed else 0  # a shift by these bits, to the left and back, extends the sign
    for row in range(len(start)):
        if start[row] < 0:
            numbers[row] = 0
        else:
            numbers[row] = number(data, start[row], width) << unused >> unused


@step
def times_plus(low: int, high: int, power: int, part: int) -> tuple[int, int]:
    """The 128-bit number with the halves `low` and `high`, times `power`, plus `part`: as its low and high half.

    `power` and `part` have at most 30 bits each.
    """
    # a product of 32 and 30 bits fits into 64 bits
    first = (low & _LOW) * power + part
    second = (low >> 32 & _LOW) * power + (first >> 32)
    return (first & _LOW) | (second << 32), high * power + (second >> 32)


@step
def _write_wide(wide: np.ndarray, row: int, low: int, high: int, negative: bool) -> None:
    """Write a number of 128 bits to a row of `wide`, as its two halves; with `negative`, write minus the number."""
    if negative:
        low, high = -low, ~high + (low == 0)  # the two's complement
    wide[row, 0], wide[row, 1] = low, high


@kernel
def _read_packed_decimals(data: np.ndarray, start: np.ndarray, groups: np.ndarray, wide: np.ndarray) -> int:
    """Fill `wide` (rows × low and high half) from packed decimals; `groups` are their `_groups`.

    Returns the first row with an invalid decimal, or −1. NULL becomes 0.
    """
    for row in range(len(start)):
        at = int64(start[row])
        low = high = int64(0)
        negative = False
        if at >= 0:
            negative = (data[at] & 0x80) == 0  # the first bit of the first group is stored inverted
            inverted = int64(0x80)  # the bit of a group that is stored inverted; 0 for other groups than the first
            for group in range(len(groups)):
                size, power = groups[group, 0], groups[group, 1]
                mask = (int64(1) << (8 * size)) - 1
                part = big_number(data, at, size) ^ (inverted << (8 * (size - 1)))
                if negative:  # all its bits are stored inverted
                    part ^= mask
                if part >= power:  # more digits than the group can have
                    return row
                low, high = times_plus(low, high, power, part)
                inverted = int64(0)
                at += size
        _write_wide(wide, row, low, high, negative)
    return -1


@kernel
def _read_decimal_texts(
    data: np.ndarray, start: np.ndarray, size: np.ndarray, whole: int, scale: int, wide: np.ndarray
) -> int:
    """Fill `wide` from texts, as `_read_packed_decimals` does. Returns the first row with an invalid decimal, or −1."""
    for row in range(len(start)):
        at = int64(start[row])
        end = at + size[row]
        low = high = int64(0)
        negative = False
        if at >= 0:
            negative = data[at] == _MINUS
            at += negative  # skips the sign
            # before the point: at least one digit, which is 0 if the type has no digits there
            whole_digits = end - at - (scale + 1 if scale else 0)
            if whole_digits < 1 or whole_digits > max(whole, 1) or (whole == 0 and data[at] != _ZERO):
                return row
            if scale and data[end - scale - 1] != _POINT:
                return row
            part, digits = int64(0), 0  # up to nine digits at a time, also across the point, and their number
            while at < end:
                if scale and at == end - scale - 1:  # the point
                    at += 1
                digit = int64(data[at]) - _ZERO
                if digit < 0 or digit > 9:
                    return row
                part = part * 10 + digit
                digits += 1
                at += 1
                if digits == _GROUP or at == end:
                    low, high = times_plus(low, high, _POWERS[digits], part)
                    part, digits = int64(0), 0
        _write_wide(wide, row, low, high, negative)
    return -1
