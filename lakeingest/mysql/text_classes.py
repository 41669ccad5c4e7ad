"""Finds texts that may be one value in a foreign key, by their sort weights. The server computes the weights.

The class of a text is its sort weight. The server gives equal weights to texts that are equal by `=`. There is one
exception: many collations ignore spaces at the end of a text, but give weights to these spaces. So the weights of these
spaces are removed here. After that, texts of different classes are never equal for the server. Texts of one class may
be different for the server.
"""

from collections.abc import Collection

import pymysql

from lakeingest.mysql.connection import query
from lakeingest.mysql.dialect import dialect

_AT_ONCE = 500  # how many texts one query has


def text_classes(connection: pymysql.Connection, collation: str, texts: Collection[str]) -> dict[str, str]:
    """The class of each of these texts, by the text. The charset is one of `core.cascades.comparison.CHARSETS`."""
    all_texts, classes = list(texts), dict[str, str]()
    for first in range(0, len(all_texts), _AT_ONCE):
        part = all_texts[first : first + _AT_ONCE]
        # the space goes first in each query, so that its weight is known
        weight_of_space, *weights = _weights(connection, collation, [" ", *part])
        classes |= zip(part, (_without_spaces(weight, weight_of_space) for weight in weights), strict=True)
    return classes


def _weights(connection: pymysql.Connection, collation: str, texts: Collection[str]) -> tuple[str, ...]:
    """The sort weight of each text, as hexadecimal digits."""
    charset, weight_of = collation.partition("_")[0], dialect(connection).weight
    in_sql = (f"CONVERT(_utf8mb4 x'{text.encode().hex()}' USING {charset}) COLLATE {collation}" for text in texts)
    [weights] = query(connection, f"SELECT {', '.join(f'HEX({weight_of.format(operand)})' for operand in in_sql)}")
    return weights


def _without_spaces(weight: str, weight_of_space: str) -> str:
    """A weight without the weights of spaces at its end. In some collations a space has the weight ''."""
    while weight_of_space and weight.endswith(weight_of_space):
        weight = weight.removesuffix(weight_of_space)
    return weight
