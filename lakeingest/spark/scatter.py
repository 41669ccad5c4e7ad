"""Run a function over descriptors, on Spark's executors or on the run's own workers.

Results and errors come back to the driver.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast
from zipimport import zipimporter

from lakeingest.errors import LakeIngestError
from lakeingest.spark.own_workers import OwnWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Descriptor = TypeVar("Descriptor")
Result = TypeVar("Result")
Workers: TypeAlias = "SparkSession | OwnWorkers | None"  # None: this process, which has one task at a time


def scatter(
    workers: Workers,
    function: Callable[[Descriptor], Result],
    descriptors: Sequence[Descriptor],
    at_once: int,
) -> list[Result]:
    """The function's results in the order of the descriptors, at most `at_once` of them computed at a time.

    Function, descriptors and results are pickled, unless this process computes them.

    Raises the first LakeIngestError of a task. Such an error comes back as a value, so that Spark does not repeat the
    task. Any other error fails the Spark job.
    """
    return prepare(workers, function, descriptors, at_once)()


def prepare(
    workers: Workers,
    function: Callable[[Descriptor], Result],
    descriptors: Sequence[Descriptor],
    at_once: int,
) -> Callable[[], list[Result]]:
    """A function without arguments that does the work of `scatter`, for a background thread.

    The descriptors are pickled here, in the caller's thread. Later the caller may change objects that they refer to,
    and pickling fails while a dictionary grows: for example, commits fill the caches of a table's metadata.
    """
    if workers is None or not descriptors:
        return lambda: [function(descriptor) for descriptor in descriptors]
    if isinstance(workers, OwnWorkers):
        return workers.prepare(function, descriptors, at_once)
    # one task per descriptor, so that none waits behind a slow one; fewer if Spark would run too many at once
    parts = len(descriptors) if at_once >= workers.sparkContext.defaultParallelism else min(len(descriptors), at_once)
    numbered = list(enumerate(descriptors))
    dealt = [item for part in range(parts) for item in numbered[part::parts]]
    tasks = workers.sparkContext.parallelize(dealt, parts).mapPartitions(_each(function))

    def run() -> list[Result]:
        outcomes = sorted(tasks.collect(), key=lambda outcome: outcome[0])
        for _, _, error in outcomes:
            if error is not None:
                raise error
        return [cast(Result, result) for _, result, _ in outcomes]

    return run


def warm_up(spark: "SparkSession") -> None:
    """Start Spark's Python workers, so that no task has to wait for their imports, which take seconds."""
    scatter(spark, len, [(), ()], 2)


def _each(
    function: Callable[[Descriptor], Result],
) -> Callable[[Iterable[tuple[int, Descriptor]]], Iterable[tuple[int, Result | None, LakeIngestError | None]]]:
    """The work of one Spark task: the number of each descriptor, with its result or its error, after which it ends."""

    def run(items: Iterable[tuple[int, Descriptor]]) -> Iterable[tuple[int, Result | None, LakeIngestError | None]]:
        read_archives_once()
        for index, descriptor in items:
            try:
                yield index, function(descriptor), None
            except LakeIngestError as error:
                yield index, None, error.with_traceback(None)
                return

    return run


@functools.cache
def read_archives_once() -> None:
    """Let this process ignore jars when it looks for modules, and read the file list of other archives only once.

    Spark puts the jars of `spark.jars.packages` and its own archives on the path of its workers. A worker drops their
    file lists before each task, and it takes longer to read them again than to run many a task.
    """
    sys.path_hooks[:] = [_Archive if hook is zipimporter else hook for hook in sys.path_hooks]
    for path in [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]:
        del sys.path_importer_cache[path]


class _Archive(zipimporter):
    def __init__(self, path: str) -> None:
        if path.endswith(".jar"):
            raise ImportError(f"{path} has no modules")
        super().__init__(path)

    def invalidate_caches(self) -> None:
        """An archive does not change."""
