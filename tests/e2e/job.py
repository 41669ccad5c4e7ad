"""`lakeingest` as a scheduler runs it: processes on a pipeline.yml, a warehouse and a state of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql

from lakeingest.config import Config, load_config
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.files import file as files
from lakeingest.files.file import File, state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi.file_groups import data_files
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.record_key import RECORD_KEY
from tests.conftest import GTIDS
from tests.lake.shown import catalog_of
from tests.servers import lakes
from tests.servers.accounts import COPIER, PASSWORD, copier_of


@dataclass(frozen=True)
class Job:
    """One pipeline, and a database of its own on a server."""

    folder: Path
    server: LocalServer
    database: str
    chunk_rows: int | None = None
    warehouse: str = "warehouse"  # one of a Spark session that is there, or of its own
    lake_format: str = "iceberg"
    target: Mapping[str, Any] = field(default_factory=dict)  # what is other than in `lakes`
    stored: str | None = None  # the URI of the state where it is in an object store
    conf: Mapping[str, str] = field(default_factory=dict)  # of Spark, what is other than in `lakes`
    options: Mapping[str, Any] = field(default_factory=dict)  # of all tables

    def write(self) -> "Job":
        """Write pipeline.yml, make the database. In a lake that tests share its name is a new one."""
        if not self.target and (shared := lakes.target_of(self.lake_format)):
            name, stored = f"{self.database}_{uuid.uuid4().hex[:8]}", lakes.new_state(self.lake_format)
            return replace(self, database=name, target=shared, stored=stored).write()
        of_all = {} if self.chunk_rows is None else {"chunk_rows": self.chunk_rows}
        options = {"*.*": of_all | dict(self.options)} if of_all or self.options else {}
        server = self.server
        source = {"host": server.host, "port": server.port, "user": COPIER, "password": "${JOB_PASSWORD}"}
        tables = {"include": [f"{self.database}.*"], "options": options}
        target = {"format": self.lake_format, "warehouse": self.warehouse, **self.target}
        spark = {"conf": lakes.spark_conf() | dict(self.conf)}
        doc = {"name": "job", "source": source, "tables": tables, "target": target, "spark": spark}
        if self.stored is not None:
            doc["state"] = self.stored
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "pipeline.yml").write_text(json.dumps(doc))
        self.sql(f"CREATE DATABASE {self.database}")
        copier_of(server, f"`{self.database}`")
        return self

    def on_another_machine(self, folder: Path) -> "Job":
        """The same pipeline, in a folder that has nothing but its file."""
        folder.mkdir(parents=True)
        shutil.copy(self.folder / "pipeline.yml", folder)
        return replace(self, folder=folder)

    @property
    def config(self) -> Config:
        """The pipeline as the processes load it."""
        return load_config(self.folder / "pipeline.yml", (), {"JOB_PASSWORD": PASSWORD})

    @property
    def state(self) -> File:
        """The state folder."""
        return state_of(self.config)

    def start(self, *arguments: str, before: Sequence[str] = (), **options: Any) -> "subprocess.Popen[str]":
        """Start `lakeingest` with these arguments, in the job's folder; `before` is a command that starts it.

        Its output is a pipe, unless `options` has another `stdout`.
        """
        return subprocess.Popen(
            [*before, sys.executable, "-m", "lakeingest", *arguments],
            cwd=self.folder,
            env=os.environ | {"JOB_PASSWORD": PASSWORD, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            **{"stdout": subprocess.PIPE, **options},
        )

    def run(self, **options: Any) -> tuple[int, list[str]]:
        """One run to its end: its exit code and all lines."""
        code, said = self.call("run", **options)
        return code, said.splitlines()

    def call(self, *arguments: str, **options: Any) -> tuple[int, str]:
        """One command to its end: its exit code, and all that it says."""
        process = self.start(*arguments, **options)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on the source, the rows of the last one."""
        with closing(self.connection()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def unlogged(self, *statements: str) -> None:
        """Run statements that the source does not log; as `Pipe.unlogged`."""
        self.sql("SET SESSION sql_log_bin = 0", *statements)
        if GTIDS:
            self.sql("FLUSH BINARY LOGS")

    def connection(self) -> pymysql.Connection:
        """A connection to the source."""
        server = self.server
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )

    def progress(self, table: str) -> Progress | None:
        """What the table's last marked commit says; nothing is changed."""
        staged = open_target(self.config).inspect(TableId(self.database, table))
        return None if staged is None else staged.progress

    def published(self, table: str) -> list[tuple[Any, ...]]:
        """The rows that a reader sees, sorted; read without Spark."""
        target = self.config.target
        if self.lake_format == "hudi":
            return sorted(hudi_rows(files.at(target.folder(TableId(self.database, table)), target.storage)))
        with catalog_of(target) as catalog:
            rows: pa.Table = catalog.load_table(f"{self.database}.{table}").scan().to_arrow()
        return sorted(tuple(row.values()) for row in rows.to_pylist())

    def source(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of the source, sorted."""
        return sorted(self.sql(f"SELECT * FROM {self.database}.{table}"))


def hudi_rows(folder: File) -> Iterator[tuple[Any, ...]]:
    """The rows of a copy-on-write table: of each file group the file of the last completed commit."""
    completed = {file.name.partition("_")[0] for file in (folder / ".hoodie" / "timeline").listed("*_*.commit")}
    last: dict[str, File] = {}
    for file in sorted(data_files(folder), key=lambda file: file.stem.rpartition("_")[2]):
        group, _, instant = file.stem.split("_")
        if instant in completed:
            last[group] = file
    for file in last.values():
        with files.parquet(file) as opened:
            rows = opened.read()
        added = {RECORD_KEY, PARTITION}.union(name for name in rows.column_names if name.startswith("_hoodie_"))
        for row in rows.select([name for name in rows.column_names if name not in added]).to_pylist():
            yield tuple(row.values())


def command_lines(pid: int) -> dict[int, str]:
    """The command line and then the name of a process and of each of its descendants, with NUL between the words."""
    found = {}
    for one in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            found[one] = "".join(Path(f"/proc/{one}/{file}").read_text() for file in ("cmdline", "comm"))
    return found


def is_worker(command_line: str) -> bool:
    """Whether the process is a Python worker, of Spark or of the run itself, or starts them."""
    return "lakeingest.workers" in command_line or command_line.endswith("lakeingest-work\n")


def until(process: "subprocess.Popen[str]", text: str) -> None:
    """Wait until a process says a line with this in it."""
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert process.poll() is None, line


def descendants(pid: int) -> Iterator[int]:
    """A process and all that it started, and they, as far as they have not ended."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                yield from descendants(int(child))


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process that has not ended: one that gets it may end the others."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
