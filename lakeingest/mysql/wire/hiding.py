"""Hides values that were read: replaces each by its keyed hash, or by a text without its letters and digits."""

import hmac
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.column_choice import HASHED
from lakeingest.core.tables.schema import Column

# Patterns of characters, and what each such character becomes. A later pattern matches none of the earlier results
_MASKS = (
    (r"[^\x00-\x7F\p{L}\p{M}\p{N}]", "*"),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", "x"),
    (r"[\p{Lu}\p{Lt}]", "X"),
    (r"\p{N}", "9"),
)


def hidden(values: pa.Array, column: Column) -> pa.Array:
    """The values in the form in which the copy has the column; NULL stays NULL. `values` are those of the source.

    In the form HASHED, a value becomes the HMAC-SHA256, with the column's secret, of its text in UTF-8 or of its bytes,
    in hexadecimal digits. In the form MASKED, `masked` says what it becomes.
    """
    if column.choice == HASHED:
        return hashed(values, column.secret)
    return masked(values)


def hashed(values: pa.Array, secret: bytes) -> pa.Array:
    """The keyed hash of each value, as 64 hexadecimal digits. Raises ValueError without a secret."""
    if not secret:
        raise ValueError("there is no key to hash its values with")
    distinct = values.dictionary_encode()
    digests = [hmac.digest(secret, _octets(value), "sha256").hex() for value in distinct.dictionary.to_pylist()]
    return pa.array(digests, pa.string()).take(distinct.indices)


def masked(values: pa.Array) -> pa.Array:
    """Each text with `x` for a letter, `X` for a capital letter, and `9` for a digit.

    Of the other characters, those in ASCII stay, such as spaces and signs; all others become `*`. So a text keeps its
    number of characters.
    """
    for pattern, replacement in _MASKS:
        values = pc.replace_substring_regex(values, pattern, replacement)
    return values


def _octets(value: Any) -> bytes:
    """The bytes that are hashed for a value: the value itself if it is bytes, else the text that MySQL prints."""
    match value:
        case bytes():
            return value
        case Decimal():
            return f"{value:f}".encode()
        case int() | str():
            return str(value).encode()
    raise TypeError(f"{type(value).__name__} has no exact text")
