"""Work ahead: it goes on beside the driver, its result and its errors come when they are asked for."""

import time

import pytest
from pyspark.sql import SparkSession

from lakeingest.errors import SchemaChanged
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.scatter import scatter

pytestmark = pytest.mark.spark


def test_jobs_of_two_threads_go_on_side_by_side(spark: SparkSession) -> None:
    """The driver's own job is done while the other one waits."""

    def slow(_: int) -> float:
        time.sleep(2)
        return time.time()

    ahead = BackgroundJob(spark, lambda: scatter(spark, slow, [0], 1))
    [here] = scatter(spark, lambda _: time.time(), [0], 1)
    assert here < ahead.result()[0]


def test_its_error_is_raised_with_the_result(spark: SparkSession) -> None:
    """As it was."""

    def work() -> None:
        raise SchemaChanged("shop.orders: changed")

    with pytest.raises(SchemaChanged, match="orders: changed"):
        BackgroundJob(spark, work).result()


def test_cancelling_ends_its_jobs_and_no_others(spark: SparkSession) -> None:
    """A task of ten minutes is not waited for."""
    began = time.monotonic()
    long = BackgroundJob(spark, lambda: scatter(spark, lambda _: time.sleep(600), [0], 1))
    other = BackgroundJob(spark, lambda: scatter(spark, lambda n: n, [1], 1))
    long.cancel()  # as a rule before its job has begun
    with pytest.raises(Exception, match="cancelled"):
        long.result()
    assert other.result() == [1]
    assert time.monotonic() - began < 60


@pytest.mark.long("jobs of Spark")
def test_without_a_session_it_is_done_in_this_process() -> None:
    """Beside the caller as well; cancelled, it is waited for."""
    ended = []

    def work() -> str:
        time.sleep(0.5)
        ended.append("work")
        return "done"

    ahead = BackgroundJob(None, work)
    assert ended == []
    ahead.cancel()
    assert ended == ["work"]
    assert ahead.result() == "done"
