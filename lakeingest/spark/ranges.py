"""Ranges of keys as DataFrames: `KeyRange` in Spark, and a property test holds it equal to the core."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from lakeingest.core.keys import Key, KeyRange, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LOWER, _UPPER = "_lakeingest_lower", "_lakeingest_upper"  # each followed by the number of the key's column
_KEY_TYPE = "decimal(20,0)"  # holds every integer key, signed and unsigned


def ranges(
    spark: "SparkSession", tagged: Sequence[tuple[KeyRange, tuple[int, ...]]], tags: str, arity: int
) -> "DataFrame":
    """Ranges as rows: the columns `tags`, and each bound's parts, null where a side has no bound."""
    bounds = "".join(f", {_LOWER}{i} {_KEY_TYPE}, {_UPPER}{i} {_KEY_TYPE}" for i in range(arity))
    rows = [
        (*tag, *(bound for i in range(arity) for bound in (_part(keys.lower, i), _part(keys.upper, i))))
        for keys, tag in tagged
    ]
    return spark.createDataFrame(rows, tags + bounds)


def within(key: Sequence[str]) -> "Column":
    """The join condition of rows with the ranges that their keys are in: `KeyRange.__contains__` in Spark."""
    from pyspark.sql import functions as F  # noqa: N812

    own = F.struct(*(F.col(quote(name)).cast(_KEY_TYPE).alias(f"key{i}") for i, name in enumerate(key)))
    lower = F.struct(*(F.col(f"{_LOWER}{i}").alias(f"key{i}") for i in range(len(key))))
    upper = F.struct(*(F.col(f"{_UPPER}{i}").alias(f"key{i}") for i in range(len(key))))
    above = F.col(f"{_LOWER}0").isNull() | (own >= lower)
    below = F.col(f"{_UPPER}0").isNull() | (own < upper)
    return above & below


def _part(bound: Key | None, index: int) -> Decimal | None:
    return None if bound is None else Decimal(bound[index])
