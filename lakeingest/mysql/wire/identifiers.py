"""Decodes MariaDB's UUID, INET6 and INET4 in row images to the texts that a result set has.

A row image has the bytes of a value without the zero bytes at its end. Source: MariaDB's documentation, "UUID Data
Type", "INET6".
"""

import socket

import numpy as np
import pyarrow as pa

from lakeingest.mysql.wire import charsets
from lakeingest.mysql.wire.values import Values

_UUID_BYTES = 16
_UUID_CHARACTERS = 36
_DASHES = (8, 13, 18, 23)  # the indexes of the dashes in the text
_DIGIT_INDEXES = np.array([index for index in range(_UUID_CHARACTERS) if index not in _DASHES])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_FAMILIES = {16: socket.AF_INET6, 4: socket.AF_INET}


def uuids(values: Values) -> pa.Array:
    """UUIDs as `00112233-4455-6677-8899-aabbccddeeff`. Raises ValueError for a value of more than 16 bytes."""
    padded = charsets.binary(values, _UUID_BYTES)
    data = np.frombuffer(padded.buffers()[2] or b"", np.uint8)  # [2]: the bytes; [0] and [1]: validity and offsets
    is_present = values.start >= 0  # NULL has no bytes in `data`, and no text
    uuid_count = int(is_present.sum())
    uuid_bytes = data[: uuid_count * _UUID_BYTES].reshape(uuid_count, _UUID_BYTES)
    texts = np.full((uuid_count, _UUID_CHARACTERS), ord("-"), np.uint8)
    texts[:, _DIGIT_INDEXES[0::2]] = _DIGITS[uuid_bytes >> 4]
    texts[:, _DIGIT_INDEXES[1::2]] = _DIGITS[uuid_bytes & 15]
    offsets = np.concatenate([[0], np.cumsum(is_present) * _UUID_CHARACTERS]).astype(np.int32)
    return values.column(pa.string(), offsets, texts.ravel())


def addresses(values: Values, size: int) -> pa.Array:
    """The texts of IP addresses of `size` bytes, 16 or 4. Raises ValueError for a longer value."""
    family = _FAMILIES[size]
    raw = charsets.binary(values, size)
    return pa.array([None if value is None else _address(family, value) for value in raw.to_pylist()], pa.string())


def _address(family: socket.AddressFamily, raw: bytes) -> str:
    """The text that the C library writes, with one difference: MariaDB also writes `::` for a single group of zeros."""
    text = socket.inet_ntop(family, raw)
    if family is socket.AF_INET or "::" in text:
        return text
    head, zero_group, tail = f":{text}:".partition(":0:")  # the first group of zeros, also at the begin or the end
    return f"{head[1:]}::{tail[:-1]}" if zero_group else text
