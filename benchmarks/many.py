"""Measure lakeingest with many small tables: `python -m benchmarks.many`.

One run copies all tables, then come runs after a change in each of them, after a change in one of them, and with
nothing to do, and `status`. The report has seconds with start-up, CPU seconds of all processes, and the memory of the
largest one. At the end `verify` compares every table with the source.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.pipeline import config
from benchmarks.processes import Program
from benchmarks.source import READER, administrator, serve_orders
from lakeingest import Pipeline
from lakeingest.config import FORMATS
from lakeingest.demo.server import LocalServer

DATABASE = "many"
ROWS = 100  # of each table
SECONDS = 3_600.0  # for one run
_SETTINGS = {"innodb_flush_log_at_trx_commit": "0", "innodb_doublewrite": "OFF", "sync_binlog": "0"}


def fill(server: LocalServer, tables: int) -> None:
    """Make so many tables of ROWS rows."""
    rows = ", ".join(f"({number}, {number * 7}, 'note {number}')" for number in range(ROWS))
    with administrator(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        for number in range(tables):
            name = f"{DATABASE}.t{number}"
            cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, amount BIGINT NOT NULL, note VARCHAR(40))")
            cursor.execute(f"INSERT INTO {name} VALUES {rows}")


def change(server: LocalServer, tables: int) -> None:
    """Change a row of each of the first `tables` tables."""
    with administrator(server, DATABASE) as connection, connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(f"UPDATE t{number} SET amount = amount + 1 WHERE id = 50")


def measure(server: LocalServer, folder: Path, tables: int, lake_format: str) -> Iterator[str]:
    """A row for each piece of work, and whether all copies equal the source."""
    target = {"target": {"format": lake_format, "warehouse": "warehouse"}}
    where = (server.host, str(server.port), READER, DATABASE, "*")
    command = [sys.executable, "-m", "benchmarks.pipeline", *where, str(folder), json.dumps(target)]

    def measured(work: str, *options: str) -> str:
        with Program([*command, *options], folder.parent / "many.log") as running:
            ended = running.await_end(SECONDS)
            _, largest = running.peaks(running.began, ended)
            return f"| {work} | {ended - running.began:.1f} | {running.cpu(ended):.1f} | {largest >> 20:,} |"

    yield measured("first copy")
    change(server, tables)
    yield measured("a change in each table")
    change(server, 1)
    yield measured("a change in one table")
    yield measured("nothing to do")
    yield measured("`status`", "status")
    results = Pipeline(config(*where, folder, target)).verify()
    yield f"| equal: {results.equal} | | | |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a row for each piece of work."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.many", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tables", type=int, default=2_000, help="(default: %(default)s)")
    add("--format", choices=FORMATS, default="iceberg", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="many-")))
        server = stack.enter_context(serve_orders(place, 1, _SETTINGS))
        fill(server, options.tables)
        (place / "copy").mkdir()
        print(f"| {options.tables:,} tables of {ROWS} rows | seconds | CPU seconds | MB |\n|---|---|---|---|")
        for line in measure(server, place / "copy", options.tables, options.format):
            print(line, flush=True)


if __name__ == "__main__":
    main()
