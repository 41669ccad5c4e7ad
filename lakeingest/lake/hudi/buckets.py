"""The bucket of a record key: which file group has its row (Hudi's `BucketIdentifier`, of its bucket index)."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def buckets_of(parts: Sequence[pa.Array], count: int) -> np.ndarray:
    """The bucket, from 0 to `count` - 1, of each key: Java's `List.hashCode` of its parts, without the sign.

    Each array has one part of all keys. The texts are ASCII, so that a byte is a `char` of Java.
    """
    hashes = np.ones(len(parts[0]), np.uint32)
    for part in parts:
        hashes = hashes * np.uint32(31) + _hash_codes(part)
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


def _hash_codes(texts: pa.Array) -> np.ndarray:
    """Java's `String.hashCode` of each text, all texts at once, letter by letter."""
    found = texts.cast(pa.large_string())
    _, ends, letters = found.buffers()
    places = np.frombuffer(ends, np.int64)[found.offset : found.offset + len(found) + 1]
    starts, lengths = places[:-1], np.diff(places)
    contents = np.frombuffer(letters, np.uint8) if letters is not None else np.zeros(0, np.uint8)
    hashes = np.zeros(len(found), np.uint32)
    longer = np.arange(len(found))
    for place in range(int(lengths.max(initial=0))):
        longer = longer[lengths[longer] > place]
        hashes[longer] = hashes[longer] * np.uint32(31) + contents[starts[longer] + place]
    return hashes
