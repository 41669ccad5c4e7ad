"""Functions on executors: their results in order, their errors as they were."""

import os
import sys

import pytest
from pyspark.sql import SparkSession

from lakeingest.errors import SchemaChanged
from lakeingest.spark.scatter import prepare, scatter

pytestmark = pytest.mark.spark


def test_results_come_in_the_order_of_the_descriptors(spark: SparkSession) -> None:
    """However the work is spread, result i belongs to descriptor i."""
    assert scatter(spark, lambda n: n * n, list(range(7)), 3) == [n * n for n in range(7)]


def test_without_descriptors_no_job_runs(spark: SparkSession) -> None:
    """Without descriptors there are no results and no tasks."""
    assert scatter(spark, lambda n: n, [], 2) == []


def test_our_errors_are_raised_unchanged(spark: SparkSession) -> None:
    """What a task raises keeps its class and its message, so its exit code."""

    def work(number: int) -> int:
        if number == 1:
            raise SchemaChanged("shop.orders: changed")
        return number

    with pytest.raises(SchemaChanged, match="orders: changed"):
        scatter(spark, work, [0, 1, 2], 2)


def test_without_a_session_it_is_computed_here(spark: SparkSession) -> None:
    """In this process; with one never, also where there is one descriptor only."""
    assert scatter(None, lambda _: os.getpid(), [0, 1], 2) == [os.getpid()] * 2
    assert scatter(spark, lambda _: os.getpid(), [0], 2) != [os.getpid()]


def test_what_is_prepared_is_pickled_at_once(spark: SparkSession) -> None:
    """The caller may change what the descriptors refer to, while another thread runs the work."""
    shared = {"known": 1}
    run = prepare(spark, dict.copy, [shared], 2)
    shared["cached"] = 2
    assert run() == [{"known": 1}]


def test_workers_look_for_no_module_in_a_jar(spark: SparkSession) -> None:
    """Spark puts them on the path; the list of their files is not read anew before each task."""

    def archives(_: int) -> list[str]:
        return [path for path, finder in sys.path_importer_cache.items() if path.endswith(".jar") and finder]

    scatter(spark, archives, [0, 1], 2)
    assert scatter(spark, archives, [0, 1], 2) == [[], []]
