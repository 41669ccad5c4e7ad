"""Measure lakeingest with large tables, rows and transactions: `python -m benchmarks.large`; `--help` lists the cases.

Each case has its own table. One run copies the table. After its changes, another run catches up. The report has seconds
with start-up, CPU seconds of all processes of the run, the memory of its largest process, and on Iceberg in how many
partitions it has changed files. At the end `verify` compares the copy with the source, or a sample of it if the table
has millions of rows.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pymysql

from benchmarks.pipeline import config
from benchmarks.processes import Program
from benchmarks.source import READER, administrator, serve_orders
from lakeingest import Pipeline
from lakeingest.config import FORMATS, Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.spark.session import stop_active_session

SECONDS = 7_200.0  # for one run
DATABASE = "large"
RANDOM_CHANGES = 20_000
_DAYS = 365
_MB = 1 << 20
_BLOCK = 500_000  # rows of a statement that fills a table
_SETTINGS = {
    "innodb_buffer_pool_size": "1G",
    "innodb_redo_log_capacity": "2G",
    "innodb_flush_log_at_trx_commit": "0",
    "innodb_doublewrite": "OFF",
    "sync_binlog": "0",
    "max_allowed_packet": "64M",
    "max_binlog_size": "128M",
}
_NARROW = """(id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, amount DECIMAL(12,2) NOT NULL,
    placed DATETIME NOT NULL, note VARCHAR(60) NOT NULL)"""
_NARROW_ROW = """SELECT {low} + n, n % 500000, n * 1.01, '2026-01-01' + INTERVAL n SECOND,
    CONCAT('a note of a usual length, number ', n) FROM numbers WHERE n <= {count}"""


@dataclass(frozen=True, slots=True)
class Case:
    """A table. `fill` makes it, and `change` yields after each batch of changes, with what the batch is."""

    name: str
    fill: Callable[[pymysql.cursors.Cursor], int]  # the number of its rows
    change: Callable[[pymysql.cursors.Cursor], Iterator[str]]
    sample: float | None = None  # how much of it `verify` compares; None: all
    partition_by: Sequence[str] = ()


def rows(name: str, count: int) -> Case:
    """So many rows of 100 bytes, and changes of random keys."""

    def change(cursor: pymysql.cursors.Cursor) -> Iterator[str]:
        keys = np.random.default_rng(1).choice(count, RANDOM_CHANGES, replace=False) + 1
        for part in np.array_split(keys, 20):
            cursor.execute(f"UPDATE {name} SET amount = amount + 1 WHERE id IN ({','.join(map(str, part))})")
        yield f"{RANDOM_CHANGES:,} changes of random keys"

    return Case(name, lambda cursor: _fill_narrow(cursor, name, count), change, sample=min(1.0, 2_000_000 / count))


def columns(count: int = 1_000, row_count: int = 10_000) -> Case:
    """A table with so many columns, half of them texts of 2 characters: a row of InnoDB has 8 KB."""
    names = [f"c{number}" for number in range(1, count)]
    kinds = ["INT NULL" if number % 2 else "VARCHAR(2) NULL" for number in range(1, count)]

    def fill(cursor: pymysql.cursors.Cursor) -> int:
        defined = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        cursor.execute(f"CREATE TABLE wide (id INT PRIMARY KEY, {defined})")
        values = ", ".join("n" if number % 2 else "'x'" for number in range(1, count))
        for low in range(0, row_count, 1_000):
            cursor.execute(f"INSERT INTO wide SELECT {low} + n, {values} FROM numbers WHERE n <= 1000")
        return row_count

    def change(cursor: pymysql.cursors.Cursor) -> Iterator[str]:
        cursor.execute("UPDATE wide SET c1 = c1 + 1, c500 = 'y' WHERE id % 2 = 0")
        yield f"{cursor.rowcount:,} updates"

    return Case("wide", fill, change)


def values(name: str, megabytes: int, row_count: int) -> Case:
    """Rows with one value of so many megabytes; then half of them are updated."""

    def fill(cursor: pymysql.cursors.Cursor) -> int:
        cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT NOT NULL, body LONGBLOB NOT NULL)")
        for number in range(1, row_count + 1):
            cursor.execute(f"INSERT INTO {name} VALUES ({number}, 0, %s)", (_noise(number, megabytes),))
        return row_count

    def change(cursor: pymysql.cursors.Cursor) -> Iterator[str]:
        cursor.execute(f"UPDATE {name} SET v = v + 1 WHERE id % 2 = 0")
        yield f"{cursor.rowcount:,} updates"

    return Case(name, fill, change)


def transaction(count: int) -> Case:
    """A table of so many rows, all of which one transaction updates."""

    def change(cursor: pymysql.cursors.Cursor) -> Iterator[str]:
        cursor.execute("UPDATE one_transaction SET amount = amount + 1")
        yield f"one transaction of {cursor.rowcount:,} updates"

    return Case("one_transaction", lambda cursor: _fill_narrow(cursor, "one_transaction", count), change, 0.1)


def binlog(changes: int, row_count: int = 2_000_000) -> Case:
    """So many changes, in transactions of 100,000, which fill many files of the binlog."""

    def change(cursor: pymysql.cursors.Cursor) -> Iterator[str]:
        done = 0
        while done < changes:
            low = done % row_count
            cursor.execute(f"UPDATE long_log SET amount = amount + 1 WHERE id > {low} AND id <= {low + 100_000}")
            done += cursor.rowcount
        cursor.execute("SHOW BINARY LOGS")
        yield f"{done:,} changes, {cursor.rowcount:,} files on the server"

    return Case("long_log", lambda cursor: _fill_narrow(cursor, "long_log", row_count), change)


def recent(name: str, count: int, partition_by: Sequence[str] = ()) -> Case:
    """So many rows of a year, and changes of the last three days: updates of random rows, and new rows."""
    moment = f"'2025-01-01' + INTERVAL ({{low}} + n) * {_DAYS * 86_400} / {count} SECOND"
    row = _NARROW_ROW.replace("'2026-01-01' + INTERVAL n SECOND", moment)
    new = RANDOM_CHANGES // 4

    def fill(cursor: pymysql.cursors.Cursor) -> int:
        cursor.execute(f"CREATE TABLE {name} {_NARROW}")
        for low in range(0, count, _BLOCK):
            cursor.execute(f"INSERT INTO {name} " + row.format(low=low, count=min(_BLOCK, count - low)))
        return count

    def change(cursor: pymysql.cursors.Cursor) -> Iterator[str]:
        for again in range(1, 3):
            of_three_days = min(count, max(RANDOM_CHANGES, 3 * count // _DAYS))
            keys = count - np.random.default_rng(again).choice(of_three_days, RANDOM_CHANGES - new, replace=False)
            for part in np.array_split(keys, 20):
                cursor.execute(f"UPDATE {name} SET amount = amount + 1 WHERE id IN ({','.join(map(str, part))})")
            low = count + (again - 1) * new
            cursor.execute(
                f"INSERT INTO {name} SELECT {low} + n, n, n, '2025-12-31', 'new' FROM numbers WHERE n <= {new}"
            )
            yield f"{RANDOM_CHANGES:,} recent changes"

    return Case(name, fill, change, min(1.0, 500_000 / count), partition_by)


def spread(name: str, count: int, partition_by: Sequence[str] = ()) -> Case:
    """So many rows, and changes of random ones of them."""
    return replace(rows(name, count), partition_by=partition_by)


CASES: Mapping[str, Callable[[argparse.Namespace], Sequence[Case]]] = {
    "rows": lambda options: [rows("few", 2_000_000), rows("many", options.rows)],
    "columns": lambda _: [columns()],
    "values": lambda _: [values("values_of_6_mb", 6, 64), values("values_of_15_mb", 15, 40)],
    "transaction": lambda options: [transaction(options.transaction)],
    "binlog": lambda options: [binlog(options.changes)],
    "partitions": lambda options: [
        recent("plain", 500_000),
        recent("by_day", options.by_day, ["days(placed)"]),
    ],
    "buckets": lambda options: [
        spread("no_buckets", options.by_bucket),
        *(spread(f"buckets_{count}", options.by_bucket, [f"bucket({count}, id)"]) for count in (1, 20, 100, 500)),
    ],
}


def _fill_narrow(cursor: pymysql.cursors.Cursor, name: str, count: int) -> int:
    cursor.execute(f"CREATE TABLE {name} {_NARROW}")
    for low in range(0, count, _BLOCK):
        cursor.execute(f"INSERT INTO {name} " + _NARROW_ROW.format(low=low, count=min(_BLOCK, count - low)))
    return count


def _noise(seed: int, megabytes: int) -> bytes:
    """Bytes that no compression makes smaller."""
    return np.random.default_rng(seed).bytes(megabytes * _MB)


def measure(server: LocalServer, case: Case, lake_format: str, place: Path) -> Iterator[str]:
    """A line for each run of the case; the last one says whether the copy equals the source."""
    with administrator(server, DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("SET unique_checks = 0")
        row_count = case.fill(cursor)
        cursor.execute(f"ANALYZE TABLE {case.name}")
        cursor.execute("SET sql_log_bin = 1")
        with tempfile.TemporaryDirectory(prefix=f"{case.name}-", dir=place) as temporary:
            folder = Path(temporary)
            settings = config(
                server.host, str(server.port), READER, DATABASE, case.name, folder, _target(case, lake_format)
            )
            yield _run(server, case, lake_format, folder, f"copy {row_count:,} rows", settings)
            for batch in case.change(cursor):
                yield _run(server, case, lake_format, folder, batch, settings)
            verified = Pipeline(settings).verify(sample=case.sample)
            stop_active_session()  # it is for this folder
            extent = "all rows" if case.sample is None else f"{case.sample:.0%} of the chunks"
            yield f"| {case.name} | {extent} compared, differs: {any(one.differs for one in verified)} | | | | |"
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"DROP TABLE {case.name}")


def _target(case: Case, lake_format: str) -> Mapping[str, Mapping[str, object]]:
    target = {"target": {"format": lake_format, "warehouse": "warehouse"}}
    if not case.partition_by:
        return target
    table = f"{DATABASE}.{case.name}"
    return target | {"tables": {"include": [table], "options": {table: {"partition_by": list(case.partition_by)}}}}


def _run(server: LocalServer, case: Case, lake_format: str, folder: Path, work: str, settings: Config) -> str:
    where = [server.host, str(server.port), READER, DATABASE, case.name, str(folder)]
    command = [sys.executable, "-m", "benchmarks.pipeline", *where, json.dumps(_target(case, lake_format))]
    with Program(command, folder.parent / f"{case.name}.log") as running:
        ended = running.await_end(SECONDS)
        _, largest = running.peaks(running.began, ended)
        wall, cpu = ended - running.began, running.cpu(ended)
    partitions = _changed_partitions(settings, case) if lake_format == "iceberg" else "-"
    return f"| {case.name} | {work} | {wall:.1f} | {cpu:.1f} | {largest / _MB:,.0f} | {partitions} |"


def _changed_partitions(settings: Config, case: Case) -> str:
    """In how many partitions the last commit of an Iceberg table has added or removed files; "-": it is no merge."""
    table = open_catalog(settings.target).load_table((DATABASE, case.name))
    snapshot = table.current_snapshot()
    assert snapshot is not None  # noqa: S101 - the table was published right now
    changed = {
        str(entry.data_file.partition)
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.snapshot_id == snapshot.snapshot_id
    }
    return f"{len(changed):,}" if changed else "-"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, and print a row for each run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)} (default: all)")
    add("--format", choices=FORMATS, default="iceberg", help="(default: %(default)s)")
    add("--rows", type=int, default=100_000_000, help="of the case rows (default: %(default)s)")
    add("--transaction", type=int, default=10_000_000, help="updates in one transaction (default: %(default)s)")
    add("--changes", type=int, default=100_000_000, help="of the case binlog (default: %(default)s)")
    add("--by-day", type=int, default=10_000_000, help="rows of the case partitions (default: %(default)s)")
    add("--by-bucket", type=int, default=2_000_000, help="rows of the case buckets (default: %(default)s)")
    add("--dir", type=Path, help="for the server, the copies and logs (default: a temporary folder)")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        place = options.dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="large-")))
        place.mkdir(parents=True, exist_ok=True)
        server = stack.enter_context(serve_orders(place.absolute(), 1, _SETTINGS))
        connection = stack.enter_context(administrator(server))
        with connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"CREATE TABLE {TableId(DATABASE, 'numbers')} (n INT PRIMARY KEY)")
            for low in range(0, _BLOCK, 50_000):
                cursor.execute(
                    f"INSERT INTO {TableId(DATABASE, 'numbers')} VALUES "
                    + ",".join(f"({number})" for number in range(low + 1, low + 50_001))
                )
        columns = "table", "run", "seconds", "CPU seconds", "MB of the largest process", "changed partitions"
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
        for name in options.cases:
            for case in CASES[name](options):
                for line in measure(server, case, options.format, place.absolute()):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
