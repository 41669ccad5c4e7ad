"""Decodes text and bytes of MySQL's columns to Arrow. In rows, each text is in the charset of the text's column.

Text is decoded exactly or refused: a code for which the server has no character raises an error, and never becomes `?`
or U+FFFD. tests/mysql/wire/test_charsets.py compares every code with the server's own conversion.

In the kernels, `data`, `start` and `size` are those of `Values`; `entries` is what `code_table` or `key_table` returns.
"""

import numpy as np
import pyarrow as pa

from lakeingest.mysql.wire.codes import CODE, CODECS, SIZE_AT, code_table, has_one_code_each, key_table
from lakeingest.mysql.wire.collations import UnknownCharset, charset_of
from lakeingest.mysql.wire.compiled import SLACK, big_number, compiled_step, copy, kernel, store64
from lakeingest.mysql.wire.values import Values

__all__ = ["UnknownCharset", "binary", "charset_of", "key_texts", "texts"]

_BYTES_MAX = 2**31 - 1  # of one array, because its offsets have 32 bits
_HEX_BYTES = 20  # bytes of a value in a message

# Charsets that are UTF-8, or a part of it → the least byte that is too great for a text of the charset
_BYTE_ENDS = {"ascii": 0x80, "utf8mb3": 0xF0, "utf8mb4": 0x100}

# Charsets → the codec of Python that reads them as MySQL does, except for two codes of gb18030: MySQL swaps their
# characters, as an older standard does
_PYTHON_CODECS = {
    "gb18030": "gb18030",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
_SWAPPED = {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7}


def texts(values: Values, charset: str) -> pa.Array:
    """The values as strings. Different codes of the same character become the same text.

    Raises ValueError, with the row, for bytes that are not valid in the charset or have a code for which the server has
    no Unicode character; UnknownCharset for a charset that is not known.
    """
    if charset in _BYTE_ENDS:
        return _utf8(values, charset)
    if charset in CODECS:
        return _texts_by_table(values, charset)
    if charset in _PYTHON_CODECS:
        return _texts_by_codec(values, charset)
    raise UnknownCharset(f"a text of the unknown charset {charset}; report it to the lakeingest project")


def key_texts(values: Values, charset: str) -> pa.Array:
    """The values of a key column as strings: values with different bytes become different strings.

    Raises the errors of `texts`. Also raises ValueError for a second code of a character: one that the server can read,
    but does not write.
    """
    strings = texts(values, charset)
    if has_one_code_each(charset):
        return strings
    offsets = np.empty(len(values) + 1, np.int32)
    total = _measure_utf8(values.data, values.start, values.size, key_table(charset), offsets)
    if total < 0:  # −1 minus the first row with a code that is not in the table of keys
        row = -1 - total
        raise ValueError(
            f"row {row} is a key with a second code of a character of {charset}: {_hex(values, row)};"
            " its text equals that of another key; write the character with its usual code, or convert the column to"
            " utf8mb4"
        )
    return strings


def binary(values: Values, length: int = 0) -> pa.Array:
    """The values as bytes. With `length`, each value is padded to this size with zero bytes, which the binlog omits.

    Raises ValueError, with the row, if a value is longer than `length`.
    """
    if length and len(values) and int(values.size.max()) > length:
        row = int(values.size.argmax())
        raise ValueError(f"row {row} has {values.size[row]} bytes, more than {length}")
    array, _ = _copy_to_array(values, pa.binary(), length)
    return array


def _utf8(values: Values, charset: str) -> pa.Array:
    """The texts of a charset in _BYTE_ENDS. Raises ValueError, with the row, for bytes that are no text of it."""
    array, greatest_byte = _copy_to_array(values, pa.string())
    if greatest_byte >= _BYTE_ENDS["ascii"]:  # texts of ASCII alone need no check
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _first_not_text(values, charset) from error
    if greatest_byte >= _BYTE_ENDS[charset]:  # valid UTF-8, but not in a charset that is only a part of it
        raise _first_not_text(values, charset)
    return array


def _first_not_text(values: Values, charset: str) -> ValueError:
    """The error for the first value that is no text of the charset; there must be one."""
    first_row = next(row for row, value in enumerate(values.raw()) if not _is_text(value or b"", charset))
    return _not_text(values, first_row, charset)


def _is_text(value: bytes, charset: str) -> bool:
    """Whether the bytes are a text of a charset in _BYTE_ENDS. `replace` changes bytes that are not valid UTF-8."""
    return max(value, default=0) < _BYTE_ENDS[charset] and value.decode(errors="replace").encode() == value


def _not_text(values: Values, row: int, charset: str) -> ValueError:
    """The error for a row whose value is no text of the charset."""
    return ValueError(f"row {row} is not valid {charset}: {_hex(values, row)}")


def _hex(values: Values, row: int) -> str:
    """The first bytes of the value in a row, for messages."""
    value = list(values.raw())[row] or b""
    return f"0x{value[:_HEX_BYTES].hex()}{'…' if len(value) > _HEX_BYTES else ''}"


def _copy_to_array(values: Values, kind: pa.DataType, length: int = 0) -> tuple[pa.Array, int]:
    """The values as an array of the type, each padded to `length` bytes; and the greatest byte in all of them."""
    offsets = np.empty(len(values) + 1, np.int32)
    target = _empty_bytes(_fill_offsets(values.start, values.size, length, offsets))
    greatest = _copy_values(values.data, values.start, values.size, offsets, target)
    return values.column(kind, offsets, target), greatest


def _empty_bytes(total: int) -> np.ndarray:
    """An array for `total` bytes and SLACK. Raises ValueError if an array of Arrow cannot have so many bytes."""
    if total > _BYTES_MAX:
        raise ValueError(f"{total:,} bytes are too many for a batch")
    return np.empty(total + SLACK, np.uint8)


@kernel
def _fill_offsets(start: np.ndarray, size: np.ndarray, length: int, offsets: np.ndarray) -> int:
    """Fill `offsets` with the begins of values that are padded to `length` bytes. Returns the total number of bytes."""
    total = 0
    offsets[0] = 0
    for i in range(len(start)):
        if start[i] >= 0:  # not NULL
            total += max(size[i], length)
        offsets[i + 1] = total
    return total


@kernel
def _copy_values(data: np.ndarray, start: np.ndarray, size: np.ndarray, offsets: np.ndarray, target: np.ndarray) -> int:
    """Copy each value to its offset in `target`, with zero bytes up to the next offset. Returns the greatest byte."""
    for i in range(len(start)):
        copy(target, offsets[i], data, start[i], size[i])
        for j in range(offsets[i] + size[i], offsets[i + 1]):
            target[j] = 0
    greatest = np.uint8(0)  # of all bytes in `target`
    for j in range(offsets[-1]):
        greatest = max(greatest, target[j])
    return int(greatest)


def _texts_by_table(values: Values, charset: str) -> pa.Array:
    """The texts of a charset in CODECS, by its table of codes. Raises ValueError, with the row, for an invalid code."""
    entries = code_table(charset)
    offsets = np.empty(len(values) + 1, np.int32)
    total = _measure_utf8(values.data, values.start, values.size, entries, offsets)
    if total < 0:  # −1 minus the first invalid row
        raise _not_text(values, -1 - total, charset)
    target = _empty_bytes(total)
    _write_utf8(values.data, values.start, values.size, entries, target)
    return values.column(pa.string(), offsets, target)


@kernel
def _longer_entry_at(data: np.ndarray, at: int, width: int, entries: np.ndarray) -> tuple[int, int]:
    """The entry of the code of `width` bytes at `at`, 0 for an invalid code; and the offset behind the code."""
    return entries[big_number(data, at, width) & CODE], at + width


@compiled_step
def _entry_at(data: np.ndarray, at: int, entries: np.ndarray) -> tuple[int, int]:
    """The entry (`codes.code_table`) of the code at `at`, 0 for an invalid code; and the offset behind the code."""
    entry = entries[data[at]]
    code_end = at + 1
    if not entry >> SIZE_AT:  # the byte begins a longer code, and its entry is the code's size
        entry, code_end = _longer_entry_at(data, at, entry, entries)
    return entry, code_end


@kernel
def _measure_utf8(
    data: np.ndarray, start: np.ndarray, size: np.ndarray, entries: np.ndarray, offsets: np.ndarray
) -> int:
    """Fill `offsets` with the begins of the values' texts in UTF-8.

    Returns the size of all texts, or −1 minus the first row with an invalid code.
    """
    total = 0
    offsets[0] = 0
    for i in range(len(start)):
        at, end = start[i], start[i] + size[i]
        while at < end:
            entry, at = _entry_at(data, at, entries)
            if not entry or at > end:  # an invalid code, or a code that is cut
                return -1 - i
            total += entry >> SIZE_AT
        offsets[i + 1] = total
    return total


@kernel
def _write_utf8(data: np.ndarray, start: np.ndarray, size: np.ndarray, entries: np.ndarray, target: np.ndarray) -> None:
    """Write all values in UTF-8; `_measure_utf8` has proved that they are valid."""
    to = 0
    for i in range(len(start)):
        at, end = start[i], start[i] + size[i]
        while at < end:
            entry, at = _entry_at(data, at, entries)
            store64(target, to, entry)  # also the size in the entry, which the next character overwrites
            to += entry >> SIZE_AT


def _texts_by_codec(values: Values, charset: str) -> pa.Array:
    """The texts of a charset in `_PYTHON_CODECS`, by Python's codec; each distinct value is decoded once.

    Raises ValueError, with the row, for bytes that are not valid.
    """
    distinct = binary(values).dictionary_encode()
    distinct_texts = [_text_by_codec(value, charset) for value in distinct.dictionary.to_pylist()]
    if None in distinct_texts:
        # None stands for an invalid value; the first such value of the dictionary is also the first in the rows
        invalid = distinct_texts.index(None)
        first_row = distinct.indices.index(invalid).as_py()
        raise _not_text(values, first_row, charset)
    return pa.array(distinct_texts, pa.string()).take(distinct.indices)


def _text_by_codec(value: bytes, charset: str) -> str | None:
    """The text of a value in a charset of `_PYTHON_CODECS`; None if it is not valid."""
    try:
        text = value.decode(_PYTHON_CODECS[charset])
    except UnicodeDecodeError:
        return None
    if charset == "ucs2" and len(text) * 2 < len(value):  # a surrogate pair, which ucs2 does not have
        return None
    return text.translate(_SWAPPED) if charset == "gb18030" else text
