"""What metrics add to the CPU seconds of a run: `python -m benchmarks.metrics`.

A run follows some tables twice: first without the key `metrics`, then with a text file and a port. The port is asked
every 15 seconds, as in the example configuration of Prometheus. In the first half of each run, some rows of each table
change each second. In the second half, no row changes. The CPU seconds of collecting events, of the text file and of
answers to requests are added up, each in the thread that does the work. Runs measure their tables without the key, too,
so of measuring only that counts which the key adds: the measures are stored, and the source is asked how long it keeps
its binlog. Then whole processes that have nothing to do, and do not follow, count the same parts, and what they import
for metrics.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pymysql

from benchmarks.part_costs import PartCosts
from benchmarks.source import administrator, serve_orders
from lakeingest.commands.run import run
from lakeingest.config import Config, parse_config
from lakeingest.monitoring.endpoint import Endpoint
from lakeingest.monitoring.export import Export
from lakeingest.monitoring.run_report import RunReport
from lakeingest.pipeline.events import Event, Following
from lakeingest.pipeline.rounds import measuring

DATABASE = "measured"
SCRAPE_SECONDS = 15.0  # the interval in the prometheus.yml that Prometheus ships; without a file it is a minute
_ROWS = 1_000  # of each table


_STORING, _ASKING, _COLLECTING, _ANSWERS = "storing measures", "asking", "collecting and writing", "answers"

# A run that counts itself: what it computes for metrics, and in all
_COUNTED = """
import sys, time
from pathlib import Path
import lakeingest.cli, lakeingest.commands.run
began = time.thread_time()
from lakeingest.monitoring.export import Export
clock_began = time.thread_time()
from benchmarks.part_costs import PartCosts
from lakeingest.monitoring.run_report import RunReport
from lakeingest.pipeline.rounds.measuring import Measuring
clock = PartCosts()
for owner, name in ((Export, "__init__"), (Export, "observe"), (Export, "end"), (Measuring, "_store"),
                    (Measuring, "_binlog_seconds")):
    clock.timed("metrics", owner, name)
clock.timed("reports", RunReport, "observe")
counting = time.thread_time() - clock_began
answer = Path(sys.argv[1])
try:
    sys.argv[:2] = ["lakeingest"]
    lakeingest.cli.main()
finally:
    metrics = clock_began - began + clock.seconds["metrics"]
    answer.write_text(f"{metrics} {time.process_time() - counting}")
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The CPU seconds of a phase of so many `seconds`: those of each part, and those of the whole process."""

    phase: str
    seconds: float
    parts: dict[str, float]
    process: float

    def line(self, without: "Cost") -> str:
        """What metrics have added, beside the same phase of the run without them."""
        parts = ", ".join(f"{name} {seconds * 1_000:.1f}" for name, seconds in self.parts.items())
        total = sum(self.parts.values())
        share, load = total / self.process, total / self.seconds
        return (
            f"{self.phase}: {total * 1_000:.1f} of {self.process * 1_000:.0f} CPU milliseconds in {self.seconds:.0f} s"
            f" for metrics ({parts}): {share:.2%} of the run's, {load:.3%} of a processor;"
            f" without metrics, the run took {without.process * 1_000:.0f}"
        )


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


def costs(config: Config, connection: pymysql.Connection, tables: int, seconds: float, clock: PartCosts) -> list[Cost]:
    """Follow for twice so many seconds, first with changes."""
    following, done, found = threading.Event(), threading.Event(), list[Cost]()

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
        for phase in ("with changes", "without changes"):
            began, parts, process = time.monotonic(), dict(clock.seconds), time.process_time()
            while time.monotonic() - began < seconds:
                if phase == "with changes":
                    _change(connection, tables)
                time.sleep(1)
            took = {part: clock.seconds[part] - parts[part] for part in (_STORING, _ASKING, _COLLECTING, _ANSWERS)}
            yield Cost(phase, time.monotonic() - began, took, time.process_time() - process)

    thread = threading.Thread(target=phases, daemon=True)
    thread.start()
    port = config.metrics.port
    with nullcontext() if port is None else asked(f"http://127.0.0.1:{port}/metrics"):
        run(config, observe=observe, follow=True, stopping=done.is_set)
    thread.join()
    return found


def idle_runs(doc: dict[str, Any], folder: Path, rounds: int) -> str:
    """What metrics take in whole processes that have nothing to do, their imports included."""
    path, answer, took = folder / "idle.yml", folder / "counted", list[tuple[float, float]]()
    path.write_text(json.dumps(doc | {"metrics": {"textfile": str(folder / "idle.prom")}}))
    for _ in range(rounds + 1):
        command = [sys.executable, "-c", _COUNTED, str(answer), "run", "-c", str(path)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        metrics, process = map(float, answer.read_text().split())
        took.append((metrics / process, metrics * 1_000))
    share, milliseconds = sorted(took[1:])[rounds // 2]  # the first one writes what Python compiles
    return (
        f"a whole run that has nothing to do: {milliseconds:.1f} CPU milliseconds for metrics, {share:.2%} of the run's"
        f" (median of {rounds}); in others {', '.join(f'{share:.2%}' for share, _ in took[1:])}"
    )


def _change(connection: pymysql.Connection, tables: int) -> None:
    with connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(f"UPDATE t{number} SET v = v + 1 WHERE MOD(id, 100) = {int(time.time()) % 100}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the tables, follow them, then show the costs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics", description=__doc__)
    parser.add_argument("--tables", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of runs that do not follow (default: %(default)s)")
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
            metrics = {"metrics": {"textfile": str(folder / "metrics.prom"), "port": port}}
            clock = PartCosts()
            clock.timed(_STORING, measuring.Measuring, "_store")
            clock.timed(_ASKING, measuring.Measuring, "_binlog_seconds")
            clock.timed(_COLLECTING, Export, "observe")
            clock.timed("reports, which are not metrics", RunReport, "observe")
            clock.timed(_ANSWERS, Endpoint, "process_request_thread")
            clock.timed(_ANSWERS, Endpoint, "process_request")
            usual, found = (
                costs(parse_config(doc | more, folder, {}), connection, options.tables, options.seconds, clock)
                for more in ({}, metrics)
            )
            for without, cost in zip(usual, found, strict=True):
                print(cost.line(without))
            print(idle_runs(doc, folder, options.rounds))


if __name__ == "__main__":
    main()
