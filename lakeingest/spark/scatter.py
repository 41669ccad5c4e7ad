"""Calls a function once for each descriptor, which is the call's only argument, and returns the results.

The calls are tasks on Spark's executors or in worker processes of the run (`own_workers`), or they run in this process.
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
    """The function's results in the order of the descriptors. At most `at_once` calls run at the same time.

    Without workers, this process computes the results one after another. With workers, the function, descriptors and
    results are pickled.

    If calls fail with LakeIngestErrors, the error of the first of their descriptors is raised. A Spark task returns
    such an error as a value, so that Spark does not repeat the task. Any other error of a task fails the Spark job.
    """
    return prepare(workers, function, descriptors, at_once)()


def prepare(
    workers: Workers,
    function: Callable[[Descriptor], Result],
    descriptors: Sequence[Descriptor],
    at_once: int,
) -> Callable[[], list[Result]]:
    """A function without arguments that does the work of `scatter`, to be called in a background thread.

    With workers, the descriptors are pickled now, in the caller's thread. In the background, pickling could fail
    because the caller changes an object at the same time: a commit, for example, adds entries to the caches of a
    table's metadata.
    """
    if workers is None or not descriptors:
        return lambda: [function(descriptor) for descriptor in descriptors]
    if isinstance(workers, OwnWorkers):
        return workers.prepare(function, descriptors, at_once)
    task_count = len(descriptors)  # a task for each descriptor, so that no descriptor waits for a slow one
    if at_once < workers.sparkContext.defaultParallelism:  # Spark would run more than `at_once` tasks at the same time
        task_count = min(task_count, at_once)
    # Spark cuts the list into a part for each task. So that neighbours go to different tasks, the list begins with the
    # descriptors 0, n, 2n, … for the first of n tasks
    numbered = list(enumerate(descriptors))
    parts = [numbered[first::task_count] for first in range(task_count)]
    by_task = [item for part in parts for item in part]
    # `parallelize` pickles the descriptors; `run` starts the tasks
    tasks = workers.sparkContext.parallelize(by_task, task_count).mapPartitions(_task_of(function))

    def run() -> list[Result]:
        outcomes = sorted(tasks.collect(), key=lambda outcome: outcome[0])  # by the descriptors' numbers
        for _, _, error in outcomes:
            if error is not None:
                raise error
        return [cast(Result, result) for _, result, _ in outcomes]

    return run


def warm_up(spark: "SparkSession") -> None:
    """Start Spark's Python workers, so that no task has to wait for their imports, which take seconds."""
    scatter(spark, len, [(), ()], 2)  # two tasks that only take the length of an empty tuple


def _task_of(
    function: Callable[[Descriptor], Result],
) -> Callable[[Iterable[tuple[int, Descriptor]]], Iterable[tuple[int, Result | None, LakeIngestError | None]]]:
    """The work of a Spark task, as a function of numbered descriptors.

    It yields the number, the result and the error of each descriptor; either the result or the error is None. After an
    error the task ends, because `scatter` returns no results then.
    """

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
    """Let this process ignore jars when it imports modules, and read the file list of each other archive only once.

    Spark puts the jars of `spark.jars.packages` and its own archives on the module path of its workers. A worker drops
    the file lists of all archives before each task. Reading the lists again takes longer than many tasks.
    """
    sys.path_hooks[:] = [_Archive if hook is zipimporter else hook for hook in sys.path_hooks]
    # forget the importers that Python has made already, so that `_Archive` takes their place
    archives = [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]
    for path in archives:
        del sys.path_importer_cache[path]


class _Archive(zipimporter):
    """Imports modules from an archive, but not from a jar."""

    def __init__(self, path: str) -> None:
        if path.endswith(".jar"):
            raise ImportError(f"{path} has no modules")
        super().__init__(path)

    def invalidate_caches(self) -> None:
        """Keep the file list, because an archive does not change."""
