"""The same work on this machine's disk and on S3 with a REST catalog; `python -m benchmarks.stores` prints the ratios.

In each round both copy the table and then the same changes, one after the other, and take turns in who is first. The
seconds are those of the run's own events, from the end of its start-up to the last publish. The load of the machine
stands beside them: with other work on it the figures say little.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table

from benchmarks.copiers import lakeingest
from benchmarks.pipeline import document
from benchmarks.processes import Program
from benchmarks.rounds import CATCHUP, SECONDS, SNAPSHOT
from benchmarks.source import READER, administrator, serve_orders
from benchmarks.workload import FIRST, LIVE, Changes, rebuild
from lakeingest.demo.rest_catalog import local_rest_catalog
from lakeingest.demo.s3 import LocalS3, local_s3
from lakeingest.demo.server import LocalServer

_SEED = 11


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of wall and of the run's processors, after those of the start-up; `load` is the machine's at the end."""

    place: str
    scenario: str
    start: float
    wall: float
    cpu: float
    load: float


def in_store(store: LocalS3, uri: str, name: str) -> dict[str, Any]:
    """`target` and `state` of a pipeline.yml in a bucket."""
    keys = {"s3.access-key-id": store.access_key, "s3.secret-access-key": store.secret_key}
    root = f"s3://{store.bucket}/{name}"
    target = {
        "format": "iceberg",
        "catalog": {"type": "rest", "uri": uri, "name": "benchmark"},
        "warehouse": f"{root}/warehouse",
        "storage": {**store.storage, "properties": keys},
        "table": f"{{database}}_{name}.{{table}}",
    }
    return {"target": target, "state": f"{root}/state"}


def turn(
    server: LocalServer, folder: Path, place: str, given: dict[str, Any] | None, rows: int, changes: int
) -> Iterator[Took]:
    """A copy of the table anew, and then the changes; in the end both are equal."""
    with administrator(server) as connection:
        rebuild(connection, LIVE, rows)
        yield _measured(server, folder, place, given, SNAPSHOT)
        Changes(connection, range(FIRST, FIRST + rows), _SEED).commit(changes)
        yield _measured(server, folder, place, given, CATCHUP)
    doc = document(server.host, str(server.port), READER, LIVE.database, LIVE.name, given)
    (folder / "pipeline.yml").write_text(json.dumps(doc))
    done = subprocess.run(
        [sys.executable, "-m", "lakeingest", "verify"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{place}: the copy differs from the source: {done.stdout[-500:]} {done.stderr[-500:]}")


def _measured(server: LocalServer, folder: Path, place: str, given: dict[str, Any] | None, scenario: str) -> Took:
    """One run, which has nothing to do with Spark until it is needed."""
    where = [server.host, str(server.port), READER, LIVE.database, LIVE.name, str(folder)]
    command = [*lakeingest(folder), *where, *([json.dumps(given)] if given else [])]
    with Program(command, folder.with_suffix(".log")) as running:
        began = time.time()
        running.await_end(SECONDS)
        ready = running.await_event("Opened", 1)
        done = max(one["at"] for one in running.events if one["event"] == "Published")
        cpu = running.cpu(done) - running.cpu(ready)
        return Took(place, scenario, ready - began, done - ready, cpu, os.getloadavg()[0])


@dataclass(frozen=True, slots=True)
class Work:
    """How often, and how much."""

    rounds: int
    rows: int
    changes: int

    @classmethod
    def asked(cls, module: str, description: str) -> Self:
        """As the command line says."""
        parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description.partition("\n")[0])
        parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
        parser.add_argument("--rows", type=int, default=1_000_000, help="(default: %(default)s)")
        parser.add_argument("--changes", type=int, default=100_000, help="(default: %(default)s)")
        return cls(**vars(parser.parse_args()))


def compare(
    work: Work, server: LocalServer, folder: Path, places: Mapping[str, Callable[[str], dict[str, Any] | None]]
) -> None:
    """Measure two places, which take turns; print each round and the ratios of the medians.

    A place answers what a pipeline.yml of this name has besides the source; None is the folder of the run.
    """
    found: list[Took] = []
    console = Console()
    first, second = places
    for number in range(work.rounds + 1):  # the first one compiles what all later ones find
        for place in (first, second) if number % 2 else (second, first):
            name = f"round{number}_{list(places).index(place)}"
            own = folder / name
            own.mkdir()
            rows, changes = (work.rows, work.changes) if number else (work.rows // 20, 1_000)
            for took in turn(server, own, place, places[place](name), rows, changes):
                if number:
                    found.append(took)
                    console.print(f"round {number}: {took}")
    table = Table("", "", "start-up, s", "wall, s", "CPU, s")
    whats = ("start", "wall", "cpu")
    for scenario in (SNAPSHOT, CATCHUP):
        for place in places:
            table.add_row(scenario, place, *(f"{_median(found, place, scenario, what):.2f}" for what in whats))
        ratios = (_median(found, second, scenario, what) / _median(found, first, scenario, what) for what in whats)
        table.add_row(scenario, "ratio", *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)


@contextmanager
def served(rows: int) -> Iterator[tuple[Path, LocalServer, Callable[[str], dict[str, Any]]]]:
    """A folder, a source with a table of so many rows, and what answers the place in S3 of a pipeline's name."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        server = stack.enter_context(serve_orders(folder, rows, {"innodb_buffer_pool_size": "1G"}))
        store = stack.enter_context(local_s3(folder / "s3"))
        uri = stack.enter_context(local_rest_catalog(folder / "rest", store=store))
        yield folder, server, partial(in_store, store, uri)


def main() -> None:
    """Compare this machine's disk with S3."""
    work = Work.asked("benchmarks.stores", __doc__)
    with served(work.rows) as (folder, server, in_s3):
        compare(work, server, folder, {"disk": lambda _: None, "S3 and REST": in_s3})


def _median(found: list[Took], place: str, scenario: str, what: str) -> float:
    values = (getattr(one, what) for one in found if (one.place, one.scenario) == (place, scenario))
    return float(statistics.median(values))


if __name__ == "__main__":
    main()
