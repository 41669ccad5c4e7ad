"""Functions on executors: their results in order, their errors as they were."""

import pytest
from pyspark.sql import SparkSession

from lakeingest.errors import SchemaChanged
from lakeingest.spark.scatter import scatter

pytestmark = pytest.mark.spark


def test_results_come_in_the_order_of_the_descriptors(spark: SparkSession) -> None:
    """However the work is spread, result i belongs to descriptor i."""
    assert scatter(spark, lambda n: n * n, list(range(7)), 3) == [n * n for n in range(7)]


def test_nothing_to_do_is_no_job(spark: SparkSession) -> None:
    """Without descriptors there are no results and no tasks."""
    assert scatter(spark, lambda n: n, [], 2) == []


def test_an_error_of_ours_is_raised_as_it_was(spark: SparkSession) -> None:
    """What a task raises keeps its class and its message, so its exit code."""

    def work(number: int) -> int:
        if number == 1:
            raise SchemaChanged("shop.orders: changed")
        return number

    with pytest.raises(SchemaChanged, match="orders: changed"):
        scatter(spark, work, [0, 1, 2], 2)
