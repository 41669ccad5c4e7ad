import random

import numpy as np
import pytest

from lakeingest.mysql.wire import walk
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.framing import Status
from lakeingest.mysql.wire.walk import PACKED, walk_result
from tests.mysql.wire.steps import array, entry
from tests.mysql.wire.stream import EOF, packets

packed, walk_row = entry(walk.packed), entry(walk.walk_row)


def length(size: int, width: int) -> bytes:
    """What stands before a value of so many bytes."""
    if width >= 0:
        return b""
    if width != PACKED:
        return size.to_bytes(-width, "little")
    if size < 251:
        return bytes([size])
    first, more = next((first, more) for first, more in ((0xFC, 2), (0xFD, 3), (0xFE, 8)) if size < 1 << 8 * more)
    return bytes([first]) + size.to_bytes(more, "little")


def row(values: list[bytes | None], widths: list[int], first_bit: int) -> bytes:
    """A row of these values."""
    bits = sum(1 << first_bit + i for i, value in enumerate(values) if value is None)
    nulls = bits.to_bytes((len(values) + first_bit + 7) // 8, "little")
    return nulls + b"".join(
        length(len(value), width) + value for value, width in zip(values, widths, strict=True) if value is not None
    )


def any_row(chance: random.Random, columns: int) -> tuple[list[bytes | None], list[int]]:
    """Values of columns of any width, a part of them NULL."""
    widths = [chance.choice([0, 1, 4, 8, 40, -1, -2, -3, -4, PACKED]) for _ in range(columns)]
    values = [
        None
        if chance.random() < 0.3
        else chance.randbytes(width if width >= 0 else chance.choice([0, 1, 250] if width == -1 else [0, 251, 70_000]))
        for width in widths
    ]
    return [
        value if width != -2 or value is None else value[:60_000] for value, width in zip(values, widths, strict=True)
    ], widths


@pytest.mark.parametrize("first_bit", [0, 2])
@pytest.mark.parametrize("columns", [1, 5, 6, 7, 8, 9, 14, 15, 100])
def test_the_values_of_a_row_are_found(columns: int, first_bit: int) -> None:
    """Each value at its offset, NULL as −1; a row that is cut anywhere is not accepted."""
    for seed in range(5):
        values, widths = any_row(random.Random(seed), columns)
        raw = row(values, widths, first_bit)
        start, size = np.zeros((columns, 2), np.int32), np.zeros((columns, 2), np.int32)
        data = array(b"before" + raw)
        assert walk_row(data, 6, 6 + len(raw), first_bit, columns, -1, np.array(widths), start, size, 1) == 6 + len(raw)
        found = [
            None if at < 0 else data[at : at + count].tobytes()
            for at, count in zip(start[:, 1], size[:, 1], strict=True)
        ]
        assert found == values
        for cut in {1, 2, 3, 9, len(raw)} & set(range(len(raw) + 1)):
            assert walk_row(data, 6, 6 + len(raw) - cut, first_bit, columns, -1, np.array(widths), start, size, 0) == -1


@pytest.mark.parametrize("columns", [1, 8, 9, 40])
def test_columns_that_a_row_lacks_are_skipped(columns: int) -> None:
    """They have no bit in the bitmap of NULLs, and no value."""
    for seed in range(20):
        chance = random.Random(seed)
        values, widths = any_row(chance, columns)
        present = [chance.random() < 0.6 for _ in range(columns)]
        answer = sum(1 << place for place, is_there in enumerate(present) if is_there).to_bytes(
            (columns + 7) // 8, "little"
        )
        there = [place for place in range(columns) if present[place]]
        raw = row([values[place] for place in there], [widths[place] for place in there], 0)
        start, size = np.zeros((columns, 1), np.int32), np.zeros((columns, 1), np.int32)
        data = array(answer + raw)
        end = len(answer) + len(raw)
        assert walk_row(data, len(answer), end, 0, len(there), 0, np.array(widths), start, size, 0) == end
        for place in range(columns):
            at, count = start[place, 0], size[place, 0]
            wanted = values[place] if present[place] else None
            assert (None if at < 0 else data[at : at + count].tobytes()) == wanted


@pytest.mark.parametrize("number", [0, 1, 250, 251, 65_535, 65_536, (1 << 24) - 1, 1 << 24, (1 << 63) - 1])
def test_length_encoded_numbers_are_read_with_their_size(number: int) -> None:
    """From one to nine bytes."""
    raw = length(number, PACKED)
    assert packed(array(raw), 0) == (len(raw), number)


@pytest.mark.parametrize("raw", [b"\xfb", b"\xff", b"\xfe" + b"\xff" * 8])
def test_an_invalid_length_encoded_number_is_negative(raw: bytes) -> None:
    """The byte of a NULL, an unused byte, and a number of 64 bits."""
    assert packed(array(raw), 0)[1] < 0


def test_the_rows_of_a_result_are_found_until_the_arrays_are_full() -> None:
    """Then from there on, up to the packet that ends them."""
    widths = np.array([4, PACKED])
    rows = [b"\0" + row([i.to_bytes(4, "little"), bytes(i)], [4, PACKED], 2) for i in range(5)]
    data = array(packets([*rows, EOF], first=255))
    start, size = np.empty((2, 3), np.int32), np.empty((2, 3), np.int32)
    status, at, sequence, found = walk_result(data, 0, len(data) - SLACK, 255, widths, start, size, 0)
    assert (status, sequence, found, size[1].tolist()) == (Status.FULL, 258, 3, [0, 1, 2])
    status, at, sequence, found = walk_result(data, at, len(data) - SLACK, sequence, widths, start, size, 1)
    assert (status, sequence, found, size[1].tolist()) == (Status.FULL, 260, 3, [0, 3, 4])
    assert walk_result(data, at, len(data) - SLACK, sequence, widths, start, size, 0) == (Status.EOF, at, 260, 0)


@pytest.mark.parametrize("more", [b"\0", b"\0" * 9])
def test_a_packet_with_bytes_after_its_row_is_malformed(more: bytes) -> None:
    """A packet has exactly a row."""
    data = array(packets([b"\0" + row([b"abcd"], [4], 2) + more]))
    start, size = np.empty((1, 3), np.int32), np.empty((1, 3), np.int32)
    assert walk_result(data, 0, len(data) - SLACK, 1, np.array([4]), start, size, 0)[0] == Status.MALFORMED
