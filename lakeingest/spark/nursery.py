"""The nursery: the process from which the worker processes of a run are forked.

The nursery imports the modules that tasks need before it forks the workers. So the workers begin at once, and share
the nursery's memory. If the run's own process has no other threads yet, the nursery is a fork of this process, and
waits until the run needs workers. If that process has other threads, as in a notebook, or because the client of an
object store is open, the nursery is a new process.
"""

import ctypes
import gc
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from os import _exit as end_process  # at once: a fork does not clean up what is its parent's
from pathlib import Path
from typing import BinaryIO, NoReturn, Self

import pyarrow as pa

from lakeingest.errors import LakeIngestError

_HELD_BYTES = 256 << 20  # a worker that copies rows holds less
_NAME = "lakeingest-work"  # of the process and its workers; a fork has the command line of its run
# the thread of PyArrow's allocator, which is made anew in a fork. The pools of PyArrow and OpenBLAS are, too: their
# threads have the name of the thread that began them
_ANEW_IN_FORK = "jemalloc_bg_thd"

# Python finds modules only where the run finds them, and takes none from the current folder
_NEW_PROCESS = """
import gc, json, sys
gc.disable()
sys.path[:] = json.loads(sys.argv[1])
from lakeingest.late_imports import import_late, import_pandas_later
import_late()
import_pandas_later()
from lakeingest.spark.nursery import nurse
from lakeingest.workers import import_all
nurse(int(sys.argv[2]), import_all)
"""


class Nursery:
    """A process that waits for `start`, and then forks workers. It ends with its run, even if the run is killed."""

    def __init__(self, pid: int, wait: Callable[[], object], control: socket.socket) -> None:
        """`wait` waits until the process has ended. Over `control`, it gets the open log and sockets of its workers."""
        self.pid, self._wait, self._control = pid, wait, control
        self._has_ended = False

    @classmethod
    def forked(cls, import_all: Callable[[], None]) -> Self | None:
        """A fork of this process, which calls `import_all` before it forks the workers.

        None if this process has several threads, because a fork would have only one of them, or if it cannot be forked.
        Threads that PyArrow and OpenBLAS make anew in a fork do not count.
        """
        if sys.platform != "linux" or threading.active_count() > 1 or _has_foreign_threads():
            return None
        ours, theirs = socket.socketpair()
        gc.freeze()  # a later collection would write to all objects, and so copy the memory that the fork shares
        blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the fork ignores it
        try:
            pid = os.fork()
        except OSError:  # no memory, or too many processes
            pid = None
        if pid == 0:
            try:
                os.setpgid(0, 0)  # Ctrl-C ends the run at its next commit, for which it needs its workers
                ours.close()  # while it is open here, the nursery does not notice that the run has ended
                nurse(theirs.detach(), import_all)
            except BaseException:  # noqa: BLE001 - the code of the run must not go on in two processes
                traceback.print_exc()
            finally:
                end_process(1)  # after an error: otherwise `nurse` ends the process
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
        theirs.close()
        if pid is None:
            ours.close()
            return None
        with suppress(OSError):  # here, too, so that `end` finds the group at once; the fork may have ended
            os.setpgid(pid, pid)
        return cls(pid, partial(os.waitpid, pid, 0), ours)

    @classmethod
    def started(cls, log: BinaryIO) -> Self:
        """A new process, which prints to this log."""
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _NEW_PROCESS, json.dumps(list(map(str, sys.path))), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,  # as in a fork
        )
        theirs.close()
        return cls(process.pid, process.wait, ours)

    def start(self, log: BinaryIO, sockets: Sequence[socket.socket]) -> None:
        """Fork a worker for each of these sockets. The workers print to this log. A second call is not possible."""
        with suppress(BrokenPipeError), self._control:  # if the process has ended, the run sees that no worker answers
            for file in (log.fileno(), *(each.fileno() for each in sockets)):
                socket.send_fds(self._control, [b"f"], [file])

    def end(self) -> None:
        """Kill the process and its workers. A second call does nothing: another process may have the number by then."""
        if self._has_ended:
            return
        self._has_ended = True
        self._control.close()
        with suppress(ProcessLookupError):  # the group has ended already
            os.killpg(self.pid, signal.SIGKILL)
        self._wait()


def _has_foreign_threads() -> bool:
    """Whether a library has begun threads, unknown to Python, that a fork may miss. True if the system does not tell.

    With a store's client, whose threads are `tokio-runtime-w`, a fork ends with a segmentation fault.
    """
    try:
        tasks = Path("/proc/self/task")
        own = (tasks / str(os.getpid()) / "comm").read_bytes()
        return any(
            (task / "comm").read_bytes() not in {own, _ANEW_IN_FORK.encode() + b"\n"} for task in tasks.iterdir()
        )
    except OSError:
        return True


def nurse(control: int, import_all: Callable[[], None]) -> NoReturn:
    """Wait for the files that `Nursery.start` sends over this socket; then call `import_all`, and fork the workers.

    The process ends when all workers have ended. It ends without workers if the run ends before it sends files.
    """
    with suppress(OSError):  # only Linux shows this name, in `ps` and `top`
        Path("/proc/self/comm").write_text(_NAME)
    # if a scheduler sends SIGTERM to all processes, the run still needs its workers, until its next commit
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    files: list[int] = []  # the log, then the end of a socket for each worker
    with socket.socket(fileno=control) as run:
        while received := socket.recv_fds(run, 1, 1)[1]:  # no file: the run has closed the socket, or has ended
            files += received
    if files:
        log, *ends = files
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - its number is needed
            for file, number in ((nothing.fileno(), 0), (log, 1), (log, 2)):  # stdin, stdout and stderr
                os.dup2(file, number)
        os.close(log)
        gc.disable()  # so that no collection looks at the imported objects again and again
        import_all()
        gc.freeze()
        gc.enable()
        _fork_workers(ends)
    end_process(0)


def _fork_workers(ends: Sequence[int]) -> None:
    """Fork a worker for each of these open sockets, and wait until all workers have ended."""
    for end in ends:
        if os.fork() == 0:
            for other in ends:
                if other != end:  # while it is open, the run does not notice that the other worker has ended
                    os.close(other)
            _work(Connection(end))  # never returns
    for end in ends:
        os.close(end)
    with suppress(ChildProcessError):  # no worker is left
        while True:
            os.wait()


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
            _give_back_memory()
    end_process(0)


def _give_back_memory() -> None:
    """Give the memory that tasks have freed back to the system, if this process holds much more than it uses.

    The allocators keep it otherwise. So after some large merges a worker held twice as much as its largest task needs.
    Of jemalloc, PyArrow gives nothing back in a fork: what it keeps is limited by `late_imports.import_late`.
    """
    if sys.platform != "linux":
        return
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()  # in pages
    if (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") > _HELD_BYTES:
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None:
            trim(0)


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
