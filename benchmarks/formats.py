"""Measure lakeingest on each format, side by side: `python -m benchmarks.formats`.

The formats take turns, round by round, on one server and one table. A turn is the first copy into an empty lake, then a
run for a small batch of changes, then one for a large one, then one with nothing to do, each by the command `lakeingest
run`. Seconds are those of the whole process, start-up too. A first turn on a tiny table is not measured: it fetches
jars and compiles kernels. Each copy is verified at the end of its last turn.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import pymysql

from benchmarks.pipeline import document
from benchmarks.processes import Program
from benchmarks.source import READER, administrator, serve_orders
from benchmarks.workload import FIRST, LIVE, Changes, rebuild
from lakeingest.config import FORMATS
from lakeingest.demo.server import LocalServer

SECONDS = 3_600.0  # for one run
TINY_ROWS = 1_000
COPY, NOTHING, VERIFY = "first copy", "nothing to do", "verify"
_SEED = 13


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of a format: its seconds, those of the processors, and how busy the machine was when it ended."""

    work: str
    lake_format: str
    round: int
    wall: float
    cpu: float
    load: float


def turn(
    server: LocalServer, connection: pymysql.Connection, place: Path, number: int, rows: int, batches: Sequence[int]
) -> Iterator[Turn]:
    """The runs of all formats in a round, each on the same rows and the same changes."""
    for lake_format in FORMATS:
        rebuild(connection, LIVE, rows)
        changes = Changes(connection, range(FIRST, FIRST + rows), _SEED)
        with tempfile.TemporaryDirectory(prefix=f"{lake_format}-", dir=place) as temporary:
            folder = Path(temporary)
            yield _run(server, folder, lake_format, number, COPY)
            for size in batches:
                changes.commit(size)
                yield _run(server, folder, lake_format, number, f"{size:,} changes")
            yield _run(server, folder, lake_format, number, NOTHING)
            if number:
                _run(server, folder, lake_format, number, VERIFY)


def _run(server: LocalServer, folder: Path, lake_format: str, number: int, work: str) -> Turn:
    """One run to its end."""
    place = {"target": {"format": lake_format, "warehouse": "warehouse"}}
    settings = document(server.host, str(server.port), READER, LIVE.database, LIVE.name, place)
    (folder / "pipeline.yml").write_text(json.dumps(settings))
    command = ["-m", "lakeingest", "-c", str(folder / "pipeline.yml"), "verify" if work == VERIFY else "run"]
    with Program([sys.executable, *command], folder.parent / f"{lake_format}.log") as running:
        ended = running.await_end(SECONDS)
        took = Turn(work, lake_format, number, ended - running.began, running.cpu(ended), os.getloadavg()[0])
    _say(
        f"round {number}: {lake_format}, {work}: {took.wall:.1f} s, {took.cpu:.1f} of processors, load {took.load:.1f}"
    )
    return took


def table(turns: Sequence[Turn]) -> str:
    """The median seconds of each work (and those of processors), and how many times Iceberg's Hudi takes."""
    lines = [f"{'':24}{'iceberg':>16}{'hudi':>16}{'hudi ÷ iceberg':>18}"]
    for work in dict.fromkeys(one.work for one in turns):
        of = {name: [one for one in turns if (one.work, one.lake_format) == (work, name)] for name in FORMATS}
        walls = {name: statistics.median(one.wall for one in found) for name, found in of.items()}
        cpus = {name: statistics.median(one.cpu for one in found) for name, found in of.items()}
        cells = "".join(f"{f'{walls[name]:.1f} s ({cpus[name]:.1f})':>16}" for name in FORMATS)
        lines.append(f"{work:24}{cells}{walls['hudi'] / walls['iceberg']:>18.1f}")
    return "\n".join(lines)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> list[Turn]:
    """Measure, then show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=2_000_000, help="of the table (default: %(default)s)")
    add("--batches", nargs="+", type=int, default=[20, 1_000_000], help="changes of each run (default: %(default)s)")
    add("--rounds", type=int, default=5, help="(default: %(default)s)")
    add("--json", type=Path, help="a file for the figures")
    options = parser.parse_args(arguments)
    turns: list[Turn] = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="formats-")))
        server = stack.enter_context(serve_orders(place, options.rows, {"innodb_buffer_pool_size": "1G"}))
        connection = stack.enter_context(administrator(server))
        list(turn(server, connection, place, 0, TINY_ROWS, [20]))
        for number in range(1, options.rounds + 1):
            turns += turn(server, connection, place, number, options.rows, options.batches)
    print(table(turns))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in turns], indent=1))
    return turns


if __name__ == "__main__":
    main()
