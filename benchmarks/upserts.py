"""PyIceberg's own upsert beside our catch-up: batches of changes, which are in memory, into a table that exists."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version

from benchmarks.copiers import Copier
from benchmarks.figures import Figure
from benchmarks.mirror import Mirror
from benchmarks.participants import NotMeasured
from benchmarks.processes import Program
from benchmarks.pyiceberg_upsert import KEY, inserts_of
from benchmarks.rounds import Bench, figure

UPSERT = "upsert"
SECONDS = 1_200.0  # for one batch
PYICEBERG = Copier(
    "pyiceberg",
    lambda _folder: [sys.executable, "-m", "benchmarks.pyiceberg_upsert"],
    "none",
    (
        f"Table.upsert of PyIceberg {version('pyiceberg')}, which this project installs; its changes are in memory and"
        f" have no deletes, so it reads no server; it may take {SECONDS:,.0f} s for a batch",
    ),
)


def upserts(bench: Bench, batch_sizes: Sequence[int], number: int, seconds: float = SECONDS) -> Iterator[Figure]:
    """An upsert of each size, the smallest first, each into a new table; after one that fails there is no larger one.

    Raises: NotMeasured with the size that failed.
    """
    for size in sorted(batch_sizes):
        with bench.lake(PYICEBERG.name) as folder:
            command = [*PYICEBERG.build(bench.folder), str(folder), str(bench.rows), str(size)]
            with Program(command, bench.log(PYICEBERG.name)) as running:
                try:
                    ready = running.await_event(PYICEBERG.ready, SECONDS)
                    done = running.await_end(seconds)
                except NotMeasured as reason:
                    raise NotMeasured(f"{size:,} changes of {bench.rows:,} rows: {reason}") from reason
                took = figure(UPSERT, PYICEBERG, number, size, running, done, ready)
            if (found := Mirror(folder, KEY).rows()) != bench.rows + inserts_of(size):
                raise NotMeasured(f"{size:,} changes of {bench.rows:,} rows: it left {found:,} rows")
            yield replace(took, unit="changes", table_rows=bench.rows, keys="random")
