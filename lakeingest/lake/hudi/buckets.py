"""The bucket of a record key, as Hudi's bucket index computes it (`BucketIdentifier`).

The file group of the bucket has the row with this key.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def buckets_of(parts: Sequence[pa.Array], count: int) -> np.ndarray:
    """The bucket of each key: Java's `List.hashCode` of the key's parts, without the sign, modulo `count`.

    `parts` has an array for each part of the key, with the texts of all keys. The texts are ASCII, so each byte is one
    `char` of Java.
    """
    hashes = np.ones(len(parts[0]), np.uint32)  # `List.hashCode` begins with 1
    for part in parts:
        hashes = hashes * np.uint32(31) + _hash_codes(part)
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


def _hash_codes(texts: pa.Array) -> np.ndarray:
    """Java's `String.hashCode` of each text. NumPy handles all first letters at once, then all second letters."""
    strings = texts.cast(pa.large_string())
    _, offsets_buffer, letters_buffer = strings.buffers()
    first = strings.offset  # the array can be a slice of its buffers: its first text has this number there
    # the start of each text, and the end of the last one
    offsets = np.frombuffer(offsets_buffer, np.int64)[first : first + len(strings) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    letters = np.frombuffer(letters_buffer, np.uint8) if letters_buffer is not None else np.zeros(0, np.uint8)
    hashes = np.zeros(len(strings), np.uint32)
    longer = np.arange(len(strings))  # the numbers of the texts that have a letter at `index`
    for index in range(int(lengths.max(initial=0))):
        longer = longer[lengths[longer] > index]
        hashes[longer] = hashes[longer] * np.uint32(31) + letters[starts[longer] + index]
    return hashes
