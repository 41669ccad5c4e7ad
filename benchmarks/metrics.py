"""What metrics cost a run that follows: `python -m benchmarks.metrics`.

The run has a text file and a port, which is asked as often as the configuration that Prometheus ships asks it. The CPU
seconds of measuring, of the text file, of collecting events and of answers to requests are added up, each in the thread
that does the work, and compared with the CPU seconds of the whole process. First some rows of each table change each
second, then none. Measuring counts whole, although runs measure their tables without metrics, too.
"""

import argparse
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pymysql
from prometheus_client.exposition import ThreadingWSGIServer

from benchmarks.source import administrator, serve_orders
from lakeingest.commands.run import run
from lakeingest.config import Config, parse_config
from lakeingest.monitoring.export import Export
from lakeingest.pipeline.events import Event, Following
from lakeingest.pipeline.rounds.measuring import Measuring

DATABASE = "measured"
SCRAPE_SECONDS = 15.0  # the interval in the prometheus.yml that Prometheus ships; without a file it is a minute
_ROWS = 1_000  # of each table


@dataclass(frozen=True, slots=True)
class Cost:
    """The CPU seconds of a phase of so many `seconds`: those for metrics, and those of the whole process."""

    phase: str
    seconds: float
    metrics: float
    process: float

    def __str__(self) -> str:
        share = self.metrics / self.process
        return (
            f"{self.phase}: {self.metrics:.3f} of {self.process:.2f} CPU seconds in {self.seconds:.0f} s for metrics:"
            f" {share:.2%} of the run's, {self.metrics / self.seconds:.3%} of a processor"
        )


class Clock:
    """The CPU seconds of some functions. One that another one calls counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock, self._thread = threading.Lock(), threading.local()

    def timed(self, owner: type, name: str) -> None:
        """Let a method of a class count."""
        function: Callable[..., Any] = getattr(owner, name)

        @wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            if getattr(self._thread, "is_counted", False):
                return function(*arguments, **named)
            self._thread.is_counted, began = True, time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self._thread.is_counted = False
                with self._lock:
                    self.seconds += time.thread_time() - began

        setattr(owner, name, counted)


@contextmanager
def asked(url: str) -> Iterator[None]:
    """Something asks for the metrics meanwhile, in this process: that costs the run nothing that counts."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(SCRAPE_SECONDS):
            with urlopen(url) as answer:  # noqa: S310 - a port of this machine
                answer.read()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def costs(config: Config, connection: pymysql.Connection, tables: int, seconds: float) -> list[Cost]:
    """Follow for twice so many seconds, first with changes."""
    clock, following = Clock(), threading.Event()
    clock.timed(Measuring, "_measure")
    clock.timed(Export, "observe")
    clock.timed(ThreadingWSGIServer, "process_request_thread")
    done, found = threading.Event(), list[Cost]()

    def observe(event: Event) -> None:
        if isinstance(event, Following):
            following.set()

    def phases() -> None:
        try:
            following.wait()
            found.extend(measured())
        finally:
            done.set()

    def measured() -> Iterator[Cost]:
        for phase in ("with changes", "without"):
            began, metrics, process = time.monotonic(), clock.seconds, time.process_time()
            while time.monotonic() - began < seconds:
                if phase == "with changes":
                    _change(connection, tables)
                time.sleep(1)
            took = time.monotonic() - began
            yield Cost(phase, took, clock.seconds - metrics, time.process_time() - process)

    thread = threading.Thread(target=phases, daemon=True)
    thread.start()
    with asked(f"http://127.0.0.1:{config.metrics.port}/metrics"):
        run(config, observe=observe, follow=True, stopping=done.is_set)
    thread.join()
    return found


def _change(connection: pymysql.Connection, tables: int) -> None:
    with connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(f"UPDATE t{number} SET v = v + 1 WHERE MOD(id, 100) = {int(time.time()) % 100}")


def main(arguments: Sequence[str] | None = None) -> list[Cost]:
    """Make the tables, follow them, then show the costs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics", description=__doc__)
    parser.add_argument("--tables", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="metrics-") as place, serve_orders(Path(place), 1, {}) as server:
        folder = Path(place)
        with administrator(server) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"USE {DATABASE}")
            for number in range(options.tables):
                cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v INT)")
                cursor.execute(f"INSERT INTO t{number} VALUES {', '.join(f'({n}, 0)' for n in range(_ROWS))}")
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            source = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
            doc: dict[str, Any] = {"name": "metrics", "source": source, "tables": {"include": [f"{DATABASE}.*"]}}
            doc["metrics"] = {"textfile": str(folder / "metrics.prom"), "port": port}
            found = costs(parse_config(doc, folder, {}), connection, options.tables, options.seconds)
    for cost in found:
        print(cost)
    return found


if __name__ == "__main__":
    main()
