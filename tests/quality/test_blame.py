"""Which rows a failed expectation blames: those without which the rest would pass."""

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeingest.quality.blame import blame, blamed_rows
from lakeingest.quality.gates import GateReport, run_gate
from lakeingest.quality.suites import Suite

pytestmark = pytest.mark.spark

ROWS = [(1, "a", 5, 6), (2, None, 50, 1), (3, "long name", None, None), (4, "b", 7, 7)]
BLAMES: dict[str, tuple[dict[str, Any], set[int]]] = {
    "a range": ({"type": "expect_column_values_to_be_between", "kwargs": {"column": "n.x", "max_value": 9}}, {2}),
    "a set": ({"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "n.x", "value_set": [5]}}, {2, 4}),
    "not NULL": ({"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "s"}}, {2}),
    "NULL": ({"type": "expect_column_values_to_be_null", "kwargs": {"column": "s"}}, {1, 3, 4}),
    "a length": (
        {"type": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "s", "max_value": 4}},
        {3},
    ),
    "a pattern": ({"type": "expect_column_values_to_match_regex", "kwargs": {"column": "s", "regex": "^[ab]$"}}, {3}),
    "a pair": (
        {
            "type": "expect_column_pair_values_a_to_be_greater_than_b",
            "kwargs": {
                "column_A": "m",
                "column_B": "n.x",
                "or_equal": True,
                "ignore_row_if": "either_value_is_missing",
            },
        },
        {2},
    ),
}
BLAMES_NOBODY: list[dict[str, Any]] = [
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "same"}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "n.x", "max_value": 1}},
    {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 5}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n.x", "max_value": 9, "mostly": 0.9}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "gone", "max_value": 9}},
]


def frame(spark: SparkSession) -> DataFrame:
    """Rows with the texts of their keys."""
    rows = [(*row, 1, str(row[0]), str(Decimal(row[0]))) for row in ROWS]
    return spark.createDataFrame(rows, "id int, s string, `n.x` int, m int, same int, key0 string, key1 string")


def report(rows: DataFrame, *documents: dict[str, Any]) -> GateReport:
    """What the gate says."""
    return run_gate("shop.lines", rows, ["id"], [Suite("own.yml", documents)])


@pytest.mark.long("suites on Spark")
def test_the_keys_of_all_rows_that_fail_are_told(spark: SparkSession) -> None:
    """With the expectations that each fails, and every form of key."""
    rows = frame(spark)
    failed = report(rows, *(document for document, _ in BLAMES.values()))
    failures = {outcome.document["type"]: outcome for outcome in failed.failures}
    assert len(failures) == len(BLAMES)
    for document, ids in BLAMES.values():
        failure = failures[document["type"]]
        assert blamed_rows(failure) == len(ids)
        told = blame("shop.lines", rows, ["key0"], [failure], ordered=True)
        assert told == {(each,): (failure.name,) for each in sorted(ids)}
    several = blame("shop.lines", rows, ["key0", "key1"], list(failures.values()), ordered=False)
    assert several is not None
    assert several.keys() == {(str(each), str(each)) for each in (1, 2, 3, 4)}
    assert len(several["2", "2"]) == 4


@pytest.mark.long("suites on Spark")
def test_what_depends_on_other_rows_blames_nobody(spark: SparkSession) -> None:
    """Nor does what cannot be evaluated, or lets some rows fail."""
    failed = report(frame(spark), *BLAMES_NOBODY)
    assert len(failed.failures) == len(BLAMES_NOBODY)
    assert [blamed_rows(failure) for failure in failed.failures] == [None] * len(BLAMES_NOBODY)


@pytest.mark.long("suites on Spark")
def test_rows_of_one_key_are_not_told_apart(spark: SparkSession) -> None:
    """So none of them moves."""
    rows = frame(spark)
    [failure] = report(rows, BLAMES["a set"][0]).failures
    assert blame("shop.lines", rows, ["same"], [failure], ordered=True) is None
    assert blame("shop.lines", rows, ["s"], [failure], ordered=False) is None
