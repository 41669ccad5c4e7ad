"""What only ours is measured with: batches of changes against the table's size, and how fresh a followed copy is."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.copiers import COPIERS
from benchmarks.figures import OURS, Figure
from benchmarks.mirror import Mirror
from benchmarks.processes import Program
from benchmarks.rounds import KEY, POLL_SECONDS, SECONDS, Bench, await_copy, catch_up, reached
from benchmarks.source import administrator
from benchmarks.workload import FIRST, LIVE, Changes, rebuild

BATCHES, FOLLOW = "batches", "follow"
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
    rebuild(bench.connection, LIVE, bench.rows)
    committed: list[tuple[int, float]] = []
    stop = threading.Event()
    with bench.lake(FOLLOW) as folder:
        mirror = Mirror(folder, KEY)
        with Program([*bench.command(program, folder), FOLLOW], bench.log(FOLLOW)) as running:
            await_copy(_OURS, running, mirror, folder, bench.rows)
            writer = threading.Thread(target=_write, args=(bench, committed, stop))
            writer.start()
            try:
                began = time.time()
                freshness = _watch(running, mirror, committed, seconds)
                done = time.time()
            finally:
                stop.set()
                writer.join()
            rss, largest = running.peaks(began, done)
            cpu = running.cpu(done) - running.cpu(began)
    count = int((done - began) * CHANGES_PER_SECOND)  # they go on until the last mark is there
    yield Figure(
        FOLLOW,
        OURS,
        number,
        count,
        done - began,
        unit="changes",
        cpu=cpu,
        rss=rss,
        rss_largest=largest,
        table_rows=bench.rows,
        freshness=tuple(freshness),
    )


def _write(bench: Bench, committed: list[tuple[int, float]], stop: threading.Event) -> None:
    """Change rows at a steady pace until the stop, and tell each mark with the time of its commit."""
    with administrator(bench.server) as connection:
        changes = Changes(connection, range(FIRST, FIRST + bench.rows), _SEED)
        began, tick = time.monotonic(), 0
        while not stop.wait(max(0.0, began + tick / _TICKS_PER_SECOND - time.monotonic())):
            changes.commit(CHANGES_PER_SECOND // _TICKS_PER_SECOND)
            if tick % _TICKS_PER_SECOND == 0:
                committed.append((changes.mark(), time.time()))
            tick += 1


def _watch(running: Program, mirror: Mirror, committed: Sequence[tuple[int, float]], seconds: float) -> list[float]:
    """From the commit of each mark of these seconds until it was published."""
    began = time.time()
    found: list[float] = []
    while True:
        marks = [mark for mark in list(committed) if mark[1] <= began + seconds]
        if time.time() > began + seconds and len(found) == len(marks):
            return found
        while len(found) < len(marks) and reached(mirror, marks[len(found)][0]):
            found.append(time.time() - marks[len(found)][1])
        running.check(began + seconds + SECONDS)
        time.sleep(POLL_SECONDS)
