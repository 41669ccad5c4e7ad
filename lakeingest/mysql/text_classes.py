"""Finds texts that may be one value in a foreign key. Only the server knows its collations, so it gives their weights.

The server gives equal weights to texts that are equal by `=`. There is one exception: many collations ignore spaces at
the end of a text, but give them a weight. So these weights are removed. Then texts of two classes are never equal.
Texts of one class may differ.
"""

from collections.abc import Collection

import pymysql

from lakeingest.mysql.connection import query
from lakeingest.mysql.dialect import dialect

_AT_ONCE = 500  # texts of a question


def text_classes(connection: pymysql.Connection, collation: str, texts: Collection[str]) -> dict[str, str]:
    """The class of each of these texts, by the text. The collation is one of `core.comparison.CHARSETS`."""
    listed, classes = list(texts), dict[str, str]()
    for first in range(0, len(listed), _AT_ONCE):
        part = listed[first : first + _AT_ONCE]
        space, *weights = _weights(connection, collation, [" ", *part])
        classes |= zip(part, (_without_end(weight, space) for weight in weights), strict=True)
    return classes


def _weights(connection: pymysql.Connection, collation: str, texts: Collection[str]) -> tuple[str, ...]:
    charset, weight = collation.partition("_")[0], dialect(connection).weight
    written = (f"CONVERT(_utf8mb4 x'{text.encode().hex()}' USING {charset}) COLLATE {collation}" for text in texts)
    [weights] = query(connection, f"SELECT {', '.join(f'HEX({weight.format(text)})' for text in written)}")
    return weights


def _without_end(weight: str, space: str) -> str:
    while space and weight.endswith(space):
        weight = weight.removesuffix(space)
    return weight
