import pytest
from pyspark.sql import SparkSession

from lakeingest.quality.gates import GateReport, check_rows

pytestmark = pytest.mark.spark

SCHEMA = "a int, `b c` int, v string"
Row = tuple[int | None, int | None, str | None]


def report(spark: SparkSession, rows: list[Row], expected_rows: int, *key: str) -> GateReport:
    """What the gate says of these rows."""
    return check_rows(spark.createDataFrame(rows, SCHEMA), key or ("a", "b c"), expected_rows)


def test_whole_rows_pass(spark: SparkSession) -> None:
    """A key not null and unique, and as many rows as were written; values may be null or repeat."""
    found = report(spark, [(1, 1, "x"), (1, 2, "x"), (2, 1, None)], 3)
    assert found == GateReport(rows=3, expected_rows=3, null_keys=0, distinct_keys=3)
    assert found.failures == ()


@pytest.mark.parametrize("rows", [[(None, 1, "x"), (1, 1, "y")], [(1, None, "x"), (1, 1, "y")]])
def test_a_null_in_any_column_of_the_key_fails(spark: SparkSession, rows: list[Row]) -> None:
    """The rows without key are counted."""
    found = report(spark, rows, 2)
    assert found.null_keys == 1
    assert found.failures == ("1 rows have no key",)


def test_a_key_that_two_rows_share_fails(spark: SparkSession) -> None:
    """Each row above one per key counts, also where the count of rows is right and the rows are equal."""
    found = report(spark, [(1, 1, "x"), (1, 1, "x"), (1, 1, "y"), (2, 1, "z")], 4)
    assert found.failures == ("2 rows share their key with another",)


def test_several_rows_without_key_fail_twice(spark: SparkSession) -> None:
    """Nulls are counted by row, and are one key among others."""
    found = report(spark, [(None, None, "x"), (None, None, "y"), (1, None, "z")], 3)
    assert found.failures == ("3 rows have no key", "1 rows share their key with another")


@pytest.mark.parametrize("expected_rows", [1, 3])
def test_a_count_other_than_what_was_written_fails(spark: SparkSession, expected_rows: int) -> None:
    """A lost row and one too many are both noticed, whatever the rows look like."""
    found = report(spark, [(1, 1, "x"), (2, 1, "y")], expected_rows)
    assert found.failures == (f"2 rows are staged, {expected_rows} were written",)


def test_all_failures_are_told_together(spark: SparkSession) -> None:
    """One look at the report is enough."""
    assert len(report(spark, [(None, 1, "x"), (1, 1, "y"), (1, 1, "z")], 7).failures) == 3


def test_an_empty_table_passes_when_nothing_was_written(spark: SparkSession) -> None:
    """No rows are whole rows; but not when some were written."""
    assert report(spark, [], 0) == GateReport(rows=0, expected_rows=0, null_keys=0, distinct_keys=0)
    assert report(spark, [], 0).failures == ()
    assert report(spark, [], 5).failures == ("0 rows are staged, 5 were written",)


def test_a_key_of_one_column_counts_that_column_only(spark: SparkSession) -> None:
    """Nulls elsewhere are values."""
    assert report(spark, [(1, None, "x"), (2, None, "x")], 2, "a").failures == ()
