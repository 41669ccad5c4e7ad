"""The bucket of a record key, whose file group has the row: Hudi's `BucketIdentifier`, of its bucket index."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def buckets_of(parts: Sequence[pa.Array], count: int) -> np.ndarray:
    """The bucket of each key, from 0 to `count` - 1: Java's `List.hashCode` of the key's parts, without the sign.

    Each array has one part of all keys. The texts are ASCII, so a byte is a `char` of Java.
    """
    hashes = np.ones(len(parts[0]), np.uint32)
    for part in parts:
        hashes = hashes * np.uint32(31) + _hash_codes(part)
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


def _hash_codes(texts: pa.Array) -> np.ndarray:
    """Java's `String.hashCode` of each text. All texts are taken at once, letter by letter."""
    strings = texts.cast(pa.large_string())
    _, ends, letters = strings.buffers()
    places = np.frombuffer(ends, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    starts, lengths = places[:-1], np.diff(places)
    contents = np.frombuffer(letters, np.uint8) if letters is not None else np.zeros(0, np.uint8)
    hashes = np.zeros(len(strings), np.uint32)
    longer = np.arange(len(strings))
    for place in range(int(lengths.max(initial=0))):
        longer = longer[lengths[longer] > place]
        hashes[longer] = hashes[longer] * np.uint32(31) + contents[starts[longer] + place]
    return hashes
