"""Work in a background thread, on the executors or in this process, while the driver does other work."""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

from lakeingest.spark.own_workers import OwnWork, OwnWorkers
from lakeingest.spark.scatter import Workers

Result = TypeVar("Result")

_CANCEL_SECONDS = 5.0


class BackgroundJob(Generic[Result]):
    """A thread that runs `work` on `workers`. If they are a Spark session, `cancel` ends the Spark jobs of `work`."""

    def __init__(self, workers: Workers, work: Callable[[], Result]) -> None:
        self._work, self._tag = work, str(uuid.uuid4())
        spark = None if isinstance(workers, OwnWorkers) else workers
        self._context = None if spark is None else spark.sparkContext
        self._outcome: Future[Result] = Future()
        self._thread = _thread_class(with_session=spark is not None)(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the work has ended, so that `result` does not wait."""
        return self._outcome.done()

    def result(self) -> Result:
        """Wait for the work, and return its result. Raises the error of the work."""
        return self._outcome.result()

    def cancel(self) -> None:
        """End the work, whose result is not needed any more: its Spark jobs end, and `OwnWorkers` begin no more tasks.

        Waits until the thread has ended, for a few seconds at most.
        """
        if isinstance(self._work, OwnWork):
            self._work.cancel()
        if self._context is None:
            self._thread.join(_CANCEL_SECONDS)
            return
        from py4j.protocol import Py4JError

        deadline = time.monotonic() + _CANCEL_SECONDS
        with suppress(OSError, Py4JError):  # if Spark has ended, no job is left
            # repeated, because the thread may start another job after a cancel
            while self._thread.is_alive() and time.monotonic() < deadline:
                self._context.cancelJobsWithTag(self._tag)
                self._thread.join(0.05)

    def _run(self) -> None:
        """Do the work in the thread, and keep its result or its error for `result`."""
        try:
            if self._context is not None:
                self._context.addJobTag(self._tag)
            self._outcome.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._outcome.set_exception(error)


def _thread_class(*, with_session: bool) -> type[threading.Thread]:
    """The class of the thread. With a session it is PySpark's own, so that a tag is only for this thread's jobs."""
    if not with_session:
        return threading.Thread
    from pyspark import InheritableThread

    return InheritableThread
