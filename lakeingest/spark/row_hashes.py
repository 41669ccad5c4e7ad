"""Hashes of rows in Arrow batches: the first 128 bits of SHA-256 of a row's canonical text (`core.proofs.checksum`).

Spark reads the rows, and its Python workers compute the hashes. Arrow makes the texts of a whole column at once, which
takes a third of the CPU time of Spark's own expressions with a Python function for each DOUBLE.
"""

import hashlib
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.proofs.checksum import NEWLINE, ends_with_newline
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.rows import arrow_type

# The greatest length of the text of a DOUBLE without an exponent, on the source: first of a column's value, second of
# an expression's value. A longer text gets an exponent
Widths = tuple[int, int]

LEFT, RIGHT = "_lakeingest_left", "_lakeingest_right"  # the columns of the two halves, signed integers of 64 bits
_FIXED_DIGITS = 15  # longer integers, and fractions with so many zeros first, get an exponent (my_gcvt)
_TEXT = pa.large_string()  # the texts of a batch may have more than 2 GB in all
_EMPTY, _COLON, _NULL, _NEWLINE = (pa.scalar(text, _TEXT) for text in ("", ":", "N", NEWLINE))  # of joined texts
_HALVES = np.dtype([("left", ">i8"), ("right", ">i8")])


@dataclass(frozen=True, slots=True)
class RowHashes:
    """The task of Spark's Python workers: replace the columns of a table by the two halves of each row's hash.

    Batches have the columns that stay, and then the table's `columns`.
    """

    columns: tuple[Column, ...]
    widths: Widths

    def replace(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each batch with the columns that stay, then LEFT and RIGHT."""
        for batch in batches:
            staying = batch.num_columns - len(self.columns)
            texts = [
                texts_of(column, batch.column(staying + number), self.widths)
                for number, column in enumerate(self.columns)
            ]
            names = [*batch.schema.names[:staying], LEFT, RIGHT]
            yield pa.RecordBatch.from_arrays([*batch.columns[:staying], *halves(self.columns, texts)], names)


def halves(columns: Sequence[Column], texts: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """The halves of each row's hash. `texts` has the canonical texts of each column, one for each row."""
    coded = map(_coded, columns, texts)
    offsets, data = _joined([piece for pieces in coded for piece in pieces])
    sha256 = hashlib.sha256
    digests = b"".join([sha256(data[start:end]).digest()[: _HALVES.itemsize] for start, end in pairwise(offsets)])
    numbers = np.frombuffer(digests, _HALVES)
    return pa.array(numbers["left"].astype(np.int64)), pa.array(numbers["right"].astype(np.int64))


def buckets_of(texts: Sequence[pa.Array], count: int) -> np.ndarray:
    """The bucket of each key, of `count` buckets. `texts` has the canonical texts of each column of the key."""
    offsets, data = _joined([piece for values in texts for piece in _with_octets(values)])
    return np.array([zlib.crc32(data[start:end]) for start, end in pairwise(offsets)], np.int64) % count


def _coded(column: Column, texts: pa.Array) -> Sequence[pa.Array | pa.Scalar]:
    """A column's part of each row's text (`core.proofs.checksum`), in pieces that are joined."""
    if not ends_with_newline(column.kind):
        return _with_octets(texts)
    ended = pc.fill_null(texts, _NULL)
    if pa.types.is_string(arrow_type(column)):  # the copy holds the values as texts, so a damaged one can have any text
        # a text that could be taken for NULL, or for the texts of two columns, gets N and its length in bytes
        is_odd = pc.fill_null(pc.match_substring_regex(texts, f"^N|{NEWLINE}"), fill_value=False)
        if pc.any(is_odd).as_py():
            whole = pc.binary_join_element_wise(ended, _NEWLINE, _EMPTY)
            return (pc.if_else(is_odd, pc.binary_join_element_wise(_NULL, *_with_octets(texts), _EMPTY), whole),)
    return ended, _NEWLINE


def _with_octets(texts: pa.Array) -> Sequence[pa.Array]:
    """For each value, its length in bytes and its text, or `N` for NULL, in pieces that are joined."""
    lengths = pc.binary_join_element_wise(pc.binary_length(texts).cast(_TEXT), _COLON, _EMPTY)
    return pc.fill_null(lengths, _NULL), pc.fill_null(texts, _EMPTY)


def _joined(pieces: Sequence[pa.Array | pa.Scalar]) -> tuple[list[int], memoryview]:
    """The joined texts of the rows, as offsets and bytes: the text of row n is between the offsets n and n + 1."""
    joined = pc.binary_join_element_wise(*pieces, _EMPTY).cast(pa.large_binary())
    # the buffers of an array of texts: which are NULL, the offsets, the bytes; None in place of no bytes
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return offsets.tolist(), memoryview(joined.buffers()[2] or b"")


def texts_of(column: Column, values: pa.Array, widths: Widths) -> pa.Array:
    """The texts to which MySQL casts the values of a column; NULL stays NULL."""
    match column.kind:
        case Kind.DECIMAL:
            return _mended(values.cast(_TEXT), _has_exponent, lambda text: f"{Decimal(text):f}")
        case Kind.DATETIME | Kind.TIMESTAMP:
            return values.cast(pa.timestamp("us")).cast(_TEXT)
        case Kind.BINARY:
            return _each(values, lambda value: value.hex().upper())
        case Kind.BOOLEAN:
            return values.cast(pa.int8()).cast(_TEXT)
        case Kind.VECTOR:
            return _each(values, vector_text)
        case Kind.DOUBLE if not column.source_type.size:  # DOUBLE without (M,D): the source casts the value
            return double_texts(values, widths[0], double_text)
        case Kind.FLOAT | Kind.DOUBLE:  # FLOAT or DOUBLE(M,D): the source casts an expression of the value
            return double_texts(values.cast(pa.float64()), widths[1], unsigned_double_text)
        case _:
            return values.cast(_TEXT)


def double_texts(values: pa.Array, most: int, text_of: Callable[[float, int], str]) -> pa.Array:
    """The texts of DOUBLEs, as `text_of` writes each of them. The text of a NaN, which no source has, is `nan`.

    Arrow writes the shortest digits, too. But it uses an exponent for other values than the source does, so `text_of`
    writes each value that may have an exponent.
    """

    def may_have_exponent(texts: pa.Array) -> pa.Array:
        """For each value, by Arrow's text of it, whether the source may write it with an exponent."""
        length, is_integer = pc.utf8_length(texts), pc.invert(pc.match_substring(texts, "."))
        is_long = pc.or_(pc.greater(length, most), pc.and_(is_integer, pc.greater(length, _FIXED_DIGITS)))
        return pc.and_(pc.or_(_has_exponent(texts), is_long), pc.is_finite(values))

    return _mended(values.cast(_TEXT), may_have_exponent, lambda text: text_of(float(text), most))


def double_text(value: float, most: int) -> str:
    """The text of a DOUBLE, as the source's `CAST(… AS CHAR)` writes it: the shortest digits that identify the value.

    The text has an exponent if it would otherwise be longer than `most` characters, including a minus sign. It also has
    an exponent if it would be an integer of more than `_FIXED_DIGITS` digits, or if so many zeros followed the point.
    """
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    # `sign` is 1 for a negative value, else 0
    sign, digit_tuple, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digit_tuple))
    length = len(digits)
    point = length + int(exponent)  # the number of digits before the decimal point; negative: zeros follow the point
    # the width is the length of the text without an exponent and without a minus sign
    if point <= 0:
        width = length - point + 2  # "0." and zeros before the digits
    elif point < length:
        width = length + 1
    else:
        width = point
    is_tiny = point <= -_FIXED_DIGITS
    is_huge = point >= length and point > _FIXED_DIGITS  # an integer of many digits
    is_too_long = sign + width > most
    if is_tiny or is_huge or is_too_long:
        text = digits[0] + ("." + digits[1:] if length > 1 else "") + f"e{point - 1}"
    elif point <= 0:
        text = "0." + "0" * -point + digits
    else:
        whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
        text = whole + ("." + fraction if fraction else "")
    return "-" * sign + text


def unsigned_double_text(value: float, most: int) -> str:
    """The text of a DOUBLE as the source writes the value of an expression: a minus sign does not count for `most`."""
    if math.copysign(1, value) > 0:
        return double_text(value, most)
    return f"-{double_text(-value, most)}"


def vector_text(floats: Sequence[float]) -> str:
    """A VECTOR as MySQL's `HEX` writes it: the bytes of each FLOAT as hexadecimal digits."""
    return struct.pack(f"<{len(floats)}f", *floats).hex().upper()


def _has_exponent(texts: pa.Array) -> pa.Array:
    return pc.match_substring(texts, "e", ignore_case=True)


def _mended(texts: pa.Array, is_wrong: Callable[[pa.Array], pa.Array], mend: Callable[[str], str]) -> pa.Array:
    """The texts. Each text that `is_wrong` is replaced by what `mend` makes of it."""
    wrong = pc.fill_null(is_wrong(texts), fill_value=False)
    mended = pa.array(map(mend, texts.filter(wrong).to_pylist()), _TEXT)
    return pc.replace_with_mask(texts, wrong, mended)


def _each(values: pa.Array, text_of: Callable[[Any], str]) -> pa.Array:
    """The texts that `text_of` makes of the values, one by one in Python; NULL stays NULL."""
    return pa.array((None if value is None else text_of(value) for value in values.to_pylist()), _TEXT)
