"""Decodes ENUM and SET in row images: the images have the numbers of members, the TABLE_MAP event has their texts."""

import numpy as np
import pyarrow as pa

from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.numbers import unsigned
from lakeingest.mysql.wire.values import Values


def enums(values: Values, width: int, members: tuple[str, ...]) -> pa.Array:
    """ENUM: the member with each number, from 1 on; 0 is the empty string, which MySQL stores for an invalid value.

    Raises Damaged for a number that no member has.
    """
    numbers = unsigned(values, width)
    if len(numbers) and int(numbers.max()) > len(members):
        raise Damaged(f"an ENUM with the number {int(numbers.max())} of {len(members)} members")
    return _texts(values, numbers, ["", *members])


def sets(values: Values, width: int, members: tuple[str, ...]) -> pa.Array:
    """SET: for each number, the members whose bits are 1, joined by commas. The lowest bit stands for the first member.

    Raises Damaged for a bit that no member has.
    """
    distinct_numbers, indexes = np.unique(unsigned(values, width), return_inverse=True)
    texts = []  # of each distinct number
    for mask in distinct_numbers.astype(np.uint64).tolist():  # unsigned: 64 members use the highest bit, too
        if mask >> len(members):
            raise Damaged(f"a SET with bits that none of its {len(members)} members has")
        texts.append(",".join(member for bit, member in enumerate(members) if mask >> bit & 1))
    return _texts(values, indexes, texts)


def _texts(values: Values, indexes: np.ndarray, texts: list[str]) -> pa.Array:
    """For each row, the text at its index in `texts`; NULL if the row's value is NULL."""
    column = values.column(pa.int64(), indexes.astype(np.int64, copy=False))
    return pa.array(texts, pa.string()).take(column)
