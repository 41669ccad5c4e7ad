"""A server of a test's own that is killed, started again, and set back to an earlier copy of its data."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pymysql

from lakeingest.demo.server import LocalServer


class Mortal:
    """A server that can be killed, and started again on its data."""

    def __init__(self, server: LocalServer) -> None:
        assert server.pid is not None
        self.server = server
        self._pid = server.pid
        self._command = Path(f"/proc/{self._pid}/cmdline").read_bytes().split(b"\0")[:-1]
        self._folder = Path(f"/proc/{self._pid}/cwd").readlink()
        self._again: subprocess.Popen[bytes] | None = None

    def die(self) -> None:
        """Kill -9."""
        if self._again is not None:
            self.end()
            return
        os.kill(self._pid, signal.SIGKILL)
        while Path(f"/proc/{self._pid}/exe").exists():
            time.sleep(0.05)

    def rise(self, *options: str) -> pymysql.Connection:
        """Start it again, with these options in addition; a connection to it."""
        self._again = subprocess.Popen(
            [*self._command, *map(str.encode, options)],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.connect()
            except pymysql.err.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def connect(self) -> pymysql.Connection:
        """A connection to it."""
        server = self.server
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )

    def end(self) -> None:
        """Nothing runs any more."""
        if self._again is not None:
            self._again.kill()
            self._again.wait()
            self._again = None

    @property
    def data(self) -> Path:
        """The folder of its data."""
        prefix = b"--datadir="
        return Path(next(part.removeprefix(prefix) for part in self._command if part.startswith(prefix)).decode())

    def save(self, image: Path) -> None:
        """Copy its data, while it is dead."""
        shutil.copytree(self.data, image)

    def restore(self, image: Path) -> None:
        """Set its data back to a copy, while it is dead."""
        shutil.rmtree(self.data)
        shutil.copytree(image, self.data)
