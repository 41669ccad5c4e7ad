"""Text and bytes of MySQL's columns as Arrow: binlog rows hold text in the column's own charset.

Exact or refused: a code for which the server itself has no character raises, it never becomes `?` or U+FFFD. What
stands here is held equal to the server's own conversion, code by code (tests/mysql/wire/test_charsets.py).
"""

import numpy as np
import pyarrow as pa

from lakeingest.mysql.wire.codes import CODE, CODECS, SIZE_AT, has_one_code_each, key_table, table
from lakeingest.mysql.wire.collations import UnknownCharset, charset_of
from lakeingest.mysql.wire.compiled import SLACK, big_number, copy, kernel, store64
from lakeingest.mysql.wire.values import Values

__all__ = ["UnknownCharset", "binary", "charset_of", "key_texts", "texts"]

_BYTES_MAX = 2**31 - 1  # of one array, whose offsets are 32 bits
_SHOWN = 20  # bytes of a value in a message

# What is UTF-8 already, and the least byte that it cannot have
_BYTE_ENDS = {"ascii": 0x80, "utf8mb3": 0xF0, "utf8mb4": 0x100}

# What Python's codec reads as MySQL does, but for the two codes of gb18030 that later standards swapped
_WIDE = {"gb18030": "gb18030", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
_SWAPPED = {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7}


def texts(values: Values, charset: str) -> pa.Array:
    """The values as strings. A character that has several codes in the charset is one character, whichever it was.

    ValueError names the row whose bytes are no text in the charset, or whose characters the server has no Unicode for;
    UnknownCharset for a charset that is none of MySQL's.
    """
    if charset in _BYTE_ENDS:
        return _utf8(values, charset)
    if charset in CODECS:
        return _decoded(values, charset)
    if charset in _WIDE:
        return _wide(values, charset)
    raise UnknownCharset(f"a text of unknown charset {charset}; name it in a report to the lakeingest project")


def key_texts(values: Values, charset: str) -> pa.Array:
    """As `texts`, for a column of a key: two values of different bytes are different strings.

    ValueError also for a character in another code than the one that the server writes for it.
    """
    found = texts(values, charset)
    if has_one_code_each(charset):
        return found
    offsets = np.empty(len(values) + 1, np.int32)
    total = _measure(values.data, values.start, values.size, key_table(charset), offsets)
    if total < 0:
        raise ValueError(
            f"row {-1 - total} is a key with a second code of a character of {charset}: {_shown(values, -1 - total)};"
            " as text it is the same as another key; write the character in its usual code, convert the column to"
            " utf8mb4, or leave the table out with tables.exclude"
        )
    return found


def binary(values: Values, length: int = 0) -> pa.Array:
    """The values as bytes; with `length`, those of a BINARY(n), each with the zero bytes that the binlog leaves out.

    ValueError names the row whose value is longer.
    """
    if length and len(values) and int(values.size.max()) > length:
        row = int(values.size.argmax())
        raise ValueError(f"row {row} has {values.size[row]} bytes, not at most {length}")
    array, _ = _copied(values, pa.binary(), length)
    return array


def _utf8(values: Values, charset: str) -> pa.Array:
    array, greatest = _copied(values, pa.string())
    if greatest >= _BYTE_ENDS["ascii"]:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _first_not_text(values, charset) from error
    if greatest >= _BYTE_ENDS[charset]:
        raise _first_not_text(values, charset)
    return array


def _first_not_text(values: Values, charset: str) -> ValueError:
    raw = enumerate(values.raw())
    return _not_text(values, next(row for row, value in raw if not _is_text(value or b"", charset)), charset)


def _is_text(value: bytes, charset: str) -> bool:
    return max(value, default=0) < _BYTE_ENDS[charset] and value.decode(errors="replace").encode() == value


def _not_text(values: Values, row: int, charset: str) -> ValueError:
    return ValueError(f"row {row} is no text in {charset}: {_shown(values, row)}")


def _shown(values: Values, row: int) -> str:
    value = list(values.raw())[row] or b""
    return f"0x{value[:_SHOWN].hex()}{'…' if len(value) > _SHOWN else ''}"


def _copied(values: Values, kind: pa.DataType, length: int = 0) -> tuple[pa.Array, int]:
    """The values as an array of the kind, and the greatest of all their bytes."""
    offsets = np.empty(len(values) + 1, np.int32)
    target = _room(_fill_offsets(values.start, values.size, length, offsets))
    greatest = _fill(values.data, values.start, values.size, offsets, target)
    return values.column(kind, offsets, target), greatest


def _room(total: int) -> np.ndarray:
    if total > _BYTES_MAX:
        raise ValueError(f"{total:,} bytes are too many for one batch")
    return np.empty(total + SLACK, np.uint8)


@kernel
def _fill_offsets(start: np.ndarray, size: np.ndarray, length: int, offsets: np.ndarray) -> int:
    """Fill in where each value begins when each has `length` bytes or more; the number of all bytes."""
    total = 0
    offsets[0] = 0
    for i in range(len(start)):
        if start[i] >= 0:
            total += max(size[i], length)
        offsets[i + 1] = total
    return total


@kernel
def _fill(data: np.ndarray, start: np.ndarray, size: np.ndarray, offsets: np.ndarray, target: np.ndarray) -> int:
    """Copy each value to its place, zero bytes after it; the greatest byte."""
    for i in range(len(start)):
        copy(target, offsets[i], data, start[i], size[i])
        for j in range(offsets[i] + size[i], offsets[i + 1]):
            target[j] = 0
    greatest = np.uint8(0)
    for j in range(offsets[-1]):
        greatest = max(greatest, target[j])
    return int(greatest)


def _decoded(values: Values, charset: str) -> pa.Array:
    entries = table(charset)
    offsets = np.empty(len(values) + 1, np.int32)
    total = _measure(values.data, values.start, values.size, entries, offsets)
    if total < 0:
        raise _not_text(values, -1 - total, charset)
    target = _room(total)
    _decode(values.data, values.start, values.size, entries, target)
    return values.column(pa.string(), offsets, target)


@kernel
def _measure(data: np.ndarray, start: np.ndarray, size: np.ndarray, entries: np.ndarray, offsets: np.ndarray) -> int:
    """Fill in where each value begins in UTF-8; the number of all its bytes, or −1 − the first row that is no text."""
    total = 0
    offsets[0] = 0
    for i in range(len(start)):
        at, end = start[i], start[i] + size[i]
        while at < end:
            entry = entries[data[at]]
            at += 1
            if not entry >> SIZE_AT:
                entry, at = _longer(data, at - 1, entry, entries)
            if not entry or at > end:
                return -1 - i
            total += entry >> SIZE_AT
        offsets[i + 1] = total
    return total


@kernel
def _decode(data: np.ndarray, start: np.ndarray, size: np.ndarray, entries: np.ndarray, target: np.ndarray) -> None:
    """Write each value, which `_measure` has proved to be text, in UTF-8."""
    to = 0
    for i in range(len(start)):
        at, end = start[i], start[i] + size[i]
        while at < end:
            entry = entries[data[at]]
            at += 1
            if not entry >> SIZE_AT:
                entry, at = _longer(data, at - 1, entry, entries)
            store64(target, to, entry)  # and its size, on which the next one is written
            to += entry >> SIZE_AT


@kernel
def _longer(data: np.ndarray, at: int, width: int, entries: np.ndarray) -> tuple[int, int]:
    """The entry of the code of `width` bytes at `at`, 0 without one, and where the next code begins."""
    return entries[big_number(data, at, width) & CODE], at + width


def _wide(values: Values, charset: str) -> pa.Array:
    distinct = binary(values).dictionary_encode()
    texts_ = [_wide_text(value, charset) for value in distinct.dictionary.to_pylist()]
    if None in texts_:
        raise _not_text(values, distinct.indices.index(texts_.index(None)).as_py(), charset)
    return pa.array(texts_, pa.string()).take(distinct.indices)


def _wide_text(value: bytes, charset: str) -> str | None:
    try:
        text = value.decode(_WIDE[charset])
    except UnicodeDecodeError:
        return None
    if charset == "ucs2" and len(text) * 2 < len(value):  # it has no pairs of surrogates
        return None
    return text.translate(_SWAPPED) if charset == "gb18030" else text
