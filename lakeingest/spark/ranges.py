"""Ranges of keys as DataFrames: `KeyRange` in Spark, and a property test holds it equal to the core."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from lakeingest.core.keys import KeyRange, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LOWER, _UPPER = "_lakeingest_lower", "_lakeingest_upper"  # each followed by the number of the key's column
_KEY_TYPE = "decimal(20,0)"  # holds every integer key, signed and unsigned


def ranges(
    rows: "DataFrame", key: Sequence[str], tagged: Sequence[tuple[KeyRange, tuple[int, ...]]], tags: str
) -> "DataFrame":
    """Ranges of the key of rows as rows: the columns `tags`, and each bound's parts, null where a side has no bound."""
    is_short = len(key) == 1 and not rows.schema[key[0]].dataType.simpleString().startswith("decimal")
    kind, part = ("bigint", int) if is_short else (_KEY_TYPE, Decimal)
    bounds = "".join(f", {_LOWER}{i} {kind}, {_UPPER}{i} {kind}" for i in range(len(key)))
    found = [
        (*tag, *(None if one is None else part(one[i]) for i in range(len(key)) for one in (keys.lower, keys.upper)))
        for keys, tag in tagged
    ]
    return rows.sparkSession.createDataFrame(found, tags + bounds)


def within(key: Sequence[str]) -> "Column":
    """The join condition of rows with the ranges that their keys are in: `KeyRange.__contains__` in Spark.

    A key of one column is compared as it is: structures take Spark ten times as long.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def together(columns: "Sequence[Column]") -> "Column":
        parts = (column.cast(_KEY_TYPE).alias(f"key{i}") for i, column in enumerate(columns))
        return columns[0] if len(columns) == 1 else F.struct(*parts)

    own = together([F.col(quote(name)) for name in key])
    lower, upper = (together([F.col(f"{side}{i}") for i in range(len(key))]) for side in (_LOWER, _UPPER))
    above = F.col(f"{_LOWER}0").isNull() | (own >= lower)
    below = F.col(f"{_UPPER}0").isNull() | (own < upper)
    return above & below
