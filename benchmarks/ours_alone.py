"""What only ours is measured with: batches of changes against the table's size, and how fresh a followed copy is.

A followed copy is measured for some seconds, and again while the whole table is read again.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.copiers import COPIERS
from benchmarks.figures import OURS, Figure
from benchmarks.mirror import Mirror
from benchmarks.pipeline import config
from benchmarks.processes import Program
from benchmarks.rounds import KEY, POLL_SECONDS, SECONDS, SNAPSHOT, Bench, await_copy, catch_up, figure, reached
from benchmarks.source import READER, administrator
from benchmarks.workload import FIRST, LIVE, Changes, rebuild
from lakeingest import Pipeline

BATCHES, FOLLOW, RECOPY = "batches", "follow", "recopy"
FIRST_COPY, ALONE, BESIDE = "first copy", "followed", "followed and read again"
CHANGES_PER_SECOND = 500
RECENT, RANDOM = "recent", "random"
_TICKS_PER_SECOND = 10
_RECENT_PART = 20  # the last twentieth of the keys
_SEED = 12
[_OURS] = [copier for copier in COPIERS if copier.name == OURS]


def batches(
    bench: Bench, program: Sequence[str], table_sizes: Sequence[int], batch_sizes: Sequence[int], rounds: int
) -> Iterator[Figure]:
    """A run for each batch of changes: of random keys, or of the last twentieth, on tables of each size."""
    for rows in table_sizes:
        rebuild(bench.connection, LIVE, rows)
        recent = FIRST + rows - rows // _RECENT_PART
        changes = {
            RECENT: Changes(bench.connection, range(recent, FIRST + rows), _SEED),
            RANDOM: Changes(bench.connection, range(FIRST, recent), _SEED),
        }
        marks = Changes(bench.connection, range(0), _SEED)
        with bench.lake(BATCHES) as folder:
            with Program(bench.command(program, folder), bench.log(BATCHES)) as running:
                await_copy(_OURS, running, Mirror(folder, KEY), folder, rows)
                running.await_end(SECONDS)
            for number in range(1, rounds + 1):
                for size in batch_sizes:
                    for keys, batch in changes.items():
                        batch.commit(size)
                        took = catch_up(bench, _OURS, program, folder, marks.mark(), number, size)
                        yield replace(took, scenario=BATCHES, table_rows=rows, keys=keys)


def follow(bench: Bench, program: Sequence[str], seconds: float, number: int) -> Iterator[Figure]:
    """How long after its commit a row is published, one a second, while other rows change all the time."""
    with _followed(bench, program) as copy:
        yield copy.watch(FOLLOW, number, lambda: copy.age > seconds)


def recopy(bench: Bench, program: Sequence[str], seconds: float, number: int) -> Iterator[Figure]:
    """The first copy; then the same as `follow`, first for some seconds, then while the whole table is read again."""
    with _followed(bench, program) as copy:
        first = figure(SNAPSHOT, _OURS, number, bench.rows, copy.running, copy.began)
        yield replace(first, scenario=RECOPY, keys=FIRST_COPY)
        yield replace(copy.watch(RECOPY, number, lambda: copy.age > seconds), keys=ALONE)
        asked = time.time()
        server = bench.server
        settings = config(server.host, str(server.port), READER, LIVE.database, LIVE.name, copy.folder)
        Pipeline(settings).resnapshot(str(LIVE), wait=False)
        beside = copy.watch(RECOPY, number, lambda: copy.last_wave(asked) is not None)
        wall = (copy.last_wave(asked) or 0) - asked
        yield replace(beside, keys=BESIDE, count=bench.rows, unit="rows", wall=wall)


class _Followed:
    """A copy of a table that a program follows, while rows of the table change at a steady pace."""

    def __init__(self, bench: Bench, running: Program, mirror: Mirror, folder: Path) -> None:
        self.running, self.folder, self.began = running, folder, time.time()
        self._bench, self._mirror = bench, mirror
        self._committed: list[tuple[int, float]] = []  # marks, and when
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    def close(self) -> None:
        """No row changes any more."""
        self._stop.set()
        self._writer.join()

    @property
    def age(self) -> float:
        """Seconds since all rows were there."""
        return time.time() - self.began

    def last_wave(self, since: float) -> float | None:
        """When readers saw the last rows that were read again after a time; None if they do not see them yet."""
        events = [one for one in self.running.events if one["at"] > since]
        read = next((one["at"] for one in events if one["event"] == "RowsReread" and one["is_last"]), None)
        return None if read is None else self.running.event("Published", read)

    def watch(self, scenario: str, number: int, is_over: Callable[[], bool]) -> Figure:
        """From the commit of each mark until it was published; of the marks until it is over."""
        began = time.time()
        deadline, ended = began + SECONDS, None
        found: list[float] = []
        while True:
            marks = [mark for mark in list(self._committed) if began <= mark[1] <= (ended or time.time())]
            if ended is not None and len(found) == len(marks):
                break
            while len(found) < len(marks) and reached(self._mirror, marks[len(found)][0]):
                found.append(time.time() - marks[len(found)][1])
            if ended is None and is_over():
                ended = time.time()
            self.running.check(deadline)
            time.sleep(POLL_SECONDS)
        done = time.time()
        rss, largest = self.running.peaks(began, done)
        return Figure(
            scenario,
            OURS,
            number,
            int((done - began) * CHANGES_PER_SECOND),  # they go on until the last mark is there
            done - began,
            unit="changes",
            cpu=self.running.cpu(done) - self.running.cpu(began),
            rss=rss,
            rss_largest=largest,
            table_rows=self._bench.rows,
            freshness=tuple(found),
        )

    def _write(self) -> None:
        """Change rows until the stop, and keep each mark with the time of its commit."""
        with administrator(self._bench.server) as connection:
            changes = Changes(connection, range(FIRST, FIRST + self._bench.rows), _SEED)
            began, tick = time.monotonic(), 0
            while not self._stop.wait(max(0.0, began + tick / _TICKS_PER_SECOND - time.monotonic())):
                changes.commit(CHANGES_PER_SECOND // _TICKS_PER_SECOND)
                if tick % _TICKS_PER_SECOND == 0:
                    self._committed.append((changes.mark(), time.time()))
                tick += 1


@contextmanager
def _followed(bench: Bench, program: Sequence[str]) -> Iterator[_Followed]:
    """A new copy of the table, from the moment when readers see all its rows."""
    rebuild(bench.connection, LIVE, bench.rows)
    with bench.lake(FOLLOW) as folder:
        mirror = Mirror(folder, KEY)
        with Program([*bench.command(program, folder), FOLLOW], bench.log(FOLLOW)) as running:
            await_copy(_OURS, running, mirror, folder, bench.rows)
            copy = _Followed(bench, running, mirror, folder)
            try:
                yield copy
            finally:
                copy.close()
