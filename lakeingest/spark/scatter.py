"""Run a function over descriptors on the executors. What it returns comes back; what it raises is raised here."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from lakeingest.errors import LakeIngestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Descriptor = TypeVar("Descriptor")
Result = TypeVar("Result")


def scatter(
    spark: "SparkSession", function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], at_once: int
) -> list[Result]:
    """The function's results in the order of the descriptors, at most `at_once` of them computed at a time.

    Function, descriptors and results are pickled. An error of ours in a task is a value on the wire, so Spark does
    not run the task again, and the first one is raised here as it was; anything else fails the job as Spark has it.
    """
    if not descriptors:
        return []
    # a task each, so that none waits behind a slow one; where Spark would run more at a time, as many as may
    parts = len(descriptors) if at_once >= spark.sparkContext.defaultParallelism else min(len(descriptors), at_once)
    tasks = spark.sparkContext.parallelize(list(enumerate(descriptors)), parts)
    outcomes = sorted(tasks.mapPartitions(_each(function)).collect(), key=lambda outcome: outcome[0])
    for _, _, error in outcomes:
        if error is not None:
            raise error
    return [cast(Result, result) for _, result, _ in outcomes]


def _each(
    function: Callable[[Descriptor], Result],
) -> Callable[[Iterable[tuple[int, Descriptor]]], Iterable[tuple[int, Result | None, LakeIngestError | None]]]:
    def run(items: Iterable[tuple[int, Descriptor]]) -> Iterable[tuple[int, Result | None, LakeIngestError | None]]:
        for index, descriptor in items:
            try:
                yield index, function(descriptor), None
            except LakeIngestError as error:
                yield index, None, error.with_traceback(None)
                return

    return run
