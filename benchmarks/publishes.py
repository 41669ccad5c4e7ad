"""Measure reads of a copy after many publishes: `python -m benchmarks.publishes`; `--help` lists the options.

There is no server: each publish merges updates of random keys into an Iceberg table in a temporary folder, by the
product's own code. Then all rows are read, beside a fresh copy of the same rows, and again after `maintain`. All
seconds are those of the processor. PyIceberg reads, and DuckDB where it can be imported: with the packages
`duckdb`, `duckdb-extension-avro` and `duckdb-extension-iceberg`, all of one version. With `--spark`, Spark reads, too.
"""

import argparse
import gc
import importlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from benchmarks.scale_costs import COLUMNS, created, normalised, splits_read
from benchmarks.source import orders
from lakeingest.config import Config, parse_config
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.target import Staged, Target
from lakeingest.rows import table_schema
from lakeingest.spark.session import open_session

READS = 7  # of which the median counts
SPARK_WARMING = 20  # so many scans until Java has compiled what it runs
_COLUMNS = COLUMNS[:8]
_TABLE = TableId("benchmark", "published")


@dataclass(frozen=True)
class Reader:
    """A program that reads tables.

    `read` returns all rows of a table. `scan` reads them, and may drop them. `cpu` returns the reader's CPU seconds so
    far. `warming`: how many scans come before those that are measured.
    """

    read: Callable[[Table], pa.Table]
    scan: Callable[[Table], object]
    cpu: Callable[[], float] = time.process_time
    warming: int = 1


def definition(table: TableId) -> TableSchema:
    """Eight columns: numbers, texts, a decimal and a double."""
    return TableSchema(table, _COLUMNS, ("id",), index="PRIMARY")


def rows_of(schema: TableSchema, count: int) -> pa.Table:
    """So many rows of the table, with the keys from 1 on."""
    found, wanted = orders(1, count), table_schema(schema)
    return pa.Table.from_arrays([found[field.name].cast(field.type) for field in wanted], schema=wanted)


def copied(target: Target, schema: TableSchema, rows: pa.Table, chunk_rows: int) -> Staged:
    """A published copy of these rows, in chunks of so many."""
    staged = target.create(schema, created(schema))
    starts = range(0, rows.num_rows, chunk_rows)
    writer = target.writer(schema.table)
    written = [writer.write(rows.slice(start, chunk_rows)) for start in starts]
    progress = staged.progress.wave_committed(splits_read(None, len(starts), 0, last=True), rows.num_rows)
    staged = target.commit_wave(staged, written, progress)
    return target.publish(target.mark(staged, normalised(progress, 1)), schema, {})


def published(target: Target, staged: Staged, schema: TableSchema, changes: pa.Table) -> Staged:
    """Merge these rows, each in the place of the row with its key, and publish the commit."""
    with_flag = changes.append_column(DELETED, pa.array([False] * changes.num_rows))
    bounds = pc.min_max(changes["id"]).as_py()
    merger = target.merger(staged, schema.key, (bounds["min"], bounds["max"]))
    parts = [merger.replace(with_flag.select([*schema.key, DELETED])), merger.write(changes)]
    staged, _ = target.commit_merge(staged, parts, lambda _: staged.progress)
    return target.publish(staged, schema, {})


def pyiceberg_reader() -> Reader:
    """PyIceberg."""

    def read(table: Table) -> pa.Table:
        return table.scan().to_arrow()

    return Reader(read, read)


def duckdb_reader() -> Reader:
    """DuckDB."""
    duckdb: Any = importlib.import_module("duckdb")  # optional, so mypy cannot look it up
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        [folder] = importlib.util.find_spec(f"duckdb_extension_{name}").submodule_search_locations  # type: ignore[union-attr, misc]
        connection.execute(f"LOAD '{folder}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")

    def read(table: Table) -> pa.Table:
        return connection.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')").to_arrow_table()

    return Reader(read, read)


def spark_reader(config: Config) -> Reader:
    """Spark, which drops the rows of a scan. Its seconds are those of its Java, and of what starts it."""
    session = open_session(config)
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - nothing else names the process

    def frame(table: Table) -> Any:
        return session.read.format("iceberg").load(table.metadata_location)

    def read(table: Table) -> pa.Table:
        return pa.Table.from_batches(frame(table)._collect_as_arrow())  # noqa: SLF001

    def scan(table: Table) -> None:
        frame(table).write.format("noop").mode("overwrite").save()

    def cpu() -> float:
        stat = Path(f"/proc/{gateway.proc.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    return Reader(read, scan, cpu, SPARK_WARMING)


def readers(config: Config, *, with_spark: bool) -> Mapping[str, Reader]:
    """What reads whole tables, by name."""
    found = {"PyIceberg": pyiceberg_reader()}
    if importlib.util.find_spec("duckdb_extension_iceberg") is not None:
        found["DuckDB"] = duckdb_reader()
    if with_spark:
        found["Spark"] = spark_reader(config)
    return found


def seconds_of(work: Callable[[], object]) -> float:
    """Of the processor."""
    began = time.process_time()
    work()
    return time.process_time() - began


def medians_of(reader: Reader, tables: Sequence[Table]) -> list[float]:
    """For each table, the median of the CPU seconds of `READS` scans. The tables are read in turns."""
    for _ in range(reader.warming):
        for table in tables:
            reader.scan(table)
    took: list[list[float]] = []
    for _ in range(READS):
        took.append([])
        for table in tables:
            gc.collect()
            began = reader.cpu()
            reader.scan(table)
            took[-1].append(reader.cpu() - began)
    return [statistics.median(seconds) for seconds in zip(*took, strict=True)]


class Measuring:
    """A copy that is changed, and what it is like beside a fresh one."""

    def __init__(self, config: Config, rows: int, chunk_rows: int, *, with_spark: bool = False) -> None:
        self.config, self.chunk_rows = config, chunk_rows
        self.target, self.schema = open_target(config), definition(_TABLE)
        self.rows = rows_of(self.schema, rows)
        self.staged = copied(self.target, self.schema, self.rows, chunk_rows)
        self.readers = readers(config, with_spark=with_spark)
        self.fresh = 0  # so many fresh copies

    def publish(self, changes: int, chance: np.random.Generator) -> float:
        """Publish updates of so many random rows. Returns its CPU seconds."""
        places = np.sort(chance.choice(self.rows.num_rows, changes, replace=False))
        new = self.rows.take(pa.array(places))
        amounts = pc.add(new["customer_id"], 1).cast(pa.int32())
        new = new.set_column(1, new.schema.field(1), amounts)
        whole = self.rows["customer_id"].to_numpy().copy()
        whole[places] = amounts.to_numpy()
        self.rows = self.rows.set_column(1, self.rows.schema.field(1), pa.array(whole, pa.int32()))

        def work() -> None:
            self.staged = published(self.target, self.staged, self.schema, new)

        return seconds_of(work)

    def maintain(self) -> float:
        """What `lakeingest maintain` does with the files. Returns its CPU seconds."""

        def work() -> None:
            self.staged = self.target.publish(self.target.maintain(self.staged), self.schema, {})

        return seconds_of(work)

    def copy_again(self) -> TableId:
        """A fresh copy of the rows as they are now."""
        self.fresh += 1
        schema = definition(TableId(_TABLE.database, f"fresh_{self.fresh}"))
        copied(self.target, schema, self.rows, self.chunk_rows)
        return schema.table

    def table(self, table: TableId = _TABLE) -> Table:
        """The table past our code, as readers open it."""
        return open_catalog(self.config.target).load_table((table.database, table.name))

    def line(self, when: str, cpu: float) -> str:
        """Files, dead rows, and the scans of each reader with their ratio to those of a fresh copy."""
        table = self.table()
        summary = table.current_snapshot().summary  # type: ignore[union-attr]
        assert summary is not None  # noqa: S101 - each commit of ours has one
        for name, reader in self.readers.items():
            found = reader.read(table).sort_by("id")
            if not found.cast(self.rows.schema).equals(self.rows.combine_chunks()):
                raise AssertionError(f"{name} reads other rows than were published")
        fresh = self.table(self.copy_again())
        reads = [medians_of(reader, (table, fresh)) for reader in self.readers.values()]
        shown = " | ".join(f"{took * 1e3:.0f} ms, {took / beside:.2f} times" for took, beside in reads)
        counts = " | ".join(
            f"{int(summary.additional_properties.get(name, 0)):,}"
            for name in ("total-data-files", "total-delete-files", "total-position-deletes")
        )
        return f"| {when} | {cpu:.1f} | {counts} | {shown} |"


def measure(options: argparse.Namespace, place: Path) -> Iterator[str]:
    """A line after each round of publishes, and one after `maintain`."""
    properties = {"format-version": options.version}
    doc = {
        "name": "publishes",
        "source": {"host": "127.0.0.1", "user": "nobody"},
        "tables": {"include": ["benchmark.*"]},
        "target": {"properties": properties},
    }
    measuring = Measuring(parse_config(doc, place, {}), options.rows, options.chunk_rows, with_spark=options.spark)
    names = " | ".join(f"{name}, beside a fresh copy" for name in measuring.readers)
    yield f"| after | CPU seconds | files of rows | files of deletes, or vectors | dead rows | {names} |"
    yield "|---" * (5 + len(measuring.readers)) + "|"
    chance, cpu = np.random.default_rng(1), 0.0
    for number in range(1, options.publishes + 1):
        cpu += measuring.publish(options.changes, chance)
        if number % (options.every or options.publishes) == 0:
            yield measuring.line(f"{number:,} publishes", cpu)
    yield measuring.line("`maintain`", measuring.maintain())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.publishes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--version", choices=("2", "3"), default="3", help="of Iceberg's format (default: %(default)s)")
    add("--rows", type=int, default=300_000, help="of the table (default: %(default)s)")
    add("--chunk-rows", type=int, default=100_000, help="of each file of the first copy (default: %(default)s)")
    add("--publishes", type=int, default=350, help="(default: %(default)s)")
    add("--changes", type=int, default=100, help="of each publish (default: %(default)s)")
    add("--every", type=int, help="read after so many publishes, too (default: after the last one)")
    add("--spark", action="store_true", help="read by Spark, too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="publishes-") as folder:
        for line in measure(options, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
