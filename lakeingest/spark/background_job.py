"""Background work, on the executors or in this process, while the driver does other work."""

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
    """A thread that runs `work` on these workers. `cancel` ends the jobs that `work` starts in a Spark session."""

    def __init__(self, workers: Workers, work: Callable[[], Result]) -> None:
        spark = None if isinstance(workers, OwnWorkers) else workers
        self._context, self._tag, self._work = None if spark is None else spark.sparkContext, str(uuid.uuid4()), work
        self._outcome: Future[Result] = Future()
        self._thread = _kind_of_thread(with_session=spark is not None)(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether `result` returns, or raises, without waiting."""
        return self._outcome.done()

    def result(self) -> Result:
        """Wait for the work, and return its result. Raises the error of the work."""
        return self._outcome.result()

    def cancel(self) -> None:
        """End the jobs of the work, also one that begins in the next seconds. Its result is not needed any more."""
        if isinstance(self._work, OwnWork):
            self._work.cancel()
        if self._context is None:  # a task ends by itself
            self._thread.join(_CANCEL_SECONDS)
            return
        from py4j.protocol import Py4JError

        deadline = time.monotonic() + _CANCEL_SECONDS
        with suppress(OSError, Py4JError):  # without Spark no job is left
            while self._thread.is_alive() and time.monotonic() < deadline:
                self._context.cancelJobsWithTag(self._tag)
                self._thread.join(0.05)

    def _run(self) -> None:
        try:
            if self._context is not None:
                self._context.addJobTag(self._tag)
            self._outcome.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._outcome.set_exception(error)


def _kind_of_thread(*, with_session: bool) -> type[threading.Thread]:
    """The class of the thread: PySpark's own if the work has a session, because Spark tags jobs by thread."""
    if not with_session:
        return threading.Thread
    from pyspark import InheritableThread

    return InheritableThread
