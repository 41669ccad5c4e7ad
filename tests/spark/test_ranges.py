"""Ranges of keys as DataFrames, held equal to the core's."""

from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest.core.tables.keys import KeyRange
from lakeingest.spark import ranges

pytestmark = pytest.mark.spark


def test_ranges_of_unsigned_keys_beyond_the_signed_range_are_distinguished(spark: SparkSession) -> None:
    """The lookup of a key among ranges is exact up to 2^64 - 1 and down to -2^63."""
    edges = [-(2**63), -1, 0, 2**63 - 1, 2**63, 2**64 - 1]
    tagged = [(KeyRange((low,), (high,)), (number,)) for number, (low, high) in enumerate(pairwise(edges))]
    rows = spark.createDataFrame([(Decimal(edge),) for edge in edges], "k decimal(20,0)")
    cut = ranges.ranges(rows, ["k"], tagged, "number int")
    found = {int(row["k"]): row["number"] for row in rows.join(cut, on=ranges.within(["k"])).collect()}
    assert found == {edge: number for number, edge in enumerate(edges[:-1])}


ENDS: dict[str, list[Any]] = {
    "int": [-(2**31), -1, 0, 7, 2**31 - 1],
    "bigint": [-(2**63), -(2**31), 0, 2**31, 2**63 - 1],
    "decimal(20,0)": [Decimal(0), Decimal(2**63), Decimal(2**64 - 1)],
}


@pytest.mark.parametrize("kinds", [("int",), ("bigint",), ("int", "int"), ("bigint", "decimal(20,0)", "int")])
def test_keys_of_integers_are_in_the_ranges_that_the_core_says(spark: SparkSession, kinds: tuple[str, ...]) -> None:
    """Also at their ends, and where a side has no bound."""
    key, known = ["a", "b", "c"][: len(kinds)], sorted(product(*(ENDS[kind] for kind in kinds)))
    rows = spark.createDataFrame(known, ", ".join(f"{name} {kind}" for name, kind in zip(key, kinds, strict=True)))
    cut = [KeyRange(None, known[1]), *(KeyRange(*pair) for pair in pairwise(known[1:])), KeyRange(known[-1])]
    tagged = [(part, (number,)) for number, part in enumerate(cut)]
    joined = rows.join(ranges.ranges(rows, key, tagged, "number int"), on=ranges.within(key))
    found = {(tuple(row[name] for name in key), row["number"]) for row in joined.collect()}
    assert found == {(one, number) for one in known for number, part in enumerate(cut) if one in part}
