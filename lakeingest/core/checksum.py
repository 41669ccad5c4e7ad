"""Checksums by which source and target prove that a chunk is equal, and how they are compared.

A row's canonical text is, column by column, `N` for NULL or `<octets>:<text>`. The text is hashed with SHA-256, and the
first two 64-bit parts of the hash are used. A chunk's checksum is the number of rows and, for each of the two parts,
the XOR over all rows. So the checksum does not depend on the order of rows. If only the server knows the order of keys,
rows are compared in buckets: the CRC-32 of a key's text gives the key's bucket. MySQL and Spark compute checksums and
buckets in SQL; `digest` and `bucket` here are the specification that both are tested against.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakeingest.core.keys import Key

UINT64 = 2**64


@dataclass(frozen=True, slots=True)
class Checksum:
    """The checksum of rows: their number, and the XOR of each of the two parts of their hashes (unsigned, 64 bits)."""

    rows: int = 0
    left: int = 0
    right: int = 0

    def __str__(self) -> str:
        return f"{self.left:016x}{self.right:016x}"

    def __add__(self, other: "Checksum") -> "Checksum":
        """The checksum of two disjoint sets of rows."""
        return Checksum(self.rows + other.rows, self.left ^ other.left, self.right ^ other.right)


def digest(texts: Sequence[str | None]) -> Checksum:
    """The checksum of one row, given the canonical text of each of its columns."""
    hashed = hashlib.sha256(_joined(texts)).hexdigest()
    return Checksum(1, int(hashed[:16], 16), int(hashed[16:32], 16))


def bucket(texts: Sequence[str | None], count: int) -> int:
    """Which of `count` buckets a key is in, given the canonical text of each of its columns."""
    return zlib.crc32(_joined(texts)) % count


def _joined(texts: Sequence[str | None]) -> bytes:
    return "".join("N" if text is None else f"{len(text.encode())}:{text}" for text in texts).encode()


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose row is not the same in source and target, and how it differs."""

    key: Key
    where: str  # 'only in the source' | 'only in the target' | 'twice in the target' | 'differs'


def differences(source: Mapping[Key, Checksum], target: Iterable[tuple[Key, Checksum]]) -> list[Difference]:
    """The keys whose rows differ between source and target, in key order.

    If the target has a key more than once, the key differs, too, and may be in the result more than once.
    """
    unequal: list[Difference] = []
    seen: set[Key] = set()
    for key, checksum in target:
        if key in seen:
            unequal.append(Difference(key, "twice in the target"))
        elif key not in source:
            unequal.append(Difference(key, "only in the target"))
        elif source[key] != checksum:
            unequal.append(Difference(key, "differs"))
        seen.add(key)
    unequal += [Difference(key, "only in the source") for key in source.keys() - seen]
    return sorted(unequal, key=lambda difference: difference.key)
