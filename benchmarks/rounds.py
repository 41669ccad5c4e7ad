"""One round of one participant: the table into an empty folder, then the changes that were made meanwhile.

Every round starts from the same table and the same changes. Done is what a reader of the copy's own metadata files
sees: all rows, or a mark that was committed after all changes.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pymysql

from benchmarks.copiers import Copier
from benchmarks.figures import Figure
from benchmarks.mirror import Mirror
from benchmarks.participants import NotMeasured
from benchmarks.processes import Program
from benchmarks.source import READER
from benchmarks.workload import FIRST, LIVE, TINY, TINY_ROWS, Changes, rebuild
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer

SNAPSHOT, CATCHUP = "snapshot", "catchup"
KEY = "id"
POLL_SECONDS = 0.03
SETTLE_SECONDS = 7.0  # two checkpoints of a peer, so that it can resume after its snapshot
SECONDS = 1_800.0  # for one piece of work
_SEED = 11


class Reader:
    """The one Spark session that reads all copies."""

    def __init__(self, server: LocalServer, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.reader", server.host, str(server.port), READER, str(folder)]
        with (folder / "reader.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._answer()  # it is up, and the jars that it fetched are there for others

    def read(self, metadata: Path, *, compare: bool) -> dict[str, Any]:
        """The seconds of a full scan of a copy, and whether it equals the source."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps({"metadata": str(metadata), "compare": compare}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        return {"equal": "the reader ended", "reading": None}


@dataclass(frozen=True, slots=True)
class Bench:
    """Where all of them work: the server and its administrator, a folder, and how much there is to do.

    `compares`: in the first round, copies are compared with the source.
    """

    server: LocalServer
    connection: pymysql.Connection
    folder: Path
    rows: int
    changes: int
    reader: Reader
    compares: bool = True

    def command(self, program: Sequence[str], folder: Path, table: TableId = LIVE) -> list[str]:
        """A participant's program for a table of the server."""
        where = [self.server.host, str(self.server.port), READER, table.database, table.name, str(folder)]
        return [*program, *where]

    @contextmanager
    def lake(self, name: str) -> Iterator[Path]:
        """An empty folder, gone at the end."""
        folder = self.folder / "lakes" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def log(self, name: str) -> Path:
        """What a participant says."""
        return self.folder / "logs" / f"{name}.log"


@contextmanager
def bench(
    server: LocalServer,
    connection: pymysql.Connection,
    folder: Path,
    rows: int,
    changes: int,
    *,
    compares: bool = True,
) -> Iterator[Bench]:
    """A place to work, and its reader."""
    reader = Reader(server, folder)
    try:
        yield Bench(server, connection, folder, rows, changes, reader, compares)
    finally:
        reader.close()


def warm_up(bench: Bench, program: Sequence[str]) -> None:
    """Let ours copy a tiny table, so that its kernels are compiled and kept; Spark's jars come along."""
    rebuild(bench.connection, TINY, TINY_ROWS)
    with (
        bench.lake("warm-up") as folder,
        Program(bench.command(program, folder, TINY), bench.log("warm-up")) as running,
    ):
        running.await_end(SECONDS)


def take_turn(bench: Bench, copier: Copier, program: Sequence[str], number: int, wanted: set[str]) -> Generator[Figure]:
    """The figures of a participant: of the snapshot, and of the changes where they are wanted and it takes them.

    The last one says how long the copy takes to read, and in the first round whether it is equal in the end, which
    takes longer than most turns. Nothing is left running.
    """
    rebuild(bench.connection, LIVE, bench.rows)
    with bench.lake(copier.name) as folder:
        mirror = Mirror(folder, KEY)
        takes_changes = CATCHUP in wanted and copier.changes != "none"
        with Program(bench.command(program, folder), bench.log(copier.name)) as running:
            done = await_copy(copier, running, mirror, folder, bench.rows)
            last = figure(SNAPSHOT, copier, number, bench.rows, running, done)
            if copier.ends:
                running.await_end(SECONDS)
            if takes_changes:
                yield last
                if not copier.ends:
                    time.sleep(SETTLE_SECONDS)
            if takes_changes and copier.changes == "frozen":
                running.freeze()
                mark = _change(bench)
                began = time.time()
                running.thaw()
                done = await_key(running, mirror, mark)
                last = figure(CATCHUP, copier, number, bench.changes, running, done, began)
        if takes_changes and copier.changes == "resumes":
            last = catch_up(bench, copier, program, folder, _change(bench), number, bench.changes)
        yield _read(bench, mirror, last, compare=bench.compares and number == 1) if copier.is_table else last


def catch_up(
    bench: Bench, copier: Copier, program: Sequence[str], folder: Path, mark: int, number: int, changes: int
) -> Figure:
    """What a participant takes that is started again, until the mark is there."""
    mirror = Mirror(folder, KEY)
    with Program(bench.command(program, folder), bench.log(copier.name)) as running:
        done = await_key(running, mirror, mark)
        if copier.ends:
            running.await_end(SECONDS)
        return figure(CATCHUP, copier, number, changes, running, done)


def await_copy(copier: Copier, running: Program, mirror: Mirror, folder: Path, rows: int) -> float:
    """When a reader saw all rows of a first copy; for one that copies once, when it ended, if they were all there."""
    if copier.changes == "none":
        done = running.await_end(SECONDS)
        found = mirror.rows() if copier.is_table else sum(_parquet_rows(file) for file in folder.rglob("*.parquet"))
        if found != rows:
            raise NotMeasured(f"it copied {found:,} rows, not {rows:,}")
        return done
    deadline = time.time() + SECONDS
    while mirror.rows() < rows:
        if not running.is_running and mirror.rows() >= rows:  # it ended since
            break
        running.check(deadline)
        time.sleep(POLL_SECONDS)
    return time.time()


def await_key(running: Program, mirror: Mirror, key: int) -> float:
    """When a reader saw a row with this key."""
    deadline = time.time() + SECONDS
    while not reached(mirror, key):
        if not running.is_running and reached(mirror, key):  # it ended since
            break
        running.check(deadline)
        time.sleep(POLL_SECONDS)
    return time.time()


def reached(mirror: Mirror, key: int) -> bool:
    """Whether readers had this key, or a lower one, before them."""
    least = mirror.least_key()
    return least is not None and least <= key


def figure(
    scenario: str, copier: Copier, number: int, count: int, running: Program, done: float, thawed: float | None = None
) -> Figure:
    """What a program took until it was done, since its start or since it was thawed, when it is ready at once."""
    began, before = (running.began, 0.0) if thawed is None else (thawed, running.cpu(thawed))
    ready = began if thawed is not None else running.event(copier.ready) or began
    rss, largest = running.peaks(began, done)
    return Figure(
        scenario,
        copier.name,
        number,
        count,
        done - began,
        startup=ready - began,
        cpu=running.cpu(done) - before,
        startup_cpu=running.cpu(ready) - before,
        rss=rss,
        rss_largest=largest,
        unit="rows" if scenario == SNAPSHOT else "changes",
    )


def _change(bench: Bench) -> int:
    """Commit the changes, and answer the key of the mark after them."""
    changes = Changes(bench.connection, range(FIRST, FIRST + bench.rows), _SEED)
    changes.commit(bench.changes)
    return changes.mark()


def _read(bench: Bench, mirror: Mirror, last: Figure, *, compare: bool) -> Figure:
    metadata = mirror.metadata()
    assert metadata is not None  # noqa: S101 - its rows were seen
    return replace(last, **bench.reader.read(metadata, compare=compare))


def _parquet_rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)
