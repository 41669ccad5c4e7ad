"""Ranges of keys as DataFrames: `KeyRange` in Spark. A property test holds it equal to the core."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from lakeingest.core.keys import KeyRange, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LOWER, _UPPER = "_lakeingest_lower", "_lakeingest_upper"  # each followed by the number of the key's column
_UNSIGNED = "decimal(20,0)"  # the type of BIGINT UNSIGNED; all other keys that are compared fit in a bigint


def ranges(
    rows: "DataFrame", key: Sequence[str], tagged: Sequence[tuple[KeyRange, tuple[int, ...]]], tags: str
) -> "DataFrame":
    """A DataFrame with a row for each range: its tags, then the parts of its bounds, null for a missing bound.

    `tagged` has each range with its tags, `tags` their columns as a Spark schema. `rows` have the `key`'s columns.
    """
    types = [rows.schema[name].dataType.simpleString() for name in key]
    kinds, parts = zip(*((_UNSIGNED, Decimal) if kind == _UNSIGNED else ("bigint", int) for kind in types), strict=True)
    bounds = "".join(f", {_LOWER}{i} {kind}, {_UPPER}{i} {kind}" for i, kind in enumerate(kinds))
    range_rows = []
    for keys, range_tags in tagged:
        ends = keys.lower, keys.upper
        values = (None if end is None else part(end[i]) for i, part in enumerate(parts) for end in ends)
        range_rows.append((*range_tags, *values))
    return rows.sparkSession.createDataFrame(range_rows, tags + bounds)


def within(key: Sequence[str]) -> "Column":
    """The condition that joins rows with the ranges of their keys: `KeyRange.__contains__` in Spark.

    Columns are compared one by one, because Spark takes ten times as long to compare keys as structures. The first
    column decides nearly all comparisons.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def is_from(bound: str, i: int = 0) -> "Column":
        """Whether the key, from its column `i` on, is at or after this bound."""
        own, part = F.col(quote(key[i])), F.col(f"{bound}{i}")
        if i == len(key) - 1:
            return own >= part
        return (own > part) | ((own == part) & is_from(bound, i + 1))

    return (F.col(f"{_LOWER}0").isNull() | is_from(_LOWER)) & (F.col(f"{_UPPER}0").isNull() | ~is_from(_UPPER))
