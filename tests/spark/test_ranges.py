"""Ranges of keys as DataFrames, held equal to the core's."""

from decimal import Decimal
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession

from lakeingest.core.keys import KeyRange
from lakeingest.spark import ranges

pytestmark = pytest.mark.spark


def test_ranges_of_unsigned_keys_beyond_the_signed_range_are_distinguished(spark: SparkSession) -> None:
    """The lookup of a key among ranges is exact up to 2^64 - 1 and down to -2^63."""
    edges = [-(2**63), -1, 0, 2**63 - 1, 2**63, 2**64 - 1]
    tagged = [(KeyRange((low,), (high,)), (number,)) for number, (low, high) in enumerate(pairwise(edges))]
    cut = ranges.ranges(spark, tagged, "number int", 1)
    rows = spark.createDataFrame([(Decimal(edge),) for edge in edges], "k decimal(20,0)")
    found = {int(row["k"]): row["number"] for row in rows.join(cut, on=ranges.within(["k"])).collect()}
    assert found == {edge: number for number, edge in enumerate(edges[:-1])}
