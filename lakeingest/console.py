"""How a run looks: progress bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lakeingest.pipeline.events import Event, Merged, Observer, Planned, Published, Spooled, WaveCommitted
from lakeingest.pipeline.run import RunResult
from lakeingest.pipeline.verify import TableVerification

KEYS_SHOWN = 20


def line(event: Event) -> str | None:
    """An event as one line; None for one that says nothing by itself."""
    match event:
        case WaveCommitted():
            rate = event.rows / event.seconds if event.seconds else 0
            return (
                f"{event.table}: wave {event.wave}, {event.chunks} chunks, {event.rows:,} rows in {event.seconds:.1f} s"
                f" ({rate:,.0f} rows/s)" + (", the last" if event.complete else "")
            )
        case Spooled() if event.transactions:
            return (
                f"binlog: {event.rows:,} change rows of {event.transactions:,} transactions spooled, up to {event.stop}"
            )
        case Merged():
            return (
                f"{event.table}: merged {event.applied:,} of {event.read:,} change rows:"
                f" {event.inserted:,} keys inserted, {event.updated:,} updated, {event.deleted:,} deleted"
                f" ({event.seconds:.1f} s)"
            )
        case Published():
            return f"{event.table}: published {event.rows:,} rows as of {event.position}"
    return None


@contextmanager
def observer(console: Console) -> Iterator[Observer]:
    """An observer that draws on the console while the block runs."""
    if not console.is_terminal:
        yield _plain
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def draw(event: Event) -> None:
            if isinstance(event, Planned):
                tasks[str(event.table)] = bars.add_task(str(event.table), total=event.estimated_rows)
            elif isinstance(event, WaveCommitted) and str(event.table) in tasks:
                task = tasks[str(event.table)]
                bars.advance(task, event.rows)
                if event.complete:  # the total was an estimate
                    bars.update(task, total=bars.tasks[task].completed)
            if text := line(event):
                bars.console.print(text, highlight=False)

        yield draw


def run_lines(result: RunResult) -> Iterator[str]:
    """What a run came to, a line a table."""
    for table in result.tables:
        position = "" if table.position is None else f" as of {table.position.at}"
        state = f"published{position}" if table.published else "not published yet"
        yield f"{table.table}: {table.rows:,} rows, {state}"
    if not result.caught_up:
        yield "the time was up before the end of the binlog; the same command goes on from here"


def verification_lines(results: Sequence[TableVerification]) -> Iterator[str]:
    """What a verification found, a line a table and one for each of the first keys that differ."""
    for result in results:
        if result.equal:
            yield f"{result.table}: source = target, {result.source.rows:,} rows, checksum {result.source}"
            continue
        yield (
            f"{result.table}: source ≠ target: {result.source.rows:,} rows, checksum {result.source} in the source,"
            f" {result.target.rows:,} rows, checksum {result.target} in the target"
        )
        for difference in result.differences[:KEYS_SHOWN]:
            key = ", ".join(map(str, difference.key))
            yield f"{result.table}: key {key} {difference.where}"
        if len(result.differences) > KEYS_SHOWN:
            yield f"{result.table}: and {len(result.differences) - KEYS_SHOWN} more keys; --json names all"


def _plain(event: Event) -> None:
    if text := line(event):
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
