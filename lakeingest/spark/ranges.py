"""Ranges of keys in Spark: a DataFrame of `KeyRange`s, and a condition to join rows with it.

A property test compares both with `KeyRange`.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from lakeingest.core.tables.keys import KeyRange, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LOWER, _UPPER = "_lakeingest_lower", "_lakeingest_upper"  # each followed by the number of the key's column
_UNSIGNED = "decimal(20,0)"  # the type of BIGINT UNSIGNED; all other keys that are compared fit in a bigint


def ranges(
    rows: "DataFrame", key: Sequence[str], tagged: Sequence[tuple[KeyRange, tuple[int, ...]]], tags: str
) -> "DataFrame":
    """A DataFrame with a row for each range: its tags, and then the values of its bounds, NULL for a missing bound.

    Tags are values that the caller adds to a range, such as its number. `tagged` has each range with its tags, and
    `tags` names and types their columns, in Spark's form (`number int`).
    The types of the bounds are those of the columns `key` of `rows`.
    """
    are_unsigned = [rows.schema[name].dataType.simpleString() == _UNSIGNED for name in key]
    bound_schema = ""  # for each column of the key, its lower and its upper bound
    for i, is_unsigned in enumerate(are_unsigned):
        kind = _UNSIGNED if is_unsigned else "bigint"
        bound_schema += f", {_LOWER}{i} {kind}, {_UPPER}{i} {kind}"
    range_rows = []
    for keys, range_tags in tagged:
        values: list[Decimal | int | None] = []  # in the order of `bound_schema`
        for i, is_unsigned in enumerate(are_unsigned):
            for bound in (keys.lower, keys.upper):
                if bound is None:
                    values.append(None)
                else:
                    values.append(Decimal(bound[i]) if is_unsigned else int(bound[i]))
        range_rows.append((*range_tags, *values))
    return rows.sparkSession.createDataFrame(range_rows, tags + bound_schema)


def within(key: Sequence[str]) -> "Column":
    """The condition that a row's key is within a range of `ranges`: `KeyRange.__contains__` in Spark.

    The columns of the key are compared one by one, and the first column decides nearly all comparisons. Spark would
    take ten times as long to compare keys as structures.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def is_from(bound: str, i: int = 0) -> "Column":
        """Whether the key, compared from its column `i` on, is greater than or equal to the bound."""
        key_part, bound_part = F.col(quote(key[i])), F.col(f"{bound}{i}")
        if i == len(key) - 1:
            return key_part >= bound_part
        return (key_part > bound_part) | ((key_part == bound_part) & is_from(bound, i + 1))

    return (F.col(f"{_LOWER}0").isNull() | is_from(_LOWER)) & (F.col(f"{_UPPER}0").isNull() | ~is_from(_UPPER))
