"""Measure how long Spark takes to replay the changes of a table as a table: `python -m benchmarks.replay`.

A table is copied with `changelog: {table: true}`, and runs bring changes of it. Then one Spark session replays all of
them, as `docs/howto/changelog-as-a-table.md` says, again and again. Each time the rows are those of the copy.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.pipeline import config
from benchmarks.processes import Program, cpu_seconds
from benchmarks.source import READER, administrator, serve_orders
from benchmarks.workload import FIRST, LIVE, Changes, rebuild
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.spark.session import open_session

SECONDS = 3_600.0  # for one run
KEYS: dict[str, Any] = {"changelog": {"table": True}}
_PAGE = Path(__file__).parent.parent / "docs" / "howto" / "changelog-as-a-table.md"
_SEED = 17


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay: its seconds, those of the processors, the rows of the log and of the table, and the load."""

    wall: float
    cpu: float
    log_rows: int
    rows: int
    load: float


def replays(spark: SparkSession, settings: Config, times: int) -> Iterator[Replay]:
    """So many replays of the whole log; the first one has the start of Spark's own parts. Each is compared."""
    copy = table_name(settings.target, LIVE)
    log = table_name(settings.target, TableId(LIVE.database, f"{LIVE.name}__changelog"))
    columns = ", ".join(spark.table(copy).columns)
    digest = f"SELECT count(*), bit_xor(xxhash64({columns})) FROM"
    [wanted] = spark.sql(f"{digest} {copy}").collect()
    [(count, last)] = spark.sql(f"SELECT count(*), max(_lakeingest_position) FROM {log}").collect()
    query = _replay(last, columns).replace("lake.shop.orders__changelog", log)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way
    for _ in range(times):
        began, before = time.perf_counter(), cpu_seconds(gateway.proc.pid)
        [found] = spark.sql(f"{digest} ({query})").collect()
        wall, cpu = time.perf_counter() - began, cpu_seconds(gateway.proc.pid) - before
        took = Replay(wall, cpu, count, found[0], os.getloadavg()[0])
        if found != wanted:
            raise RuntimeError(f"the replay has {tuple(found)}, and the copy {tuple(wanted)}")
        yield took


def _replay(position: str, columns: str) -> str:
    """The query of the page, with these columns."""
    [query] = re.findall(r"-- replay\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    return str(query).format(position=position).replace("SELECT id, customer, amount", f"SELECT {columns}")


def _run(server: LocalServer, folder: Path) -> None:
    """One run of the pipeline, in a separate process."""
    where = [server.host, str(server.port), READER, LIVE.database, LIVE.name, str(folder)]
    command = [sys.executable, "-m", "benchmarks.pipeline", *where, json.dumps(KEYS)]
    with Program(command, folder.parent / "run.log") as running:
        running.await_end(SECONDS)


def main(arguments: Sequence[str] | None = None) -> list[Replay]:
    """Make the log, measure, then show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=200_000, help="of the table (default: %(default)s)")
    add("--changes", type=int, default=1_000_000, help="(default: %(default)s)")
    add("--runs", type=int, default=10, help="that bring them (default: %(default)s)")
    add("--times", type=int, default=5, help="replays (default: %(default)s)")
    add("--json", type=Path, help="a file for the figures")
    options = parser.parse_args(arguments)
    found: list[Replay] = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-")))
        server = stack.enter_context(serve_orders(place, options.rows, {"innodb_buffer_pool_size": "1G"}))
        connection = stack.enter_context(administrator(server))
        rebuild(connection, LIVE, options.rows)
        folder = place / "lake"
        folder.mkdir()
        changes = Changes(connection, range(FIRST, FIRST + options.rows), _SEED)
        _run(server, folder)
        for _ in range(options.runs):
            changes.commit(options.changes // options.runs)
            _run(server, folder)
        settings = config(server.host, str(server.port), READER, LIVE.database, LIVE.name, folder, KEYS)
        spark = open_session(settings)
        stack.callback(spark.stop)
        print(f"{'seconds':>9}{'processors':>12}{'rows read':>12}{'rows':>10}{'load':>7}")
        for one in replays(spark, settings, options.times):
            found.append(one)
            print(f"{one.wall:9.1f}{one.cpu:12.1f}{one.log_rows:12,}{one.rows:10,}{one.load:7.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return found


if __name__ == "__main__":
    main()
