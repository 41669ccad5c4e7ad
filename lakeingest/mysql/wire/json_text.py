"""Writes MySQL's binary JSON as MySQL's own text: byte for byte the result of a SELECT.

Sources: MySQL's `json_binary.h` and `json_binary.cc` (the binary form), `json_dom.cc` (`wrapper_to_string`). If NULL is
forced into a NOT NULL column (INSERT IGNORE, a sql_mode that is not strict), the server stores a value of 0 bytes. The
server reads such a value as the literal null (`Field_json::val_json`), and so does this module. SQL NULL is a bit of
the row, not a value.

A kernel walks the values and writes their text. It defers the scalars that it does not write: opaque values, and
doubles that are not short decimals. Python inserts the texts of deferred scalars (`json_scalar`) into the kernel's text
afterwards.

Before a kernel reads bytes, it proves that they lie within their container, and the container within its parent. In
bytes from the server no two values share bytes. So the sizes of all headers, keys and scalars add up to at most twice
the size of the whole: a scalar that lies in a header is counted twice. A greater sum is damage.
This check bounds time and memory, whatever the offsets are.

In the steps, `at` and `end` are offsets in `data`: of the next byte to read, and of the end of the bytes that may be
read. `to` is the offset in `text` at which the next byte is written.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.wire.compiled import compiled_step, int64, kernel, load64, number
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.json_scalar import (
    DAMAGED,
    DEFERRED,
    DEFERRED_FULL,
    ROOM,
    TEXT_FULL,
    double_text,
    opaque_text,
    write_integer,
    write_literal,
    write_short_decimal,
    write_string,
)
from lakeingest.mysql.wire.values import Values

# Types of the binary form. Odd numbers are the large containers and the signed integers.
_LARGE_OBJECT, _LARGE_ARRAY = 1, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(4, 13)
_OPAQUE = 15
_NOTHING = 256  # a value of 0 bytes, which has no type
# The size of a scalar, by type; 0: the size precedes the content; −1: the type is not a scalar
_SIZES = np.array([-1, -1, -1, -1, 1, 2, 2, 4, 4, 8, 8, 8, 0, -1, -1, 0])
_SMALL, _LARGE = 2, 4  # bytes of a count, a size or an offset in a small or large container
_KEY_SIZE = 2  # bytes of the number that is a key's size
_PACKED_BITS = 35  # at most, of the size of a string or an opaque value; each byte has seven of them
_PACKED_MORE = 0x80  # the highest bit of such a byte: another byte follows
_DEPTH_MAX = 100  # of containers within each other, as in the server
_VAR_STRING = 253  # a type of MySQL's columns; its opaque values are printed as strings

# Columns of an open container: its begin and end; the bytes of a number in its header; the offset of the entry of its
# next key (0 in an array), and of its next value; the end of its entries.
_BASE, _END, _WIDTH, _KEY, _VALUE, _ENTRIES_END = range(6)

# Columns of a deferred scalar: its row; the offset in the text at which its text is missing; the begin and the size of
# its content; the type of the opaque value, or _IS_DOUBLE.
_ROW, _TEXT_AT, _START, _SIZE, _TYPE = range(5)
_IS_DOUBLE = -1

_DONE = 0
_TEXT_MAX = 2**31 - 1  # bytes in a column of pa.string()

_COMMA, _COLON, _SPACE = b",: "
_OBJECT_OPENS, _OBJECT_CLOSES, _ARRAY_OPENS, _ARRAY_CLOSES = b"{}[]"


class _Output(NamedTuple):
    """Arrays that the kernel writes to."""

    text: np.ndarray  # all texts, one after another
    deferred: np.ndarray  # the deferred scalars
    frames: np.ndarray  # the open containers, the outermost first


def json_texts(values: Values) -> pa.Array:
    """The text of each value, of type string.

    Raises Damaged, with the row's number, for bytes that the server does not write, and UnsupportedValue if the texts
    have more than 2 GiB.
    """
    text, offsets, deferred = _write_texts(values)  # without the texts of the deferred scalars
    if len(deferred):
        text, offsets = _insert_deferred(values.data, text, offsets, deferred)
    texts = values.column(pa.string(), offsets, text)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise Damaged(f"row {_first_not_utf8(texts)}: JSON that is not UTF-8") from None
    return texts


def _write_texts(values: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write all texts into one array, without the texts of deferred scalars. When an array is full, it is doubled.

    Returns this array; the offset of each text and of the end of the last one; and the deferred scalars.
    """
    size = min(2 * int(values.size.sum(dtype=np.int64)) + ROOM, _TEXT_MAX)  # a guess; so is the length of `deferred`
    text, deferred = np.empty(size, np.uint8), np.empty((len(values) + 1, 5), np.int64)
    frames = np.empty((_DEPTH_MAX, 6), np.int64)
    offsets = np.zeros(len(values) + 1, np.int32)
    row = deferred_count = 0
    while True:
        output = _Output(text, deferred, frames)
        status, row, deferred_count = _write_rows(
            values.data, values.start, values.size, row, output, offsets, deferred_count
        )
        if status == _DONE:
            return text[: offsets[-1]], offsets, deferred[:deferred_count]
        if status == DAMAGED:
            raise Damaged(f"row {row}: bytes that are not MySQL's binary JSON")
        # an array is full: go on with the same row, whose text is written from its beginning again
        if status == DEFERRED_FULL:
            deferred = _grown(deferred, deferred_count)
        elif len(text) < _TEXT_MAX:
            text = _grown(text, offsets[row])
        else:
            raise _too_large()


def _grown(array: np.ndarray, used: int) -> np.ndarray:
    """An array twice as long, up to _TEXT_MAX, that begins with the first `used` entries of `array`."""
    grown = np.empty((min(2 * len(array), _TEXT_MAX), *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


def _insert_deferred(
    data: np.ndarray, text: np.ndarray, offsets: np.ndarray, deferred: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Insert the texts of the deferred scalars into the kernel's `text`.

    Returns the complete texts in one array; and the offset of each text and of the end of the last one.
    """
    pieces: list[memoryview | bytes] = []  # parts of the kernel's text and the texts of scalars, in turn
    scalar_sizes = [0]  # 0 for no scalars, then the size of each deferred scalar's text, in order
    whole = memoryview(text)  # type: ignore[arg-type]
    at = 0  # the end of the kernel's text in `pieces`
    for row, text_at, start, size, kind in deferred.tolist():
        content = data[start : start + size].tobytes()
        try:
            scalar = double_text(content) if kind == _IS_DOUBLE else opaque_text(kind, content)
        except Damaged as error:
            raise Damaged(f"row {row}: {error}") from None
        pieces += whole[at:text_at], scalar.encode()
        scalar_sizes.append(len(scalar))  # the text is ASCII, so its letters are its bytes
        at = text_at
    pieces.append(whole[at:])
    # an offset moves by the sizes of all scalars in earlier rows
    earlier_counts = np.searchsorted(deferred[:, _ROW], np.arange(len(offsets)))  # of these scalars, by offset
    sizes_of_first = np.cumsum(scalar_sizes)  # at n: the size of the first n scalars together
    shifts = sizes_of_first[earlier_counts]
    if offsets[-1] + shifts[-1] > _TEXT_MAX:
        raise _too_large()
    return np.frombuffer(b"".join(pieces), np.uint8), (offsets + shifts).astype(np.int32)


def _too_large() -> UnsupportedValue:
    return UnsupportedValue("the JSON texts of a batch have more than 2 GiB; exclude the table with tables.exclude")


def _first_not_utf8(texts: pa.Array) -> int:
    """The first row whose text is not UTF-8."""
    for row, text in enumerate(texts.cast(pa.binary())):
        try:
            (text.as_py() or b"").decode()
        except UnicodeDecodeError:
            return row
    raise AssertionError("every text is UTF-8")


@kernel
def _write_rows(
    data: np.ndarray, start: np.ndarray, size: np.ndarray, row: int, output: _Output, offsets: np.ndarray, count: int
) -> tuple[int, int, int]:
    """Write the texts of the rows from `row` on; `count` is the number of scalars that were deferred in earlier rows.

    Returns _DONE, or a negative status and the row that is not written; and the number of scalars that were deferred in
    the rows before it. Fills `offsets` with the end of each text that was written.
    """
    to = int64(offsets[row])
    while row < len(start):
        if start[row] >= 0:  # NULL has no text
            to, new_count = _write_value(data, int64(start[row]), int64(start[row] + size[row]), output, to, count, row)
            if to < 0:
                return to, row, count
            count = new_count
        row += 1
        offsets[row] = to
    return _DONE, row, count


@compiled_step
def _write_value(
    data: np.ndarray, at: int, end: int, output: _Output, to: int, count: int, row: int
) -> tuple[int, int]:
    """Write the text of a row's value, from `to` on.

    Returns the end of the text, or a negative status; and the number of deferred scalars, `count` included.
    """
    text, deferred, frames = output
    budget = 2 * (end - at)  # bytes that all headers, keys and scalars may have in sum
    kind = data[at] if at < end else _NOTHING  # the type of the next container or scalar, whose content is at `at`
    at += 1
    depth = int64(0)  # the number of open containers
    while True:  # for each container and scalar, in the order of their texts
        if to > len(text) - ROOM:
            return TEXT_FULL, count
        if kind <= _LARGE_ARRAY:
            text_end, used = _open_container(data, kind, at, end, text, to, frames, depth)
            depth += 1
        else:
            text_end, used = _write_scalar(data, kind, at, end, text, to)
        if text_end == DEFERRED:
            text_end, count = _defer(data, kind, at, end, to, deferred, count, row)
        to = text_end
        budget -= used
        if to < 0 or budget < 0:
            return min(to, DAMAGED), count  # `to` if it is a status: DAMAGED is the greatest one
        to, depth = _close_containers(text, to, frames, depth)
        if depth == 0:  # the row's value is complete
            return to, count
        to, used, kind, at, end = _next_value(data, text, to, frames, depth - 1)
        budget -= used
        if to < 0:
            return to, count


@compiled_step
def _open_container(
    data: np.ndarray, kind: int, at: int, end: int, text: np.ndarray, to: int, frames: np.ndarray, level: int
) -> tuple[int, int]:
    """Write a container's opening bracket, and add the container to `frames` at `level`.

    Returns the end of the text, or DAMAGED; and the size of the container's header.
    """
    # the header: the count of values, the container's size, the entries of the keys (if any), the entries of the values
    width = _LARGE if kind & 1 else _SMALL
    if level == _DEPTH_MAX or end - at < 2 * width:
        return DAMAGED, 0
    count = number(data, at, width)
    size = number(data, at + width, width)
    is_object = kind <= _LARGE_OBJECT
    keys = count * (width + _KEY_SIZE) if is_object else 0  # bytes of the entries of the keys
    header = 2 * width + keys + count * (1 + width)
    if size > end - at or header > size:
        return DAMAGED, 0
    frames[level, _BASE], frames[level, _END], frames[level, _WIDTH] = at, at + size, width
    frames[level, _KEY] = at + 2 * width if is_object else 0
    frames[level, _VALUE] = at + 2 * width + keys
    frames[level, _ENTRIES_END] = at + header
    text[to] = _OBJECT_OPENS if is_object else _ARRAY_OPENS
    return to + 1, header


@compiled_step
def _close_containers(text: np.ndarray, to: int, frames: np.ndarray, depth: int) -> tuple[int, int]:
    """Write the closing brackets of the innermost containers, as far as they have no more values.

    Returns the end of the text, and the number of containers that stay open.
    """
    while depth > 0 and frames[depth - 1, _VALUE] == frames[depth - 1, _ENTRIES_END]:
        depth -= 1
        text[to] = _OBJECT_CLOSES if frames[depth, _KEY] else _ARRAY_CLOSES  # 0: it is an array
        to += 1
    return to, depth


@compiled_step
def _next_value(
    data: np.ndarray, text: np.ndarray, to: int, frames: np.ndarray, level: int
) -> tuple[int, int, int, int, int]:
    """Write the comma and the key before the next value of the container at `level`, and find this value.

    Returns the end of the text, or a negative status; the size of the value's key; the value's type; its begin; and the
    end that the value must not exceed.
    """
    # `key` and `value` are the offsets of the next entries; an entry has the offset from `base` at which its key or
    # value is, or a small scalar itself
    base, end, width = frames[level, _BASE], frames[level, _END], frames[level, _WIDTH]
    key, value, entries_end = frames[level, _KEY], frames[level, _VALUE], frames[level, _ENTRIES_END]
    if (key or value) > base + 2 * width:  # not the first entry, which follows count and size
        text[to], text[to + 1] = _COMMA, _SPACE
        to += 2
    size = 0
    if key:
        frames[level, _KEY] = key + width + _KEY_SIZE
        at, size = base + number(data, key, width), number(data, key + width, _KEY_SIZE)
        if at < entries_end or size > end - at:  # keys and values lie behind all entries
            return DAMAGED, 0, 0, 0, 0
        to = write_string(data, at, size, text, to)
        if to < 0:
            return to, 0, 0, 0, 0
        text[to], text[to + 1] = _COLON, _SPACE
        to += 2
    frames[level, _VALUE] = value + 1 + width
    kind = data[value]
    if _LITERAL <= kind <= _UINT16 or (width == _LARGE and _INT32 <= kind <= _UINT32):  # the entry has the scalar
        return to, size, kind, value + 1, value + 1 + width
    at = base + number(data, value + 1, width)
    if at < entries_end:
        return DAMAGED, 0, 0, 0, 0
    return to, size, kind, at, end


@compiled_step
def _write_scalar(data: np.ndarray, kind: int, at: int, end: int, text: np.ndarray, to: int) -> tuple[int, int]:
    """Write a scalar. Returns the end of the text, or a negative status; and the number of bytes that the scalar has.

    A scalar that Python has to write is not written: the status is DEFERRED.
    """
    if kind == _NOTHING:  # it is read as the literal null
        return write_literal(int64(0), text, to), 0
    start, size = _find_content(data, kind, at, end)
    if size < 0:
        return DAMAGED, 0
    if kind == _STRING or (kind == _OPAQUE and data[at] == _VAR_STRING):
        to = write_string(data, start, size, text, to)
    elif kind == _LITERAL:
        to = write_literal(int64(data[start]), text, to)
    elif kind == _DOUBLE:
        to = write_short_decimal(load64(data, start), text, to)
    elif kind == _OPAQUE:
        to = DEFERRED
    else:
        to = write_integer(kind, number(data, start, size), size, text, to)
    return to, start + size - at


@compiled_step
def _defer(
    data: np.ndarray, kind: int, at: int, end: int, to: int, deferred: np.ndarray, count: int, row: int
) -> tuple[int, int]:
    """Add a scalar to `deferred`. Returns the end of the text, or DEFERRED_FULL; and the number of deferred scalars."""
    if count == len(deferred):
        return DEFERRED_FULL, count
    start, size = _find_content(data, kind, at, end)
    deferred[count, _ROW], deferred[count, _TEXT_AT] = row, to
    deferred[count, _START], deferred[count, _SIZE] = start, size
    deferred[count, _TYPE] = _IS_DOUBLE if kind == _DOUBLE else data[at]  # an opaque value begins with its type
    return to, count + 1


@compiled_step
def _find_content(data: np.ndarray, kind: int, at: int, end: int) -> tuple[int, int]:
    """The begin and the size of a scalar's content; a negative size if the content is cut, or `kind` is no scalar."""
    size = _SIZES[kind] if kind <= _OPAQUE else -1
    if size == 0:  # the size precedes the content; before it, an opaque value has the type of a MySQL column
        at, size = _read_size(data, at + 1 if kind == _OPAQUE else at, end)
    return at, (size if size <= end - at else -1)


@compiled_step
def _read_size(data: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Read the size of a string or an opaque value. Returns the offset behind it, and the size (−1: invalid)."""
    size = 0
    for shift in range(0, _PACKED_BITS, 7):
        if at >= end:
            return at, -1
        byte = data[at]
        at += 1
        size |= (byte & ~_PACKED_MORE) << shift
        if byte < _PACKED_MORE:
            return at, size
    return at, -1
