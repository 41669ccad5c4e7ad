"""Decodes dates and times of result sets and row images.

Sources: MySQL Internals, "Date and Time Data Type Representation" (row images); protocol documentation, "Binary
Protocol Value" (result sets). Both forms have year, month and day, so a date can be impossible: a zero or partial date,
or the 30th of February under ALLOW_INVALID_DATES. Impossible dates are refused, unless the user chose that they become
NULL, or that all dates of the column are texts. Dates in the year 0, which some readers of the lake do not know, count
as impossible.

In the kernels, `data`, `start` and `size` are those of `Values`.
"""

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.schema import NULL_DATES, Column, Kind
from lakeingest.mysql.wire.compiled import SLACK, big_number, int64, kernel, number, step
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.values import Values

INSTANT = pa.timestamp("us", "UTC")
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_TIME_BYTES_MAX = 17  # -838:59:59.000000
_MICROSECONDS = np.array([1, 10_000, 100, 1], np.int64)  # of one unit of the fraction, by the fraction's size in bytes
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_IMPOSSIBLE = np.iinfo(np.int64).min  # stands for a date or time that does not exist
_DATE_LETTERS, _DATETIME_LETTERS = 10, 19  # of the text of a date, and of a datetime without a fraction
_ZERO = "0000-00-00 00:00:00.000000"
_BINARY, _BINARY_SIZES = struct.Struct("<HBBBBBI"), (0, 4, 7, 11)  # of a date and time in a result set


class NotADay(ValueError):
    """An impossible date in the row `row`; the message is the date as MySQL writes it."""

    def __init__(self, row: int, date: str) -> None:
        super().__init__(date)
        self.row = row


def fraction_bytes(digits: int) -> int:
    """The number of bytes that a fraction of a second with `digits` digits takes in a row image."""
    return (digits + 1) // 2


def dates(values: Values, column: Column) -> pa.Array:
    """DATE in a row image: day, month and year in three bytes."""
    instants = np.empty(len(values), np.int64)
    _read_dates(values.data, values.start, instants)
    return _date_column(values, instants, column, _date_text)


def datetimes(values: Values, digits: int, column: Column) -> pa.Array:
    """DATETIME in a row image: 40 bits from year to second, and the fraction of a second."""
    instants = np.empty(len(values), np.int64)
    _read_datetimes(values.data, values.start, fraction_bytes(digits), instants)
    return _date_column(values, instants, column, _datetime_text)


def timestamps(values: Values, digits: int, column: Column, *, fraction_counts: bool) -> pa.Array:
    """TIMESTAMP in a row image: seconds since 1970, and the fraction of a second.

    0 seconds are the zero date; with `fraction_counts`, only if the fraction is 0, too.
    """
    instants = np.empty(len(values), np.int64)
    _read_timestamps(values.data, values.start, fraction_bytes(digits), fraction_counts, instants)
    return _date_column(values, instants, column, lambda _: _ZERO)  # an impossible TIMESTAMP is the zero date


def binary_days(values: Values, column: Column) -> pa.Array:
    """DATE, DATETIME or TIMESTAMP in a result set. The session must be in UTC.

    Raises Damaged for a value of an impossible size.
    """
    instants = np.empty(len(values), np.int64)
    _read_binary_datetimes(values.data, values.start, values.size, instants)
    # the kernel takes a value of an impossible size for an impossible date, too: only its size shows the damage
    if not np.isin(values.size[instants == _IMPOSSIBLE], _BINARY_SIZES).all():
        raise Damaged("a date of an impossible length")
    return _date_column(values, instants, column, _binary_text)


def times(values: Values, digits: int, column: Column) -> pa.Array:
    """TIME in a row image."""
    durations = np.empty(len(values), np.int64)
    _read_times(values.data, values.start, fraction_bytes(digits), durations)
    return _duration_column(values, durations, column)


def binary_times(values: Values, column: Column) -> pa.Array:
    """TIME in a result set."""
    durations = np.empty(len(values), np.int64)
    _read_binary_times(values.data, values.start, values.size, durations)
    return _duration_column(values, durations, column)


def _duration_column(values: Values, durations: np.ndarray, column: Column) -> pa.Array:
    """Durations, in microseconds, as a column: numbers for the kind MICROS, else MySQL's texts.

    Raises Damaged for an impossible duration.
    """
    if len(durations) and int(durations.min()) == _IMPOSSIBLE:
        raise Damaged(f"an invalid TIME in row {int(durations.argmin())}")
    if column.kind is Kind.MICROS:
        return values.column(pa.int64(), durations)
    offsets = np.zeros(len(values) + 1, np.int32)
    text = np.empty(len(values) * _TIME_BYTES_MAX + SLACK, np.uint8)
    _write_times(values.start, durations, column.fraction, offsets, text)
    return values.column(pa.string(), offsets, text[: offsets[-1]])


# Makes MySQL's text of a value's bytes: a date and a time, with six digits of a fraction, also for a DATE
DateText = Callable[[bytes], str]


def _date_column(values: Values, instants: np.ndarray, column: Column, text_of: DateText) -> pa.Array:
    """Instants, in microseconds since 1970, as a column: texts for the kind MOMENT, else dates or timestamps.

    For MOMENT an impossible date becomes a text, too. For other kinds it becomes NULL if the user chose NULL_DATES;
    without this choice the function raises NotADay.
    """
    is_impossible = instants == _IMPOSSIBLE
    if column.kind is Kind.MOMENT:
        # any instant serves in place of an impossible one, because its text is replaced
        return _as_texts(values, np.where(is_impossible, 0, instants), np.flatnonzero(is_impossible), column, text_of)
    if is_impossible.any():
        if column.choice != NULL_DATES:
            first_row = int(is_impossible.argmax())
            date, _, _ = text_of(_bytes_of(values, first_row)).partition(" ")  # without the time of day
            raise NotADay(first_row, date)
        values = values.with_nulls(is_impossible)
    if column.kind is Kind.DATE:
        return values.column(pa.date32(), (instants // _DAY).astype(np.int32))
    return values.column(INSTANT if column.kind is Kind.TIMESTAMP else pa.timestamp("us"), instants)


def _as_texts(
    values: Values, instants: np.ndarray, impossible_rows: np.ndarray, column: Column, text_of: DateText
) -> pa.Array:
    """MySQL's own text of each date: from its instant, or for an impossible date from its bytes, by `text_of`."""
    text_size = _DATE_LETTERS if column.source_type.name == "date" else _DATETIME_LETTERS
    if column.fraction:
        text_size += 1 + column.fraction  # a point and the fraction's digits
    # Arrow's text always has a time of day and six digits of a fraction, so it is cut
    texts = pc.utf8_slice_codeunits(values.column(pa.timestamp("us"), instants).cast(pa.string()), 0, text_size)
    if not len(impossible_rows):
        return texts
    corrected = texts.to_pylist()
    for row in impossible_rows.tolist():
        corrected[row] = text_of(_bytes_of(values, row))[:text_size]
    return pa.array(corrected, pa.string())


def _bytes_of(values: Values, row: int) -> bytes:
    """The bytes of a row's value; the value must not be NULL."""
    start, size = int(values.start[row]), int(values.size[row])
    return values.data[start : start + size].tobytes()


def _date_text(raw: bytes) -> str:
    """The text of a DATE in a row image: from the lowest bit on, the day (5 bits), the month (4 bits), the year."""
    packed = int.from_bytes(raw, "little")
    return _format_datetime(packed >> 9, packed >> 5 & 15, packed & 31)


def _datetime_text(raw: bytes) -> str:
    """The text of a DATETIME in a row image: year * 13 + month, day, hour, minute and second; then the fraction."""
    fields = int.from_bytes(raw[:5]) - 0x8000000000  # MySQL adds this number
    months = fields >> 22
    date = months // 13, months % 13, fields >> 17 & 31
    micros = int.from_bytes(raw[5:]) * int(_MICROSECONDS[len(raw) - 5])
    return _format_datetime(*date, fields >> 12 & 31, fields >> 6 & 63, fields & 63, micros)


def _binary_text(raw: bytes) -> str:
    """The text of a date and time in a result set, which omits a time, a fraction or a whole value of zeros."""
    whole = raw.ljust(_BINARY.size, b"\0")
    return _format_datetime(*_BINARY.unpack(whole))


def _format_datetime(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micros: int = 0
) -> str:
    return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}"


@step
def _microseconds(year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int) -> int:
    """Microseconds from 1970 to a date and time of the Gregorian calendar; _IMPOSSIBLE if the date or time is invalid.

    Dates in the year 0 count as invalid.
    """
    if not (1 <= year <= 9999 and 1 <= month <= 12 and hour < 24 and minute < 60 and second < 60 and micros < _SECOND):
        return _IMPOSSIBLE
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _MONTH_DAYS[month] + (leap and month == 2):
        return _IMPOSSIBLE
    # count in years that begin in March, so that the leap day is the last day of a year; 719,468 days lie between
    # the first of March of the year 0 and 1970
    march = year - (month <= 2)  # the year in which the date's last March was
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1  # the first term: the days from March to the month
    days = march * 365 + march // 4 - march // 100 + march // 400 + day_of_year - 719_468
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * _SECOND + micros


@step
def _read_fraction(data: np.ndarray, at: int, size: int) -> int:
    """The microseconds of a fraction of a second that has `size` bytes in a row image."""
    return int64(big_number(data, at, size) * _MICROSECONDS[size])


@kernel
def _read_dates(data: np.ndarray, start: np.ndarray, instants: np.ndarray) -> None:
    """Fill `instants` (in µs since 1970) from DATEs in row images: 0 for NULL, _IMPOSSIBLE for an impossible date."""
    for row in range(len(start)):
        instants[row] = 0
        if start[row] >= 0:
            fields = number(data, start[row], 3)
            instants[row] = _microseconds(fields >> 9, fields >> 5 & 15, fields & 31, 0, 0, 0, 0)


@kernel
def _read_datetimes(data: np.ndarray, start: np.ndarray, fraction: int, instants: np.ndarray) -> None:
    """Fill `instants`, as `_read_dates`, from DATETIMEs in row images; `fraction` is their fraction's size in bytes."""
    for row in range(len(start)):
        instants[row] = 0
        if start[row] >= 0:
            fields = big_number(data, start[row], 5) - 0x8000000000  # MySQL adds this number
            months = fields >> 22
            instants[row] = _microseconds(
                months // 13,
                months % 13,
                fields >> 17 & 31,
                fields >> 12 & 31,
                fields >> 6 & 63,
                fields & 63,
                _read_fraction(data, start[row] + 5, fraction),
            )


@kernel
def _read_timestamps(
    data: np.ndarray,
    start: np.ndarray,
    fraction: int,
    fraction_counts: bool,
    instants: np.ndarray,
) -> None:
    """Fill `instants`, as `_read_dates`, from TIMESTAMPs in row images; `fraction` is their fraction's size in bytes.

    With `fraction_counts`, 0 seconds with a fraction are a moment, not the zero date.
    """
    for row in range(len(start)):
        instants[row] = 0
        if start[row] >= 0:
            seconds = big_number(data, start[row], 4)
            micros = _read_fraction(data, start[row] + 4, fraction)
            is_moment = seconds or (fraction_counts and micros)
            instants[row] = seconds * _SECOND + micros if is_moment and micros < _SECOND else _IMPOSSIBLE


@kernel
def _read_binary_datetimes(data: np.ndarray, start: np.ndarray, size: np.ndarray, instants: np.ndarray) -> None:
    """Fill `instants`, as `_read_dates`, from dates and times in a result set.

    A value has 11 bytes, 7 without a fraction, 4 without a time. Any other size is an impossible date: 0 bytes are the
    zero date.
    """
    for row in range(len(start)):
        at, length = int64(start[row]), size[row]
        instants[row] = 0
        if at >= 0:
            if length != 4 and length != 7 and length != 11:
                instants[row] = _IMPOSSIBLE
                continue
            hour = minute = second = micros = int64(0)
            if length > 4:
                hour, minute, second = int64(data[at + 4]), int64(data[at + 5]), int64(data[at + 6])
            if length > 7:
                micros = number(data, at + 7, 4)
            year, month, day = number(data, at, 2), int64(data[at + 2]), int64(data[at + 3])
            instants[row] = _microseconds(year, month, day, hour, minute, second, micros)


@step
def _duration(hours: int, minutes: int, seconds: int, micros: int) -> int:
    """A TIME without its sign, in microseconds; _IMPOSSIBLE for a TIME that MySQL does not have."""
    if hours > 838 or minutes > 59 or seconds > 59 or micros >= _SECOND:
        return _IMPOSSIBLE
    return ((hours * 60 + minutes) * 60 + seconds) * _SECOND + micros


@kernel
def _read_times(data: np.ndarray, start: np.ndarray, fraction: int, durations: np.ndarray) -> None:
    """Fill `durations` (in µs) from TIMEs in row images: 0 for NULL, _IMPOSSIBLE for a TIME that MySQL does not have.

    `fraction` is the size of their fraction in bytes.
    """
    for row in range(len(start)):
        durations[row] = 0
        if start[row] >= 0:
            bits = 8 * fraction
            fields = big_number(data, start[row], 3 + fraction) - (int64(0x800000) << bits)  # MySQL adds this number
            negative = fields < 0
            if negative:
                fields = -fields
            micros = (fields & ((int64(1) << bits) - 1)) * _MICROSECONDS[fraction]
            fields >>= bits
            value = _duration(fields >> 12, fields >> 6 & 63, fields & 63, micros)
            durations[row] = -value if negative else value  # minus _IMPOSSIBLE is _IMPOSSIBLE, in 64 bits


@kernel
def _read_binary_times(data: np.ndarray, start: np.ndarray, size: np.ndarray, durations: np.ndarray) -> None:
    """Fill `durations`, as `_read_times`, from TIMEs in a result set.

    A value has 12 bytes, 8 without a fraction; a TIME of zero has 0 bytes. Any other size is impossible.
    """
    for row in range(len(start)):
        at, length = int64(start[row]), size[row]
        durations[row] = 0
        if at >= 0 and length != 0:
            if length != 8 and length != 12:
                durations[row] = _IMPOSSIBLE
                continue
            hours = number(data, at + 1, 4) * 24 + int64(data[at + 5])
            micros = number(data, at + 8, 4) if length > 8 else int64(0)
            value = _duration(hours, int64(data[at + 6]), int64(data[at + 7]), micros)
            durations[row] = -value if data[at] else value  # the first byte is 1 for a negative TIME


@kernel
def _write_times(start: np.ndarray, durations: np.ndarray, digits: int, offsets: np.ndarray, text: np.ndarray) -> None:
    """Write durations as MySQL's texts, `[-]HH:MM:SS[.fraction]`, with `digits` digits of the fraction.

    Fills `text`, and `offsets` from index 1 on with the end of each row's text. In ASCII, 45 is minus, 46 is a point,
    48 is zero, and 58 is a colon.
    """
    at = int64(0)
    for row in range(len(start)):
        if start[row] >= 0:
            value = durations[row]
            if value < 0:
                value = -value
                text[at] = 45
                at += 1
            micros, seconds = value % _SECOND, value // _SECOND
            hours = seconds // 3600
            if hours >= 100:  # a third digit of the hours
                text[at] = 48 + hours // 100
                at += 1
            for part in (hours % 100, seconds // 60 % 60, seconds % 60):
                text[at], text[at + 1], text[at + 2] = 48 + part // 10, 48 + part % 10, 58
                at += 3
            at -= 1  # without the colon after the seconds
            if digits:
                text[at] = 46
                for digit in range(digits):
                    text[at + 1 + digit] = 48 + micros // 10 ** (5 - digit) % 10
                at += 1 + digits
        offsets[row + 1] = at
