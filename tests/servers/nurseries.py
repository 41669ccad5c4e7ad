"""Nurseries that are ready at once: a process that has imported what workers need is forked for each.

The nursery of a run that has threads is a new process, which takes two seconds for its imports. Tests have many runs.
`tests/spark/test_own_workers.py` starts nurseries as a run does.
"""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from os import _exit as end_process
from typing import BinaryIO

from lakeingest.spark.nursery import Nursery

_SIZE = struct.Struct("!Q")  # of a message, or the number of a process
_COMMAND = """
import gc, json, sys
gc.disable()
sys.path[:] = json.loads(sys.argv[1])
from lakeingest.late_imports import import_late, import_pandas_later
import_late()
import_pandas_later()
from tests.servers.nurseries import serve
serve(int(sys.argv[2]))
"""


class Nurseries:
    """The process that is forked. It starts with the first nursery, and ends with `close`, or with this process."""

    def __init__(self) -> None:
        self._asking: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def started(self, log: BinaryIO) -> Nursery:
        """As `Nursery.started`, with the variables, the path and the folder that this process has now."""
        given = {"variables": dict(os.environ), "path": list(map(str, sys.path)), "folder": os.getcwd()}  # noqa: PTH109
        message = json.dumps(given).encode()
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            asking = self._asking or self._open()
            socket.send_fds(asking, [_SIZE.pack(len(message))], [theirs.fileno(), log.fileno()])
            asking.sendall(message)
            [pid] = _SIZE.unpack(_received(asking, _SIZE.size))
        return Nursery(pid, _Ending(pid).wait, ours)

    def close(self) -> None:
        """End the process. Nurseries that it has started go on."""
        if self._asking is not None and self._process is not None:
            self._asking.close()
            self._process.wait()
            self._asking = self._process = None

    def _open(self) -> socket.socket:
        self._asking, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-c", _COMMAND, json.dumps(list(map(str, sys.path))), str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
            )
        return self._asking


class _Ending:
    """The end of a process that is no child of this one."""

    def __init__(self, pid: int) -> None:
        self._file = os.pidfd_open(pid)

    def wait(self) -> None:
        """Wait for it."""
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.poll()
        os.close(self._file)


def serve(number: int) -> None:
    """Fork a nursery whenever the tests ask for one over this socket, until they have ended."""
    import gc

    from lakeingest.workers import import_all

    import_all()
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the nurseries
    with socket.socket(fileno=number) as asked:
        while True:
            head, files, *_ = socket.recv_fds(asked, _SIZE.size, 2)
            if not head:
                return
            message = _received(asked, _SIZE.unpack(head)[0])
            pid = os.fork()
            if pid == 0:
                asked.close()
                _nurse(message, *files)
            with suppress(OSError):  # the fork has done it, or has ended
                os.setpgid(pid, pid)
            for file in files:
                os.close(file)
            asked.sendall(_SIZE.pack(pid))


def _nurse(message: bytes, control: int, log: int) -> None:
    """Become a nursery, with what the tests have given."""
    from lakeingest.spark.nursery import nurse
    from lakeingest.workers import import_all

    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        for output in (1, 2):
            os.dup2(log, output)
        os.close(log)
        given = json.loads(message)
        os.environ.clear()
        os.environ.update(given["variables"])
        sys.path[:] = given["path"]
        os.chdir(given["folder"])
        nurse(control, import_all)
    finally:
        end_process(1)  # after an error: otherwise `nurse` ends the process


def _received(file: socket.socket, size: int) -> bytes:
    """So many bytes. Raises EOFError where the other side has ended."""
    parts = b""
    while len(parts) < size:
        part = file.recv(size - len(parts))
        if not part:
            raise EOFError("the process that is forked for nurseries has ended")
        parts += part
    return parts
