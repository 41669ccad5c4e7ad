"""Follow a source for an hour while people are at work on it and on its copies: `python -m benchmarks.hour`.

Rows of five tables change at a steady rate on a real server. Once a second a mark is committed to each table: a row
with a new least key. Its time is from the commit until a reader finds the key in the files of the copy. Meanwhile one
table is re-snapshotted, another table gets a column, and someone else compacts a third table with Spark. On Hudi,
someone else runs the cleaner instead, because a publish takes clusterings back. At the end the copies are verified,
and the time to read them is compared with that of fresh copies. CPU seconds and memory are those of all processes of
the run. The server, the writer and Spark share its processors.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from benchmarks.phases import Phase, Seen, by_phase, table
from benchmarks.pipeline import document
from benchmarks.processes import Program
from benchmarks.reader import scan
from benchmarks.rounds import KEY, SECONDS
from benchmarks.seen import Hudi, Iceberg
from benchmarks.source import READER, administrator, serve_orders
from benchmarks.workload import FIRST, Changes, rebuild
from lakeingest import Pipeline
from lakeingest.config import CATALOG, Config, parse_config
from lakeingest.config.formats import table_name
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer

TABLES = tuple(TableId("benchmark", f"hour_{number}") for number in range(1, 6))
RESNAPSHOT, DDL, COMPACTION = "re-snapshot", "ADD COLUMN", "someone's compaction"
_AT = {RESNAPSHOT: 0.25, DDL: 0.5, COMPACTION: 0.75}  # of the time
_TICKS = 10  # in a second
_MOST_WINDOW = 60.0  # seconds; the least phase is so long, or a tenth of the time if that is less
_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 10.0  # between the first copies and the first mark that counts
_SCANS = 3
_COMPACTIONS = 3
_SEED = 12
_SETTINGS = {"innodb_buffer_pool_size": "1G", "innodb_redo_log_capacity": "2G"}
_PROOFS = {"every": "24h", "budget": "2%", "on_difference": "report"}
_CALLS = {
    "iceberg": f"CALL {CATALOG}.system.rewrite_data_files(table => '{{t}}', options => map('rewrite-all', 'true'))",
    "hudi": "CALL run_clean(table => 'to_clean', retain_commits => 1)",
}


class Hour:
    """A followed copy of TABLES, the changes of its source, and what readers have seen of them."""

    def __init__(self, server: LocalServer, running: Program, config: Config, options: argparse.Namespace) -> None:
        self.running, self.config = running, config
        self.seen: list[Seen] = []
        self.phases: list[Phase] = []
        self.changes = 0
        self.compactions: list[str] = []  # how each try of someone's compaction ended
        self._server, self._rate, self._rows = server, options.rate, options.rows
        self._tables = TABLES[: options.tables]
        warehouse = config.target.warehouse.path
        look = Iceberg if config.target.format == "iceberg" else Hudi
        self._copies = {str(one): look(warehouse, one, KEY) for one in self._tables}
        self._marks: dict[str, list[tuple[int, float]]] = {str(one): [] for one in self._tables}  # each with its commit
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._next_event = 0

    def follow(self, minutes: float, *, phases: bool) -> tuple[float, float]:
        """Change rows and watch the copies for so long, with `phases` or without; then until all marks are seen.

        Returns when it began and ended, in seconds since 1970.
        """
        self._writer.start()
        self._watch_until(time.time() + _SETTLE_SECONDS)
        began = time.time()
        window = min(_MOST_WINDOW, minutes * 60 / 10)
        acts = {RESNAPSHOT: self._resnapshot, DDL: self._add_column, COMPACTION: self._compact}
        for name, act in acts.items() if phases else ():
            self._watch_until(began + _AT[name] * minutes * 60)
            since = time.time()
            thread = threading.Thread(target=act, daemon=True)
            thread.start()
            while thread.is_alive() or time.time() < since + window:
                self._look(time.time() + SECONDS)
            self.phases.append(Phase(name, since, time.time()))
        self._watch_until(began + minutes * 60)
        ended = time.time()
        self._stop.set()
        self._writer.join()
        deadline = time.time() + SECONDS
        while any(self._marks.values()):
            self._look(deadline)
        self.seen = [one for one in self.seen if began <= one.committed <= ended]
        return began, ended

    def _watch_until(self, until: float) -> None:
        while time.time() < until:
            self._look(until + SECONDS)

    def _look(self, deadline: float) -> None:
        """Look into each copy that the run has published since the last look."""
        self.running.check(deadline)
        events = self.running.events[self._next_event :]
        self._next_event += len(events)
        published = {str(TableId(**event["table"])) for event in events if event["event"] == "Published"}
        for name in published:
            marks = self._marks[name]
            least = self._copies[name].least_key()
            now = time.time()
            while marks and least is not None and least <= marks[0][0]:
                self.seen.append(Seen(name, marks.pop(0)[1], now))
        time.sleep(_POLL_SECONDS)

    def _write(self) -> None:
        """Change rows until the stop, and keep each mark with the time of its commit."""
        with administrator(self._server) as connection:
            pool = range(FIRST, FIRST + self._rows)
            changes = [Changes(connection, pool, _SEED + number, one) for number, one in enumerate(self._tables)]
            began, tick = time.monotonic(), 0
            while not self._stop.wait(max(0.0, began + tick / _TICKS - time.monotonic())):
                for number, (one, of_table) in enumerate(zip(self._tables, changes, strict=True)):
                    of_table.commit(self._rate // _TICKS // len(self._tables))
                    if tick % _TICKS == number * _TICKS // len(self._tables):
                        self._marks[str(one)].append((of_table.mark(), time.time()))
                self.changes += self._rate // _TICKS
                tick += 1

    def _resnapshot(self) -> None:
        asked = time.time()
        Pipeline(self.config).resnapshot(str(TABLES[0]), wait=False)
        while not any(one["event"] == "RowsReread" and one["is_last"] for one in self._events_since(asked)):
            time.sleep(_POLL_SECONDS)
        read = time.time()
        while not any(one["event"] == "Published" for one in self._events_since(read)):
            time.sleep(_POLL_SECONDS)

    def _events_since(self, since: float) -> list[dict[str, Any]]:
        """The events of the re-snapshotted table after a time."""
        of_table = asdict(TABLES[0])
        return [one for one in self.running.events if one["at"] > since and one.get("table") == of_table]

    def _add_column(self) -> None:
        with administrator(self._server) as connection, connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {TABLES[1]} ADD COLUMN added INT NULL")

    def _compact(self) -> None:
        """Try a few times, as a scheduled job does: Iceberg refuses a compaction if a row of its files was deleted."""
        name = table_name(self.config.target, TABLES[2]).removeprefix(f"{CATALOG}.")
        if self.config.target.format == "hudi":  # its procedures find tables by names of Spark's own catalog
            spark(self.config).sql(f"CREATE TABLE to_clean USING hudi LOCATION '{name}'")
        for _ in range(_COMPACTIONS):
            try:
                spark(self.config).sql(_CALLS[self.config.target.format].format(t=name)).collect()
            except Py4JJavaError as error:
                self.compactions.append(str(error.java_exception.getMessage()).splitlines()[0])
            else:
                self.compactions.append("done")
                return


def spark(config: Config) -> SparkSession:
    """The one session of this process."""
    return Pipeline(config).spark


def reading(config: Config) -> float:
    """The seconds of a scan of all columns of all tables: the least of some."""

    def rows(one: TableId) -> DataFrame:
        name = table_name(config.target, one)
        session = spark(config)
        return session.table(name) if config.target.format == "iceberg" else session.read.format("hudi").load(name)

    return min(sum(scan(rows(one)) for one in TABLES) for _ in range(_SCANS + 1))


def files(folder: Path) -> tuple[int, int]:
    """The number of files below a folder, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def measure(server: LocalServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one hour."""
    target = {"format": options.format, "warehouse": "warehouse", "publish_every": options.publish_every}
    place = {"target": target} | ({"quality": {"verify": _PROOFS}} if options.proofs else {})
    host, port, name = server.host, str(server.port), "hour_*"
    arguments = [host, port, READER, "benchmark", name]
    pipeline = document(host, port, READER, "benchmark", name, place)
    config = parse_config(pipeline, folder / "copy", {})
    program = [sys.executable, "-m", "benchmarks.pipeline", *arguments]
    (folder / "copy").mkdir()
    if not options.only_changes:
        spark(config)  # the JVM of the one who compacts starts before anything is measured
    command = [*program, str(folder / "copy"), json.dumps(place)]
    with Program([*command, "follow"], options.log) as running:
        running.await_event("Following", SECONDS)
        hour = Hour(server, running, config, options)
        began, ended = hour.follow(options.minutes, phases=not options.only_changes)
        wall, load = ended - began, os.getloadavg()
        rss, largest = running.peaks(began, ended)
        published = [one for one in running.events if one["event"] == "Published" and began <= one["at"] <= ended]
        figures = {
            "format": options.format,
            "minutes": options.minutes,
            "changes a second": hour.changes / (ended - began + _SETTLE_SECONDS),
            "cores of ours": (running.cpu(ended) - running.cpu(began)) / wall,
            "largest process, MB": largest >> 20,
            "all processes, MB": rss >> 20,
            "publishes": len(published),
            "seconds of a publish": sum(one["seconds"] for one in published) / max(1, len(published)),
            "load of the machine": load[1],
            "phases": by_phase(hour.seen, hour.phases),
            "compactions": hour.compactions,
            "seconds of phases": {phase.name: phase.ended - phase.began for phase in hour.phases},
        }
        following = folder / "copy" / "state" / "following.json"
        time.sleep(1)
        figures["following"] = json.loads(following.read_text()) if following.exists() else None
    figures["files of the tables"], figures["bytes of the tables"] = files(folder / "copy" / "warehouse")
    figures["files of the state"], figures["bytes of the state"] = files(folder / "copy" / "state")
    if options.only_changes:
        return figures
    figures["equal"] = [str(one.table) for one in Pipeline(config).verify() if not one.equal] or "yes"
    figures["reading, s"] = reading(config)
    (folder / "fresh").mkdir()
    fresh = parse_config(pipeline, folder / "fresh", {})
    with Program([*program, str(folder / "fresh"), json.dumps(place)], options.log) as running:
        running.await_end(SECONDS)
    Pipeline(config).spark.stop()  # a session has one warehouse
    figures["reading a fresh copy, s"] = reading(fresh)
    return figures


def report(figures: dict[str, Any]) -> str:
    """The figures as text; the phases as a table."""
    phases = dict(figures["phases"])
    everything = [seconds for values in phases.values() for seconds in values]
    lines = [table({"all": everything, **phases}), ""]
    for name, value in figures.items():
        if name != "phases":
            lines.append(f"{name}: {f'{value:,.3g}' if isinstance(value, float) else value}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, then show."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hour", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="(default: %(default)s)")
    add("--tables", type=int, default=len(TABLES), choices=range(1, len(TABLES) + 1), help="(default: %(default)s)")
    add("--rate", type=int, default=500, help="changes a second in all tables (default: %(default)s)")
    add("--rows", type=int, default=100_000, help="of each table at the start (default: %(default)s)")
    add("--format", choices=sorted(_CALLS), default="iceberg", help="(default: %(default)s)")
    add("--publish-every", default="auto", help="target.publish_every (default: %(default)s)")
    add("--proofs", action="store_true", help="compare with the source meanwhile, as with quality.verify")
    add("--only-changes", action="store_true", help="no phases, no verification and no reading")
    add("--log", type=Path, default=Path("hour.log"), help="what the run says (default: %(default)s)")
    add("--json", type=Path, help="a file for the figures")
    add("--from-json", type=Path, help="measure nothing: show the figures of this file")
    options = parser.parse_args(arguments)
    if options.tables < len(TABLES) and not options.only_changes:
        parser.error(f"--tables below {len(TABLES)} needs --only-changes, because each phase changes another table")
    if options.from_json:
        figures = json.loads(options.from_json.read_text())
    else:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hour-")))
            server = stack.enter_context(serve_orders(folder, options.rows, _SETTINGS))
            with administrator(server) as connection:
                for one in TABLES[: options.tables]:
                    rebuild(connection, one, options.rows)
            figures = measure(server, folder, options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    print(report(figures))


if __name__ == "__main__":
    main()
