"""Checksums by which source and target prove that a chunk is equal, and how they are compared.

Each value has a canonical text. A row's text has, column by column:

- of a column of texts, `<octets>:<text>`, or `N` for NULL;
- of another column, `<text><newline>`, or `N<newline>` for NULL. Octets are left out here, because the source would
  have to make each text twice to count them. In such a column, only a damaged copy can have a text that has a newline
  or begins with N: this text becomes `N<octets>:<text>`.

No form is the beginning of another, so different rows have different texts.

The row's text is hashed with SHA-256, and the first two 64-bit parts of the hash are used. A chunk's checksum is the
number of rows and, for each of the two parts, the XOR over all rows. So the checksum does not depend on the order of
rows. If only the server knows the order of keys, rows are compared in buckets: the CRC-32 of a key's text, which has
the octets of each value, gives the key's bucket. The source computes checksums and buckets in SQL, the copy's side by
Arrow; `digest` and `bucket` here are the specification that both are tested against.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import Kind

UINT64 = 2**64
NEWLINE = "\n"
ONLY_IN_SOURCE = "only in the source"  # how a key differs that has no row in the target
DIGITS = 32  # the hexadecimal digits of the two parts of a hash


def ends_with_newline(kind: Kind) -> bool:
    """Whether the text of a value of this kind ends with NEWLINE in its row's text: true of every kind but texts."""
    return kind is not Kind.STRING


@dataclass(frozen=True, slots=True)
class Checksum:
    """The checksum of rows: their number, and the XOR of each of the two parts of their hashes (unsigned, 64 bits)."""

    rows: int = 0
    left: int = 0
    right: int = 0

    @classmethod
    def of_digits(cls, rows: int, digits: str) -> "Checksum":
        """The checksum of so many rows, from the first DIGITS hexadecimal digits of their hashes' XOR."""
        return cls(rows, *divmod(int(digits, 16), UINT64))

    def __str__(self) -> str:
        return f"{self.left:016x}{self.right:016x}"

    def __add__(self, other: "Checksum") -> "Checksum":
        """The checksum of two disjoint sets of rows."""
        return Checksum(self.rows + other.rows, self.left ^ other.left, self.right ^ other.right)


def digest(kinds: Sequence[Kind], texts: Sequence[str | None]) -> Checksum:
    """The checksum of one row, given the kind and the canonical text of each of its columns; None is NULL."""
    joined = "".join(
        _with_newline(text) if ends_with_newline(kind) else _with_octets(text)
        for kind, text in zip(kinds, texts, strict=True)
    )
    return Checksum.of_digits(1, hashlib.sha256(joined.encode()).hexdigest()[:DIGITS])


def bucket(texts: Sequence[str | None], count: int) -> int:
    """Which of `count` buckets a key is in, from 0 on, given the canonical text of each of its columns."""
    return zlib.crc32("".join(map(_with_octets, texts)).encode()) % count


def _with_newline(text: str | None) -> str:
    """The part of a row's text for a column that is not a column of texts."""
    if text is None:
        return f"N{NEWLINE}"
    return f"N{_with_octets(text)}" if text.startswith("N") or NEWLINE in text else f"{text}{NEWLINE}"


def _with_octets(text: str | None) -> str:
    """The part of a row's text for a column of texts, and the part of a key's text for any column."""
    return "N" if text is None else f"{len(text.encode())}:{text}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose row is not the same in source and target, and how it differs."""

    key: Key
    where: str  # 'only in the source' | 'only in the target' | 'twice in the target' | 'differs'


def differences(source: Mapping[Key, Checksum], target: Iterable[tuple[Key, Checksum]]) -> list[Difference]:
    """The keys whose rows differ between source and target, in key order.

    A key that the target has more than once always differs, and may be in the result more than once.
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
    unequal += [Difference(key, ONLY_IN_SOURCE) for key in source.keys() - seen]
    return sorted(unequal, key=lambda difference: difference.key)
