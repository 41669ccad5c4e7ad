"""What the machine allows at most: rows and binlog read by the server's own tools, and Parquet files written alone."""

import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from benchmarks.copiers import COPIERS
from benchmarks.figures import OURS, Figure
from benchmarks.mirror import Mirror
from benchmarks.participants import NotMeasured
from benchmarks.processes import Program
from benchmarks.rounds import KEY, SECONDS, Bench, await_copy
from benchmarks.source import READER
from benchmarks.workload import FIRST, LIVE, Changes, rebuild

LIMITS = "limits"
_SEED = 13
[_OURS] = [copier for copier in COPIERS if copier.name == OURS]


def limits(bench: Bench, program: Sequence[str], number: int) -> Iterator[tuple[str, Iterator[Figure]]]:
    """Each limit by its name; it is measured when its figure is taken."""
    rebuild(bench.connection, LIVE, bench.rows)
    with bench.lake(LIMITS) as folder:
        yield "mysql --quick", _rows(bench, number, "mysql --quick")
        yield "mysqlbinlog --raw", _binlog(bench, folder, number, "mysqlbinlog --raw")
        yield "Parquet write", _parquet(bench, program, folder, number, "Parquet write")


def _rows(bench: Bench, number: int, name: str) -> Iterator[Figure]:
    """The whole table as text, thrown away."""
    command = _client(bench, "mysql", "--quick", "--batch", "--raw", "-e", f"SELECT * FROM {LIVE}")
    wall, cpu = _took(command)
    yield Figure(LIMITS, name, number, bench.rows, wall, cpu=cpu)


def _binlog(bench: Bench, folder: Path, number: int, name: str) -> Iterator[Figure]:
    """The binlog of the changes, as files."""
    Changes(bench.connection, range(FIRST, FIRST + bench.rows), _SEED).commit(bench.changes)
    with bench.connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        files = [str(row[0]) for row in cursor.fetchall()]
    raw = folder / "binlog"
    raw.mkdir()
    options = ["--read-from-remote-server", "--raw", f"--result-file={raw}/", *files]
    wall, cpu = _took(_client(bench, "mysqlbinlog", *options))
    read = sum(file.stat().st_size for file in raw.iterdir())
    shutil.rmtree(raw)
    yield Figure(LIMITS, name, number, read, wall, unit="bytes", cpu=cpu)


def _parquet(bench: Bench, program: Sequence[str], folder: Path, number: int, name: str) -> Iterator[Figure]:
    """The rows of a copy of ours, from memory into another table by PyIceberg."""
    rebuild(bench.connection, LIVE, bench.rows)
    copy = folder / "copy"
    mirror = Mirror(copy, KEY)
    with Program(bench.command(program, copy), bench.log(LIMITS)) as running:
        await_copy(_OURS, running, mirror, copy, bench.rows)
        running.await_end(SECONDS)
    metadata = mirror.metadata()
    assert metadata is not None  # noqa: S101 - its rows were seen
    table = StaticTable.from_metadata(str(metadata))
    rows = table.scan().to_arrow()
    catalog = SqlCatalog(LIMITS, uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
    catalog.create_namespace(LIMITS)
    written = catalog.create_table((LIMITS, "written"), table.schema())
    began, used = time.perf_counter(), time.process_time()
    written.append(rows)
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    yield Figure(LIMITS, name, number, rows.num_rows, wall, cpu=cpu)


def _client(bench: Bench, name: str, *options: str) -> list[str]:
    program = shutil.which(name)
    if program is None:
        raise NotMeasured(f"no {name}")
    access = [f"--host={bench.server.host}", f"--port={bench.server.port}", f"--user={READER}", "--protocol=tcp"]
    return [program, "--no-defaults", *access, *options]


def _took(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of wall and of processors of a program whose output is thrown away."""
    began, used = time.perf_counter(), _children()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=SECONDS,
        check=False,
    )
    wall = time.perf_counter() - began
    if done.returncode:
        raise NotMeasured(f"it failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return wall, _children() - used


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
