import datetime as dt
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakeingest.core.tables.schema import Column, Kind
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire import temporals
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.temporals import NotADay
from lakeingest.mysql.wire.values import Values

DAYS = [dt.date(1600, 1, 1) + dt.timedelta(days) for days in range(146_097)]  # in 400 years, after which all repeats
DATE, DATETIME = Column("c", Kind.DATE, source_type("date")), Column("c", Kind.DATETIME, source_type("datetime"))
STAMP = Column("c", Kind.TIMESTAMP, source_type("timestamp"))
EDGES = [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]


def time_of(digits: int) -> Column:
    """A TIME with so many digits of a second."""
    return Column("c", Kind.TIME, source_type(f"time({digits})"), fraction=digits)


def date(year: int, month: int, day: int) -> bytes:
    """DATE in a row image."""
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def datetime(year: int, month: int, day: int, seconds: int = 0, micros: int = 0, digits: int = 0) -> bytes:
    """DATETIME in a row image."""
    clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    fields = (1 << 39) | (year * 13 + month) << 22 | day << 17 | clock
    return fields.to_bytes(5) + fraction(micros, digits)


def fraction(micros: int, digits: int) -> bytes:
    """The fraction of a second in a row image."""
    size = (digits + 1) // 2
    return (micros // (1_000_000, 10_000, 100, 1)[size]).to_bytes(size)


def binary(year: int, month: int, day: int, seconds: int | None = None, micros: int | None = None) -> bytes:
    """DATE or DATETIME in a result set."""
    raw = year.to_bytes(2, "little") + bytes([month, day])
    if seconds is not None:
        raw += bytes([seconds // 3600, seconds // 60 % 60, seconds % 60])
    return raw if micros is None else raw + micros.to_bytes(4, "little")


def time(micros: int, digits: int) -> bytes:
    """TIME in a row image."""
    size = (digits + 1) // 2
    seconds, part = divmod(abs(micros), 1_000_000)
    packed = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 8 * size
    packed |= part // (1_000_000, 10_000, 100, 1)[size]
    return ((0x800000 << 8 * size) + (-packed if micros < 0 else packed)).to_bytes(3 + size)


def binary_time(micros: int) -> bytes:
    """TIME in a result set."""
    if not micros:
        return b""
    seconds, part = divmod(abs(micros), 1_000_000)
    fields = bytes([seconds // 3600 % 24, seconds // 60 % 60, seconds % 60])
    raw = bytes([micros < 0]) + (seconds // 86_400).to_bytes(4, "little") + fields
    return raw + part.to_bytes(4, "little") if part else raw


def test_every_day_of_400_years_is_read_exactly() -> None:
    """In row images and result sets, also at the limits of the calendar."""
    days = [*DAYS, *EDGES]
    parts = [(day.year, day.month, day.day) for day in days]
    expected = pa.array(days)
    assert temporals.dates(Values.of([date(*part) for part in parts]), DATE).equals(expected)
    assert temporals.binary_days(Values.of([binary(*part) for part in parts]), DATE).equals(expected)
    midnight = expected.cast(pa.timestamp("us"))
    assert temporals.datetimes(Values.of([datetime(*part) for part in parts]), 0, DATETIME).equals(midnight)
    assert temporals.binary_days(Values.of([binary(*part) for part in parts]), DATETIME).equals(midnight)


NO_DAYS = [
    *[(2024, 0, 0), (0, 0, 0), (2024, 0, 10), (2024, 5, 0), (2024, 13, 1), (2024, 15, 1), (0, 1, 1), (10_000, 1, 1)],
    *[(2023, 2, 29), (2024, 2, 30), (1900, 2, 29), (2100, 2, 29), (2024, 4, 31), (2024, 6, 31), (2024, 9, 31)],
]


@pytest.mark.parametrize("part", NO_DAYS)
def test_an_impossible_date_is_refused(part: tuple[int, int, int]) -> None:
    """With its row and MySQL's text; 2000-02-29 is valid."""
    shown = "{:04}-{:02}-{:02}".format(*part)
    good = (2000, 2, 29)
    readers: list[tuple[Callable[[Values], pa.Array], list[bytes]]] = [
        (lambda values: temporals.dates(values, DATE), [date(*good), date(*part)]),
        (lambda values: temporals.binary_days(values, DATE), [binary(*good), binary(*part)]),
    ]
    if part[1] < 13:  # these have no place for a month of 13
        readers.append((lambda values: temporals.datetimes(values, 0, DATETIME), [datetime(*good), datetime(*part)]))
    readers.append((lambda values: temporals.binary_days(values, DATETIME), [binary(*good), binary(*part, 5, 6)]))
    for read, raw in readers:
        with pytest.raises(NotADay, match=shown) as refused:
            read(Values.of(raw))
        assert refused.value.row == 1


@pytest.mark.parametrize("digits", range(7))
def test_fractions_of_a_second_are_read_exactly(digits: int) -> None:
    """With any number of digits, in row images of DATETIME and TIMESTAMP, and in result sets."""
    chance = random.Random(digits)
    step = 10 ** (6 - digits)
    parts = [(chance.randrange(86_400), chance.randrange(10**digits) * step) for _ in range(300)]
    parts += [(86_399, 999_999 // step * step), (0, 0)]
    start = dt.datetime(2024, 2, 29)
    expected = [start + dt.timedelta(seconds=seconds, microseconds=micros) for seconds, micros in parts]
    found = temporals.datetimes(Values.of([datetime(2024, 2, 29, *part, digits) for part in parts]), digits, DATETIME)
    assert found.to_pylist() == expected
    found = temporals.binary_days(Values.of([binary(2024, 2, 29, *part) for part in parts]), DATETIME)
    assert found.to_pylist() == expected
    seconds = int(start.replace(tzinfo=dt.UTC).timestamp())
    raw = [(seconds + part).to_bytes(4) + fraction(micros, digits) for part, micros in parts]
    assert [
        one.replace(tzinfo=None)
        for one in temporals.timestamps(Values.of(raw), digits, STAMP, fraction_counts=False).to_pylist()
    ] == expected


def test_a_timestamp_is_read_from_1970_to_2106() -> None:
    """Its number is unsigned; 0 is the zero date."""
    raw = [(1).to_bytes(4), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"]
    found = temporals.timestamps(Values.of(raw), 0, STAMP, fraction_counts=False)
    assert found.cast(pa.int64()).to_pylist() == [1_000_000, (2**31 - 1) * 1_000_000, (2**32 - 1) * 1_000_000]
    with pytest.raises(NotADay, match="0000-00-00"):
        temporals.timestamps(Values.of([bytes(4)]), 0, STAMP, fraction_counts=False)


def test_a_timestamp_of_a_fraction_alone_is_a_moment_for_mariadb() -> None:
    """For MySQL it is the zero date, as 0 without a fraction is for both."""
    raw = Values.of([bytes(4) + fraction(400_000, 3)])
    assert temporals.timestamps(raw, 3, STAMP, fraction_counts=True).cast(pa.int64()).to_pylist() == [400_000]
    for values, fraction_counts in ((raw, False), (Values.of([bytes(6)]), True)):
        with pytest.raises(NotADay, match="0000-00-00"):
            temporals.timestamps(values, 3, STAMP, fraction_counts=fraction_counts)


@pytest.mark.parametrize("digits", range(7))
def test_a_time_is_read_as_the_text_of_mysql(digits: int) -> None:
    """Of any length, with a sign, and with the digits of its column."""
    chance = random.Random(digits)
    step = 10 ** (6 - digits)
    most = (838 * 3600 + 59 * 60 + 59) * 1_000_000
    values = [chance.randrange(most) // step * step for _ in range(300)] + [0, step % 1_000_000, most, 36 * 10**10]
    values += [-value for value in values]

    def text(micros: int) -> str:
        seconds, part = divmod(abs(micros), 1_000_000)
        shown = f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return shown + (f".{part:06}"[: digits + 1] if digits else "")

    expected = [text(value) for value in values]
    assert (
        temporals.times(Values.of([time(value, digits) for value in values]), digits, time_of(digits)).to_pylist()
        == expected
    )
    assert (
        temporals.binary_times(Values.of([binary_time(value) for value in values]), time_of(digits)).to_pylist()
        == expected
    )


def test_the_bytes_at_a_null_are_not_read() -> None:
    """NULL stays NULL, whatever the bytes are."""
    readers: list[tuple[Callable[[Values], pa.Array], bytes]] = [
        (lambda values: temporals.dates(values, DATE), date(2024, 1, 1)),
        (lambda values: temporals.binary_days(values, DATE), binary(2024, 1, 1)),
        (lambda values: temporals.datetimes(values, 6, DATETIME), datetime(2024, 1, 1, 5, 6, 6)),
        (lambda values: temporals.timestamps(values, 2, STAMP, fraction_counts=False), bytes([1] * 5)),
        (lambda values: temporals.times(values, 3, time_of(3)), time(-5_000, 3)),
        (lambda values: temporals.binary_times(values, time_of(3)), binary_time(5)),
    ]
    for read, raw in readers:
        values = Values.of([raw, b"", raw])
        values.start[1] = -1
        found = read(values)
        assert [value is None for value in found.to_pylist()] == [False, True, False]
        found.validate(full=True)


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        (lambda values: temporals.datetimes(values, 0, DATETIME), datetime(2024, 1, 1, 24 * 3600)),
        (lambda values: temporals.datetimes(values, 0, DATETIME), datetime(2024, 1, 1)[:4] + b"\x3f"),
        (lambda values: temporals.datetimes(values, 6, DATETIME), datetime(2024, 1, 1) + b"\xff\xff\xff"),
        (
            lambda values: temporals.timestamps(values, 6, STAMP, fraction_counts=False),
            bytes([1] * 4) + b"\xff\xff\xff",
        ),
        (lambda values: temporals.times(values, 0, time_of(0)), time(839 * 3_600_000_000, 0)),
        (lambda values: temporals.times(values, 0, time_of(0)), b"\x80\x00\x3f"),
        (lambda values: temporals.times(values, 2, time_of(2)), time(0, 2)[:3] + b"\x64"),
        (lambda values: temporals.binary_times(values, time_of(0)), b"\0\0\0\0\0\0\x3c\0"),
        (lambda values: temporals.binary_times(values, time_of(0)), b"\0\xff\xff\xff\x7f\0\0\0"),
        *((lambda values: temporals.binary_times(values, time_of(0)), bytes(size)) for size in (1, 7, 9, 13)),
        *(
            (lambda values: temporals.binary_days(values, DATE), bytes([232, 7, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0][:size]))
            for size in (1, 2, 3, 5, 8, 12)
        ),
    ],
)
def test_impossible_times_are_an_error(read: Callable[[Values], pa.Array], raw: bytes) -> None:
    """Hours above 23, minutes and seconds above 59, a million microseconds or more, and impossible lengths."""
    with pytest.raises((NotADay, Damaged)):
        read(Values.of([raw]))
