"""Writes the text of JSON scalars: most by steps of a kernel; opaque values, and doubles that are long, in Python.

Sources: MySQL's `json_dom.cc` (`wrapper_to_string`), `dtoa.cc` (`my_gcvt`), `decimal.cc` (`bin2decimal`), `my_time.cc`
(packed times). A value that the server cannot have written raises Damaged.

In the steps, `to` is the offset in `text` at which the next byte is written.
"""

import base64
import struct
from collections.abc import Callable
from math import isfinite

import numpy as np

from lakeingest.mysql.wire.compiled import compiled_step, load64, store64
from lakeingest.mysql.wire.events import Damaged

# The negative statuses, which a step returns in place of an offset into the text. DAMAGED: invalid bytes. TEXT_FULL:
# the array of the text is full. DEFERRED_FULL: the array of deferred scalars is full. DEFERRED: Python has to write
# this scalar later.
DAMAGED, TEXT_FULL, DEFERRED_FULL, DEFERRED = -1, -2, -3, -4
ROOM = 256  # bytes of text: more than the steps write between two checks of the free space

_QUOTE, _BACKSLASH, _SPACE, _MINUS, _POINT, _ZERO = b'"\\ -.0'
_LITERALS = np.frombuffer(b"null\0\0\0\0true\0\0\0\0false\0\0\0", np.int64)
_LITERAL_SIZES = np.array([4, 4, 5])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UNICODE = ord("u")
_ESCAPES = np.zeros(256, np.uint8)  # by byte: the letter after the backslash, 0 for a byte that is not escaped
_ESCAPES[:32] = _UNICODE
for _sign, _letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _ESCAPES[_sign] = _letter

_WORD = 8  # bytes
_ONES, _SPACES, _QUOTES, _BACKSLASHES = (sign * 0x0101010101010101 for sign in (1, _SPACE, _QUOTE, _BACKSLASH))
_HIGH_BITS = -0x7F7F7F7F7F7F7F80  # the highest bit of each byte, as a signed number

_POWERS = np.array([10**i for i in range(20)], np.uint64)
_TENS = np.array([float(10**i) for i in range(16)])  # each is an exact double
_DIGITS_MAX = 15  # a decimal of up to so many digits is always the shortest text of the nearest double

# Types of MySQL's columns.
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246

_EXPONENT_MIN, _WHOLE_DIGITS_MAX = -15, 15  # of numbers that are written without an exponent
_PRECISION_MAX = 81
_GROUP_SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # bytes of a group of a decimal, by its number of digits
_SIGN_BIT = 0x80
_TIME_SIZE = 8
_CLOCK_BITS = 41  # bits of the time of day in a packed time, below the bits of the date
_YEAR_MAX, _HOUR_MAX, _HOURS_MAX, _SIXTIETH_MAX, _MICRO_MAX = 9999, 23, 838, 59, 999_999


@compiled_step
def write_literal(value: int, text: np.ndarray, to: int) -> int:
    """Write null, true or false: for the `value` 0, 1 or 2. Returns the end of the text; DAMAGED for another value."""
    if value >= len(_LITERALS):
        return DAMAGED
    store64(text, to, _LITERALS[value])
    to += _LITERAL_SIZES[value]
    return to


@compiled_step
def write_integer(kind: int, value: int, size: int, text: np.ndarray, to: int) -> int:
    """Write an integer of type `kind`; `value` is its `size` bytes, read as an unsigned number.

    Returns the end of the text.
    """
    if kind & 1:  # a signed type
        unused = 64 - 8 * size
        value = value << unused >> unused  # extends the sign
        if value < 0:
            text[to] = _MINUS
            to += 1
            value = -value
    return _write_number(np.uint64(value), text, to)


@compiled_step
def write_short_decimal(bits: int, text: np.ndarray, to: int) -> int:
    """Write a double as a decimal of up to 15 digits without an exponent; `bits` are those of the double.

    Returns the end of the text; DEFERRED if the double is no such decimal. The digits and the power of ten are exact
    doubles, so their quotient is the double nearest to the decimal.
    """
    magnitude = abs(np.int64(bits).view(np.float64))
    if not magnitude < _TENS[_DIGITS_MAX]:  # too great; with "not", because no comparison with NaN is true
        return DEFERRED
    for decimals in range(_DIGITS_MAX + 1):  # try the fewest digits after the point first
        nearest = magnitude * _TENS[decimals] + 0.5  # plus 0.5, so that cutting it to an integer rounds
        if nearest >= _TENS[_DIGITS_MAX]:  # more than 15 digits
            return DEFERRED
        digits = np.int64(nearest)  # of the decimal, without its point
        if digits / _TENS[decimals] == magnitude:  # the given double is nearest to this decimal
            if bits < 0:
                text[to] = _MINUS
                to += 1
            to = _write_number(np.uint64(digits) // _POWERS[decimals], text, to)
            text[to] = _POINT
            return _write_digits(np.uint64(digits) % _POWERS[decimals], max(decimals, 1), text, to + 1)
    return DEFERRED


@compiled_step
def _write_number(value: np.uint64, text: np.ndarray, to: int) -> int:
    """Write an unsigned number. Returns the end of the text."""
    count = 1
    while count < len(_POWERS) and value >= _POWERS[count]:
        count += 1
    return _write_digits(value, count, text, to)


@compiled_step
def _write_digits(value: np.uint64, count: int, text: np.ndarray, to: int) -> int:
    """Write the last `count` digits of an unsigned number. Returns the end of the text."""
    for i in range(count - 1, -1, -1):
        text[to + i] = _ZERO + np.uint8(value % np.uint64(10))
        value //= np.uint64(10)
    return to + count


@compiled_step
def write_string(data: np.ndarray, at: int, size: int, text: np.ndarray, to: int) -> int:
    """Write a string in quotes, with JSON's escapes. Returns the end of the text, or TEXT_FULL."""
    text[to] = _QUOTE
    to += 1
    stop = at + size
    while at < stop:
        if to > len(text) - ROOM:
            return TEXT_FULL
        count = min(stop - at, _WORD)
        word = load64(data, at)
        if count < _WORD:
            used = (1 << 8 * count) - 1  # the bits of the string's bytes
            word = (word & used) | (_SPACES & ~used)  # spaces, which are not escaped, in the bytes after the string
        if _has_escapes(word):
            for i in range(count):
                to = _write_byte(data[at + i], text, to)
        else:
            store64(text, to, word)
            to += count
        at += count
    text[to] = _QUOTE
    return to + 1


@compiled_step
def _has_escapes(word: int) -> bool:
    """Whether one of the eight bytes of a word is less than a space, or is a quote or a backslash."""
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES  # a byte is 0 where the word has the character
    # (x - n) & ~x, with n in each byte: a byte of x that is less than n gets its highest bit; for n = 1, a byte 0 does.
    # A borrow can set this bit only in bytes above such a byte, so the answer stays the same.
    tests = (word - _SPACES) & ~word | (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes
    return (tests & _HIGH_BITS) != 0


@compiled_step
def _write_byte(byte: int, text: np.ndarray, to: int) -> int:
    """Write a byte of a string, escaped if necessary. Returns the end of the text."""
    letter = _ESCAPES[byte]
    if letter == 0:  # no escape
        text[to] = byte
        return to + 1
    text[to], text[to + 1] = _BACKSLASH, letter
    if letter != _UNICODE:
        return to + 2
    # \u00 and two hexadecimal digits
    text[to + 2], text[to + 3], text[to + 4], text[to + 5] = _ZERO, _ZERO, _HEX[byte >> 4], _HEX[byte & 0xF]
    return to + 6


def double_text(content: bytes) -> str:
    """The text of a double from its eight bytes. Raises Damaged if it is not finite.

    The text has the fewest digits that are parsed to the same double. It has an exponent if the double, without
    its sign, is below 1e-15 and not 0, or is 1e15 or more.
    """
    (double,) = struct.unpack("<d", content)
    if not isfinite(double):
        raise Damaged(f"a JSON double that is {double}")
    text = repr(double)  # Python has the fewest digits, too, but other limits for the exponent
    mantissa, _, exponent = text.lstrip("-").partition("e")
    sign = "-" if text[0] == "-" else ""
    if exponent and _EXPONENT_MIN <= int(exponent) < 0:  # from 1e-15 on, where MySQL writes no exponent
        return f"{sign}0.{'0' * (-int(exponent) - 1)}{mantissa.replace('.', '')}"
    if exponent:
        return f"{sign}{mantissa}e{int(exponent)}"
    whole = mantissa.removesuffix(".0")
    has_fraction = not mantissa.endswith(".0")
    if has_fraction or len(whole) <= _WHOLE_DIGITS_MAX:
        return text
    # a whole number of 16 digits: MySQL writes an exponent, Python does not
    fraction = whole[1:].rstrip("0")
    point = "." if fraction else ""
    return f"{sign}{whole[0]}{point}{fraction}e{len(whole) - 1}"


def opaque_text(kind: int, content: bytes) -> str:
    """The text of an opaque value of the MySQL type `kind`. Raises Damaged if the type has no such value."""
    if kind == _DECIMAL:
        return _decimal(content)
    if kind in _TIMES:
        if len(content) != _TIME_SIZE:
            raise Damaged("a JSON time of the wrong size")
        return f'"{_TIMES[kind](int.from_bytes(content, "little", signed=True))}"'
    lines = base64.encodebytes(content).decode().splitlines()
    return f'"base64:type{kind}:' + "\\n".join(lines) + '"'


def _decimal(content: bytes) -> str:
    """The text of a decimal. Raises Damaged for a wrong size or invalid digits.

    `content` has its precision, its scale, and groups of up to nine digits in up to four bytes each. The bits of the
    groups are inverted for a negative decimal, then the first bit is inverted for any decimal.
    """
    precision, scale = content[:2] if content[2:] else (0, 0)  # the precision 0 is refused below
    full_wholes, first_count = divmod(precision - scale, 9)  # the first group of the whole may have fewer digits
    full_fractions, last_count = divmod(scale, 9)  # so may the last group of the fraction
    counts = [first_count, *[9] * full_wholes, *[9] * full_fractions, last_count]  # of digits, by group
    sizes = [_GROUP_SIZES[count] for count in counts]
    total_size = sum(sizes)
    has_precision = 1 <= precision <= _PRECISION_MAX and scale <= precision
    if not has_precision or len(content) != 2 + total_size:
        raise Damaged("a JSON decimal of the wrong size")
    is_negative = content[2] < _SIGN_BIT
    # undo the inversions: first that of the first bit, then that of a negative decimal
    packed = int.from_bytes(content[2:]) ^ (_SIGN_BIT << 8 * (total_size - 1))
    if is_negative:
        packed ^= (1 << 8 * total_size) - 1  # every bit
    digits = ""
    for count, size in zip(reversed(counts), reversed(sizes), strict=True):  # the last group first
        packed, group = divmod(packed, 1 << 8 * size)
        if group >= 10**count:
            raise Damaged("a JSON decimal with digits above nine")
        digits = f"{group:0{count}}"[:count] + digits  # `[:count]` because a group without digits is written as 0
    whole, fraction = digits[: precision - scale].lstrip("0"), digits[precision - scale :]
    sign, point = "-" if is_negative else "", "." if fraction else ""
    return f"{sign}{whole or '0'}{point}{fraction}"


def _date(packed: int) -> str:
    """The text of the date in a packed time: above the time of day it has year * 13 + month, then the day (5 bits).

    Raises Damaged for a year that MySQL does not have.
    """
    year_month, day = divmod(packed >> _CLOCK_BITS, 32)
    year, month = divmod(year_month, 13)
    if not 0 <= year <= _YEAR_MAX:
        raise Damaged("an invalid JSON date")
    return f"{year:04}-{month:02}-{day:02}"


def _datetime(packed: int) -> str:
    return f"{_date(packed)} {_clock(packed & ((1 << _CLOCK_BITS) - 1), _HOUR_MAX)}"


def _time(packed: int) -> str:
    sign = "-" if packed < 0 else ""
    return f"{sign}{_clock(abs(packed), _HOURS_MAX)}"


def _clock(packed: int, hours_max: int) -> str:
    """The text of a time: hours, minutes (6 bits), seconds (6 bits), microseconds (24 bits).

    Raises Damaged for more than `hours_max` hours, or another impossible number.
    """
    clock, micros = divmod(packed, 1 << 24)
    hours, minutes, seconds = clock >> 12, clock >> 6 & 0x3F, clock & 0x3F
    if hours > hours_max or minutes > _SIXTIETH_MAX or seconds > _SIXTIETH_MAX or micros > _MICRO_MAX:
        raise Damaged("an invalid JSON time")
    return f"{hours:02}:{minutes:02}:{seconds:02}.{micros:06}"


_TIMES: dict[int, Callable[[int], str]] = {
    _DATE: _date,
    _TIME: _time,
    _DATETIME: _datetime,
    _TIMESTAMP: _datetime,
}
