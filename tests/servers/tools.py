"""Tools that copy tables of MySQL into Iceberg, as they come from public registries: what they write is real.

Each writes a table of a warehouse of its own, in a folder. `Written` finds its newest metadata there. Flink CDC and
SeaTunnel follow the source until they are switched off; the others copy once. Tests of a tool that cannot be had are
skipped.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.table import StaticTable, Table

from benchmarks import copiers
from benchmarks.participants import PEERS, NotMeasured
from lakeingest.demo import debian
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.session import java_home
from tests.servers import pinned
from tests.servers.flink import streamed, with_catalog

ACCOUNT = "tool"  # without a password: the tools log in without TLS
SECONDS = 300.0  # until a tool has copied what was asked for
_CDC = (("org.apache.flink", "flink-sql-connector-mysql-cdc", "3.5.0"), ("com.mysql", "mysql-connector-j", "8.4.0"))
_METADATA = re.compile(r"(v\d+|\d{5}-.*)\.metadata\.json")  # others are not complete yet
_INTERCEPTOR = "BinlogStatusInterceptor"  # answers a statement of the tools that MySQL 8.4 has no longer

# With its defaults, which convert each value by Python
_DLT = """
import sys
import dlt
from dlt.sources.sql_database import sql_table
host, port, user, database, table, folder = sys.argv[1:]
rows = sql_table(f"mysql+pymysql://{user}@{host}:{port}/{database}", table)
destination = dlt.destinations.filesystem(f"file://{folder}/lake")
pipeline = dlt.pipeline("tests", pipelines_dir=f"{folder}/pipelines", destination=destination, dataset_name=database)
pipeline.run(rows, table_format="iceberg", loader_file_format="parquet").raise_on_failed_jobs()
"""
_SILENT = {"RUNTIME__DLTHUB_TELEMETRY": "false"}


@dataclass(frozen=True)
class Written:
    """A table that a tool writes: `folder` has its metadata and files."""

    folder: Path

    @property
    def metadata(self) -> Path | None:
        """The newest metadata of the table; None before the first."""
        found = [file for file in (self.folder / "metadata").glob("*.json") if _METADATA.fullmatch(file.name)]
        return max(found, key=lambda file: file.stat().st_mtime_ns, default=None)

    def load(self) -> Table | None:
        """The table as PyIceberg has it; None before the first commit."""
        metadata = self.metadata
        return None if metadata is None else StaticTable.from_metadata(str(metadata))

    def await_key(self, key: int, working: Callable[[], str | None]) -> None:
        """Wait until a data file has this key or a greater one in its column `id`.

        `working` says what went wrong, if the tool has ended.
        """
        deadline = time.monotonic() + SECONDS
        while not any(greatest >= key for greatest in self._greatest_keys()):
            error = working()
            assert error is None, error
            assert time.monotonic() < deadline, f"key {key} has not come: {self.folder}"
            time.sleep(0.3)

    def _greatest_keys(self) -> Iterator[int]:
        loaded = self.load()
        if loaded is None or loaded.current_snapshot() is None:
            return
        field = loaded.schema().find_field("id", case_sensitive=False)
        for task in loaded.inspect.data_files().to_pylist():
            bounds = dict(task["upper_bounds"] or ())
            if field.field_id in bounds:
                value: Any = from_bytes(field.field_type, bounds[field.field_id])  # type: ignore[arg-type]
                yield int(value)


@dataclass(frozen=True)
class Running:
    """A tool at work: the table that it writes, and what it says if it has ended."""

    written: Written
    ended: Callable[[], str | None]

    def await_key(self, key: int) -> None:
        """Wait until it has written the row with this key, and those that came before it."""
        self.written.await_key(key, self.ended)


def account(run: Callable[..., None]) -> None:
    """Make the account of the tools; `run` runs statements of an administrator."""
    run(f"CREATE USER IF NOT EXISTS {ACCOUNT}", f"GRANT ALL ON *.* TO {ACCOUNT}")


@contextmanager
def flink_cdc(
    server: LocalServer, database: str, table: str, folder: Path, columns: Mapping[str, str], *, upsert: bool
) -> Iterator[Running]:
    """Flink CDC into Iceberg's sink, until the block ends. `columns`: Flink's type of each column."""
    typed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    typed += ", PRIMARY KEY (`id`) NOT ENFORCED"
    of_sink = {"format-version": "2", "write.upsert.enabled": str(upsert).lower()}
    source = {
        "connector": "mysql-cdc",
        "hostname": server.host,
        "port": str(server.port),
        "username": ACCOUNT,
        "password": "",
        "database-name": database,
        "table-name": table,
        "server-id": "5400-5431",
        "server-time-zone": "UTC",
        "jdbc.properties.useSSL": "false",
        "jdbc.properties.allowPublicKeyRetrieval": "true",
    }
    if not server.flavor.is_mariadb:
        source["jdbc.properties.queryInterceptors"] = _INTERCEPTOR
    statements = [
        f"CREATE TEMPORARY TABLE source ({typed}) WITH ({_pairs(source)})",
        with_catalog({"catalog-type": "hadoop", "warehouse": (folder / "warehouse").as_uri()}),
        f"CREATE DATABASE lake.`{database}`",
        f"CREATE TABLE lake.`{database}`.`{table}` ({typed}) WITH ({_pairs(of_sink)})",
        f"INSERT INTO lake.`{database}`.`{table}` SELECT * FROM source",
    ]
    log = folder / "flink.log"
    try:
        jars = pinned.jars("flink-cdc", _CDC)
    except OperatorNeeded as error:
        pytest.skip(f"Flink CDC: {error}")
    with streamed(statements, log, [*jars, _compiled(folder, jars)]) as rows:

        def ended() -> str | None:
            return log.read_text()[-4000:] if rows.have_ended else None

        yield Running(Written(folder / "warehouse" / database / table), ended)


@contextmanager
def seatunnel(server: LocalServer, database: str, table: str, folder: Path) -> Iterator[Running]:
    """SeaTunnel's engine in one process, until the block ends."""
    log = folder / "seatunnel.log"
    command = _built("seatunnel", copiers.seatunnel)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *_arguments(server, database, table, folder)], stdout=out, stderr=subprocess.STDOUT, cwd=folder
        )

    def ended() -> str | None:
        return None if process.poll() is None else log.read_text()[-4000:]

    try:
        yield Running(Written(folder / "warehouse" / database / table), ended)
    finally:
        process.kill()
        process.wait()


def dlt(server: LocalServer, database: str, table: str, folder: Path) -> Written:
    """Dlt copies the table once."""
    python, *_ = _built("dlt", copiers.dlt)
    _run("dlt", [python, "-I", "-c", _DLT, *_arguments(server, database, table, folder)], folder)
    return Written(folder / "lake" / database / table)


def ingestr(server: LocalServer, database: str, table: str, folder: Path) -> Written:
    """The program ingestr copies the table once."""
    _run("ingestr", [*_built("ingestr", copiers.ingestr), *_arguments(server, database, table, folder)], folder)
    return Written(folder / "warehouse" / database / table)


def _arguments(server: LocalServer, database: str, table: str, folder: Path) -> list[str]:
    return [server.host, str(server.port), ACCOUNT, database, table, str(folder)]


def _built(name: str, build: Callable[[Path], list[str]]) -> list[str]:
    """The command of a tool, which is built in the cache folder the first time."""
    with tempfile.TemporaryDirectory() as folder:
        [cache, *_] = debian.caches(Path(folder))
        place = cache / "tools"
        place.mkdir(parents=True, exist_ok=True)
        with debian.locked(cache / "tools.lock"):
            try:
                return build(place)
            except NotMeasured as error:
                pytest.skip(f"{name}: {error}")


def _run(name: str, command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],  # some are modules of ours
        env={**os.environ, **_SILENT, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    (folder / f"{name}.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"


def _compiled(folder: Path, jars: list[Path]) -> Path:
    """A folder with the class that answers the statement."""
    home = java_home()
    javac = "javac" if home is None else str(home / "bin" / "javac")
    classes = folder / "classes"
    sources = PEERS / f"{_INTERCEPTOR}.java"
    path = ":".join(map(str, jars))
    subprocess.run([javac, "-cp", path, "-d", str(classes), str(sources)], check=True, capture_output=True)
    return classes


def _pairs(options: Mapping[str, Any]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
