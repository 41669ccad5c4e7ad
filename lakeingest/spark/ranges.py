"""Ranges of keys as DataFrames: `KeyRange` in Spark, held equal to the core by a property test."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from lakeingest.core.keys import Key, KeyRange, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEY_TYPE = "decimal(20,0)"  # holds every integer key, signed and unsigned


def ranges(
    spark: "SparkSession", tagged: Sequence[tuple[KeyRange, tuple[int, ...]]], tags: str, arity: int
) -> "DataFrame":
    """Ranges as rows: the columns `tags`, and lower0, upper0, lower1 …, null where a side has no bound."""
    bounds = "".join(f", lower{i} {_KEY_TYPE}, upper{i} {_KEY_TYPE}" for i in range(arity))
    rows = [
        (*tag, *(bound for i in range(arity) for bound in (_part(keys.lower, i), _part(keys.upper, i))))
        for keys, tag in tagged
    ]
    return spark.createDataFrame(rows, tags + bounds)


def within(key: Sequence[str]) -> "Column":
    """The join condition of rows with the ranges that their keys are in: `KeyRange.__contains__` in Spark."""
    from pyspark.sql import functions as F  # noqa: N812

    own = F.struct(*(F.col(quote(name)).cast(_KEY_TYPE).alias(f"key{i}") for i, name in enumerate(key)))
    lower = F.struct(*(F.col(f"lower{i}").alias(f"key{i}") for i in range(len(key))))
    upper = F.struct(*(F.col(f"upper{i}").alias(f"key{i}") for i in range(len(key))))
    above = F.col("lower0").isNull() | (own >= lower)
    below = F.col("upper0").isNull() | (own < upper)
    return above & below


def _part(bound: Key | None, index: int) -> Decimal | None:
    return None if bound is None else Decimal(bound[index])
