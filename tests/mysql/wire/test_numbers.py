import random
import struct
from decimal import Context, Decimal

import pyarrow as pa
import pytest

from lakeingest.mysql.wire import numbers
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.values import Values
from tests.mysql.wire.steps import entry

EXACT = Context(prec=100)
_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def packed(value: Decimal, precision: int, scale: int) -> bytes:
    """A decimal as MySQL's manual describes it: nine digits in four bytes, all bits turned for a negative one."""
    digits = f"{abs(int(value.scaleb(scale, EXACT))):0{precision}}"
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    parts = [whole[:first], *(whole[i : i + 9] for i in range(first, len(whole), 9))]
    parts += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    raw = bytearray(b"".join(int(part).to_bytes(_BYTES[len(part)]) for part in parts if part))
    raw[0] |= 0x80
    return bytes(raw) if value >= 0 else bytes(byte ^ 0xFF for byte in raw)


def samples(precision: int, scale: int) -> list[Decimal]:
    """Ends, ones and any others of so many digits."""
    chance = random.Random(precision * 100 + scale)
    most = 10**precision - 1
    whole = [0, 1, most, most // 2, 10 ** (precision - 1), *(chance.randint(0, most) for _ in range(5))]
    return [Decimal(number).scaleb(-scale, EXACT) for value in whole for number in (value, -value)]


DIGITS = [(precision, scale) for precision in range(1, 66) for scale in range(min(precision, 30) + 1)]


def test_every_decimal_is_exact() -> None:
    """Of all precisions and scales, from row images and from text."""
    for precision, scale in DIGITS:
        values = samples(precision, scale)
        raw = [packed(value, precision, scale) for value in values]
        assert {len(one) for one in raw} == {numbers.decimal_bytes(precision, scale)}
        texts = [f"{value:f}".replace("-0", "-0") for value in values]
        found = numbers.numerals(Values.of(raw), precision, scale).to_pylist()
        assert [Decimal(text) for text in found] == values, (precision, scale)
        assert [text.lstrip("-") for text in found] == [text.lstrip("-") for text in texts]
        if precision <= 38:
            assert numbers.packed_decimals(Values.of(raw), precision, scale).to_pylist() == values
            sent = Values.of([text.encode() for text in texts])
            assert numbers.decimal_texts(sent, precision, scale).to_pylist() == values


@pytest.mark.parametrize("digits", [(9, 0), (38, 10), (5, 5)])
def test_the_bytes_at_a_null_decimal_are_not_read(digits: tuple[int, int]) -> None:
    """NULL stays NULL, whatever the bytes are."""
    precision, scale = digits
    values = Values.of([packed(Decimal(0), precision, scale), b"", packed(Decimal(0), precision, scale)])
    values.start[1] = -1
    assert numbers.packed_decimals(values, precision, scale).null_count == 1
    assert numbers.numerals(values, precision, scale).null_count == 1
    texts = Values.of([f"{Decimal(0):.{scale}f}".encode(), b""])
    texts.start[1] = -1
    assert numbers.decimal_texts(texts, precision, scale).to_pylist() == [Decimal(0), None]


def test_a_packed_decimal_with_a_group_above_nine_digits_is_damage() -> None:
    """In any group."""
    for place in range(3):
        raw = bytearray(packed(Decimal(1), 27, 0))
        raw[4 * place : 4 * place + 4] = (10**9 | 1 << 31).to_bytes(4) if place == 0 else (10**9).to_bytes(4)
        values = Values.of([packed(Decimal(1), 27, 0), bytes(raw)])
        with pytest.raises(Damaged, match="row 1"):
            numbers.packed_decimals(values, 27, 0)
        with pytest.raises(Damaged):
            numbers.numerals(values, 27, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        ".",
        "1",
        "1.",
        "1.2",
        "1.234",
        ".12",
        "-.12",
        "1x12",
        "1.1x",
        "+1.12",
        "1234.12",
        "1.12 ",
        "--1.12",
        "1.-2",
    ],
)
def test_a_decimal_text_with_other_digits_is_damage(text: str) -> None:
    """DECIMAL(5,2) has at most three digits before the point, and exactly two after it."""
    with pytest.raises(Damaged, match="row 1"):
        numbers.decimal_texts(Values.of([b"0.00", text.encode()]), 5, 2)


def test_the_text_of_a_decimal_below_one_begins_with_zero() -> None:
    """Other digits before the point are damage; the leading zeros of ZEROFILL are read."""
    assert numbers.decimal_texts(Values.of([b"-0.12"]), 2, 2).to_pylist() == [Decimal("-0.12")]
    with pytest.raises(Damaged):
        numbers.decimal_texts(Values.of([b"1.12"]), 2, 2)
    assert numbers.decimal_texts(Values.of([b"007.10"]), 5, 2).to_pylist() == [Decimal("7.10")]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
def test_integers_are_exact_in_their_whole_range(width: int) -> None:
    """Signed and unsigned, with NULLs."""
    bits = 8 * width
    for signed in (True, False):
        ends = [-(1 << bits - 1), -1, 0, 1, (1 << bits - 1) - 1] if signed else [0, 1, 1 << bits - 1, (1 << bits) - 1]
        values = Values.of([number.to_bytes(width, "little", signed=signed) for number in [*ends, 0]])
        values.start[-1] = -1
        wanted = pa.decimal128(20, 0) if width == 8 and not signed else pa.int64()
        found = numbers.integers(values, width, wanted, signed=signed)
        assert found.to_pylist() == [*(Decimal(end) if wanted != pa.int64() else end for end in ends), None]
        found.validate(full=True)
    small = numbers.integers(Values.of([b"\xff" * width]), width, pa.int32() if width < 8 else pa.int64(), signed=True)
    assert small.to_pylist() == [-1]


def test_floats_keep_every_bit() -> None:
    """Also signed zeros and the smallest numbers."""
    for width, code, read in ((4, "f", numbers.floats), (8, "d", numbers.doubles)):
        raw = [struct.pack(f"<{code}", number) for number in (0.0, -0.0, 1.1, -1e-40, 3e38)] + [
            b"\1" + bytes(width - 1)
        ]
        found = read(Values.of(raw))
        assert found.buffers()[1].to_pybytes()[: width * len(raw)] == b"".join(raw)
        assert found.null_count == 0


def test_a_year_has_one_byte() -> None:
    """0 is the year 0000; all others count from 1900."""
    values = Values.of([b"\0", b"\1", b"\xff", b"\0"])
    values.start[3] = -1
    assert numbers.years(values).to_pylist() == [0, 1901, 2155, None]


def test_a_bit_is_a_boolean() -> None:
    """More than eight rows, with NULLs."""
    values = Values.of([bytes([i % 3 == 0]) for i in range(20)])
    values.start[5] = -1
    assert numbers.booleans(values).to_pylist() == [None if i == 5 else i % 3 == 0 for i in range(20)]


def test_vectors_are_consecutive_floats() -> None:
    """With NULLs; a size that is not a multiple of four bytes is damage."""
    raw = [struct.pack("<3f", 1.5, -0.0, 3e38), b"", struct.pack("<f", 7)]
    values = Values.of([*raw, b""])
    values.start[3] = -1
    found = numbers.vectors(values)
    assert found.to_pylist() == [list(struct.unpack("<3f", raw[0])), [], [7.0], None]
    found.validate(full=True)
    with pytest.raises(Damaged, match="multiple of 4 bytes"):
        numbers.vectors(Values.of([b"abc"]))


def test_a_number_of_128_bits_is_multiplied_exactly() -> None:
    """Compared with Python's integers."""
    times_plus = entry(numbers.times_plus)
    chance = random.Random(1)
    for _ in range(2000):
        number, power, part = chance.getrandbits(97), 10 ** chance.randint(0, 9), chance.randrange(10**9)
        low, high = number & (1 << 64) - 1, number >> 64
        found = times_plus(low - (low >> 63 << 64), high, power, part)
        assert (found[0] & (1 << 64) - 1) | found[1] << 64 == number * power + part


def test_unsigned_numbers_are_read_from_their_bytes() -> None:
    """Those of eight bytes as signed numbers."""
    assert numbers.unsigned(Values.of([b"\xff\xff", b"\1\0"]), 2).tolist() == [65_535, 1]
    assert numbers.unsigned(Values.of([b"\xff" * 8]), 8).tolist() == [-1]
