"""Worker processes that a run starts on this machine. They are ready in a second; Spark's workers need five.

The workers are forked from the `nursery`. Each worker has one end of a socket, and the run has the other end. When the
run ends, even if it is killed, its ends of the sockets are closed. Then the workers end at once, even in the middle of
a task, because nobody takes the result of the task, and the source would have to keep a read view for it.
"""

import pickle
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from lakeingest.errors import SparkLost
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.settings import open_log

Descriptor = TypeVar("Descriptor")
Result = TypeVar("Result")

LOG = "workers.log"


class OwnWorkers:
    """`count` worker processes. They start in the background; the first tasks wait for them."""

    def __init__(self, count: int, log_folder: Path, nursery: Nursery | None = None) -> None:
        """Start the processes, from this nursery or from a new one. Their output goes to a log in `log_folder`."""
        pairs = [socket.socketpair() for _ in range(count)]
        with open_log(log_folder / LOG) as log:
            self._nursery = nursery or Nursery.started(log)
            self._nursery.start(log, [theirs for _, theirs in pairs])
        self.count, self._log = count, log_folder / LOG
        self._idle = queue.SimpleQueue[Connection | None]()  # None: a worker has ended
        self._workers = []
        for ours, theirs in pairs:
            theirs.close()  # the nursery has its own copy of it
            worker = Connection(ours.detach())
            self._workers.append(worker)
            self._idle.put(worker)

    def prepare(
        self, function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], at_once: int
    ) -> "OwnWork[Result]":
        """The work of calling the function with each descriptor.

        The function and the descriptors are pickled now, in the caller's thread.
        """
        return OwnWork(self, [pickle.dumps((function, descriptor)) for descriptor in descriptors], at_once)

    def answer(self, task: bytes) -> Any:
        """The result of a task: a pickled function and its argument. Waits for an idle worker, which runs the task.

        Raises the error of the function, or SparkLost if a worker has ended.
        """
        worker = self._idle.get()
        if worker is None:
            self._idle.put(None)  # for the next caller that waits
            raise self._loss_error()
        try:
            worker.send_bytes(task)
            result, error = pickle.loads(worker.recv_bytes())  # noqa: S301 - of our own worker, over its socket
        except (EOFError, OSError) as lost:
            self._idle.put(None)  # other callers may wait for this worker
            raise self._loss_error() from lost
        self._idle.put(worker)
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Kill the workers. Nobody takes the result of a task that a worker still has."""
        self._nursery.end()
        for worker in self._workers:
            worker.close()

    def _loss_error(self) -> SparkLost:
        return SparkLost(
            f"a worker process of this run ended; {self._log} says why, unless it was killed, as when memory is short;"
            " run the same command again"
        )


class _Cancelled(RuntimeError):
    """The work was cancelled before this task began."""


class OwnWork(Generic[Result]):
    """Tasks for `OwnWorkers`. The object is called once: the call runs the tasks and waits for their results."""

    def __init__(self, workers: OwnWorkers, tasks: Sequence[bytes], at_once: int) -> None:
        self._workers, self._tasks = workers, tasks
        self._at_once = max(1, min(at_once, workers.count))
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """Begin no more tasks. Tasks at work go on. `__call__` raises an error if a task is left out by this."""
        self._is_cancelled.set()

    def __call__(self) -> list[Result]:
        """The results, in the order of the tasks. If tasks failed, the error of the first of them is raised."""
        pool = ThreadPoolExecutor(self._at_once)
        outcomes = [pool.submit(self._answer, task) for task in self._tasks]
        try:
            wait(outcomes)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no task: `close` ends it
        errors_or_none = [outcome.exception() for outcome in outcomes]
        errors = [error for error in errors_or_none if error is not None]
        if errors:  # a `_Cancelled` is not the reason, unless `cancel` was called from outside
            raise next((error for error in errors if not isinstance(error, _Cancelled)), errors[0])
        return [outcome.result() for outcome in outcomes]

    def _answer(self, task: bytes) -> Result:
        """The result of a task. If the task fails, the work is cancelled, so that no more tasks begin."""
        if self._is_cancelled.is_set():
            raise _Cancelled("this work was cancelled before its last task began")
        try:
            return cast(Result, self._workers.answer(task))
        except BaseException:  # the call raises it, so the results of other tasks are not needed
            self.cancel()
            raise
