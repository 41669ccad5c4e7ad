"""The walk: finds each value of each row, and proves that the value lies within its packet or event.

Rows of a result set in the binary protocol and row images of the binlog have the same form: a bitmap of NULLs, then the
values that are not NULL, column by column. The `width` of a column says how many bytes its values take; `encodings` has
the widths. The walk does not interpret the bytes.
"""

import numpy as np

from lakeingest.mysql.wire.compiled import int64, kernel, number, step
from lakeingest.mysql.wire.framing import Status, next_packet, payload_kind

# A width of 0 or more is the number of bytes of each value. A width of −1 to −4 says that a length of 1 to 4 bytes
# precedes each value. The width PACKED says that a length-encoded number of 1 to 9 bytes precedes each value.
PACKED = -9

_FULL, _MORE, _MALFORMED = int(Status.FULL), int(Status.MORE), int(Status.MALFORMED)
_TWO, _THREE, _EIGHT, _INVALID = 0xFC, 0xFD, 0xFE, 0xFF  # the first byte of a packed length
_NULL = 0xFB  # a NULL of the text protocol; the numbers below it are packed lengths of one byte
_RESERVED_BITS = 2  # unused bits at the start of the bitmap of NULLs in a result set's row


@step
def walk_row(
    data: np.ndarray,
    at: int,
    end: int,
    first_bit: int,
    columns: int,
    present: int,
    widths: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    row: int,
) -> int:
    """Find the values of a row, which begins at `at` with its bitmap of NULLs. Returns the row's end, −1 if it is cut.

    `first_bit` is the first column's bit in this bitmap. The row has `columns` columns. They are those whose bits are
    set in another bitmap, at `present`; if `present` is −1, they are all columns of the table.

    Fills column `row` of `start` and `size` (table columns × rows) with the offset of each value and its number of
    bytes: −1 and 0 for NULL, and for a column that the row does not have.
    """
    nulls = at
    at += (columns + first_bit + 7) >> 3
    bit = first_bit
    for column in range(len(widths)):
        if at > end:  # the bitmap of NULLs is cut
            return -1
        # a column that the row does not have counts as NULL; it has no bit in the bitmap of NULLs
        is_null = present >= 0 and not (data[present + (column >> 3)] >> (column & 7) & 1)
        if not is_null:
            is_null = (data[nulls + (bit >> 3)] >> (bit & 7) & 1) == 1
            bit += 1
        if is_null:
            start[column, row] = -1
            size[column, row] = 0
            continue
        width = widths[column]
        if width < 0:  # a length precedes the value; below, `prefix` becomes the length's size, `width` the value's
            prefix = -width
            if width == PACKED:
                prefix, width = packed(data, at)
            else:
                width = number(data, at, prefix)
            at += prefix
        if width < 0 or width > end - at:  # `packed` found no valid length, or the value is cut
            return -1
        start[column, row] = at
        size[column, row] = width
        at += width
    return at if at <= end else -1


@step
def packed(data: np.ndarray, at: int) -> tuple[int, int]:
    """Read a length-encoded number. Returns its size, 1 to 9 bytes; and the number itself, −1 for an invalid one."""
    first = int64(data[at])
    if first < _NULL:
        return 1, first
    if first == _TWO:
        return 3, number(data, at + 1, 2)
    if first == _THREE:
        return 4, number(data, at + 1, 3)
    if first == _EIGHT:
        return 9, number(data, at + 1, 8)
    return 1, int64(-1)


@step
def _walk_result_row(
    data: np.ndarray, at: int, end: int, widths: np.ndarray, start: np.ndarray, size: np.ndarray, row: int
) -> bool:
    """Find the values of a row of a result set. False if the row does not end at `end`."""
    return walk_row(data, at, end, _RESERVED_BITS, len(widths), -1, widths, start, size, row) == end


@kernel
def walk_result(
    data: np.ndarray,
    at: int,
    end: int,
    sequence: int,
    widths: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    row: int,
) -> tuple[int, int, int, int]:
    """Find the values of the rows of a result set, as many as fit into the arrays. A row is a packet's payload.

    The packet at `at` has the number `sequence`, and its row gets the index `row` in the arrays. Returns a `Status`,
    and for the packet after the last row that was found: its begin, its number, and the index that its row will get.
    """
    while row < start.shape[1]:
        status, begin, stop, next_at, packets = next_packet(data, at, end, sequence)
        if status == _FULL:  # the payload is complete: it is a row, or ends the result set
            status = payload_kind(data, begin, stop)
        # + 1 because each row's payload begins with a zero byte
        if status == _FULL and not _walk_result_row(data, begin + 1, stop, widths, start, size, row):
            status = _MALFORMED
        if status != _FULL:
            return status, at, sequence, row
        at, sequence = next_at, sequence + packets
        row += 1
    return _FULL, at, sequence, row
