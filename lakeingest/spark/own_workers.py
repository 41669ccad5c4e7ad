"""Worker processes that a run starts on this machine. They are ready in a second; Spark's workers need five.

A process without threads, the nursery, imports what tasks need. The workers are forked from it, and share its memory.
Each worker has one end of a socket, and the run has the other end. When the run ends, even if it is killed, its ends
are closed. Then the workers end at once, also in the middle of a task, because nobody takes the result of the task, and
the source would have to keep a read view for it.
"""

import json
import os
import pickle
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing.connection import Connection
from os import _exit as end_process  # at once: a fork does not clean up what is its parent's
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, cast

from lakeingest.errors import LakeIngestError, SparkLost
from lakeingest.spark.settings import open_log

Descriptor = TypeVar("Descriptor")
Result = TypeVar("Result")

LOG = "workers.log"
# Python finds modules only where the run finds them, and takes none from the current folder
_NURSERY = """
import gc, json, sys
gc.disable()
sys.path[:] = json.loads(sys.argv[1])
from lakeingest.pandas_later import import_pandas_later
import_pandas_later()
from lakeingest.workers import nurse
nurse()
"""


class OwnWorkers:
    """`count` worker processes. They start in the background; the first tasks wait for them."""

    def __init__(self, count: int, log_folder: Path) -> None:
        """Start the processes. What they print goes to a log in this folder."""
        pairs = [socket.socketpair() for _ in range(count)]
        ends = [theirs.fileno() for _, theirs in pairs]
        with open_log(log_folder / LOG) as log:
            self._nursery = subprocess.Popen(
                [sys.executable, "-I", "-c", _NURSERY, json.dumps(list(map(str, sys.path))), *map(str, ends)],
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C ends the run at its next commit, for which it needs its workers
            )
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
        with suppress(ProcessLookupError):  # all have ended already
            os.killpg(self._nursery.pid, signal.SIGKILL)  # the group of the nursery and its workers
        self._nursery.wait()
        for worker in self._workers:
            worker.close()

    def _loss_error(self) -> SparkLost:
        return SparkLost(f"a worker process of this run ended; see {self._log}, and run the same command again")


class _Cancelled(RuntimeError):
    """The work was cancelled before this task began."""


class OwnWork(Generic[Result]):
    """Tasks for `OwnWorkers`. The object is called once: the call runs the tasks and waits for their results."""

    def __init__(self, workers: OwnWorkers, tasks: Sequence[bytes], at_once: int) -> None:
        self._workers, self._tasks = workers, tasks
        self._at_once, self._is_cancelled = max(1, min(at_once, workers.count)), threading.Event()

    def cancel(self) -> None:
        """Begin no more tasks. Those at work go on, but `__call__` then raises an error if a task was not begun."""
        self._is_cancelled.set()

    def __call__(self) -> list[Result]:
        """The results, in the order of the tasks. If tasks failed, the error of the first of them is raised."""
        pool = ThreadPoolExecutor(self._at_once)
        outcomes = [pool.submit(self._answer, task) for task in self._tasks]
        try:
            wait(outcomes)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for no task: `close` ends it
        errors = [error for outcome in outcomes if (error := outcome.exception()) is not None]
        if errors:  # a failed task has cancelled those that had not begun: its error is the reason
            raise next((error for error in errors if not isinstance(error, _Cancelled)), errors[0])
        return [outcome.result() for outcome in outcomes]

    def _answer(self, task: bytes) -> Result:
        if self._is_cancelled.is_set():
            raise _Cancelled("this work was cancelled before its last task began")
        try:
            return cast(Result, self._workers.answer(task))
        except BaseException:  # the call raises it, so the results of other tasks are not needed
            self.cancel()
            raise


def serve(ends: Iterable[int]) -> NoReturn:
    """Fork a worker for each of these open sockets, and end when all workers have ended. Never returns."""
    # a scheduler that ends all processes lets the run end at its next commit, for which it needs its workers
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    every_end = list(ends)
    for end in every_end:
        if os.fork() == 0:
            for other in every_end:
                if other != end:  # while it is open, the run does not notice that the other worker has ended
                    os.close(other)
            _work(Connection(end))
    for end in every_end:
        os.close(end)
    with suppress(ChildProcessError):  # no worker is left
        while True:
            os.wait()
    end_process(0)


def _work(run: Connection) -> NoReturn:
    """Answer tasks until the run closes its end of the socket."""
    threading.Thread(target=_end_with, args=(run.fileno(),), daemon=True).start()
    hang_up = _hang_up_of(run.fileno())
    with suppress(EOFError, OSError):  # the run has closed its end
        while True:
            task = run.recv_bytes()
            if hang_up.poll(0):  # the run has ended after it sent the task
                break
            run.send_bytes(_outcome(task))
    end_process(0)


def _end_with(end: int) -> NoReturn:
    """Wait until the run has closed its end of the socket, then end this process."""
    _hang_up_of(end).poll()
    end_process(0)


def _hang_up_of(end: int) -> select.poll:
    """A poll for one event: the other end of the socket is closed, even if bytes from it are still to be read."""
    poll = select.poll()
    poll.register(end, 0)  # POLLHUP is always included
    return poll


def _outcome(task: bytes) -> bytes:
    """A pickled pair: the result of the task and None, or None and the error of the task."""
    try:
        function, descriptor = pickle.loads(task)  # noqa: S301 - of the run, over a socket that nobody else has
        return pickle.dumps((function(descriptor), None))
    except LakeIngestError as error:
        return pickle.dumps((None, error.with_traceback(None)))
    except BaseException as error:  # noqa: BLE001 - the run raises it
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        try:
            return pickle.dumps((None, error.with_traceback(None)))
        except Exception:  # noqa: BLE001 - the error has something that cannot be pickled
            return pickle.dumps((None, RuntimeError(traceback.format_exc())))
