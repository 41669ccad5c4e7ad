"""Progress bars on a terminal: of tables that are copied, and of tables that are compared."""

from dataclasses import dataclass, field

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lakeingest.core.printable import printable
from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.events import ComparisonBegun, Event, Planned, RangeCompared, WaveCommitted

COLUMNS = (
    TextColumn("{task.description}", markup=False),
    BarColumn(bar_width=24),
    MofNCompleteColumn(),
    TextColumn("{task.fields[speed]}", markup=False),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar for each table: of the rows that are copied, or of the ranges of keys that are compared."""

    progress: Progress
    _bar_of: dict[TableId, TaskID] = field(default_factory=dict)  # a table that this run did not plan has no bar

    def draw(self, event: Event) -> None:
        """Draw an event that begins or advances a bar. Other events, and waves of tables without a bar, are ignored."""
        match event:
            case Planned():
                self._begin(event.table, event.estimated_rows)
            case ComparisonBegun():
                self._begin(event.table, event.ranges)
            case WaveCommitted() if event.table in self._bar_of:
                self._advance(event.table, event.rows, event.rows, event.seconds)
                if event.complete:  # the total was an estimate: now it is the number of rows that were copied
                    bar = self._bar_of[event.table]
                    self.progress.update(bar, total=self.progress.tasks[bar].completed)
            case RangeCompared():
                task = self.progress.tasks[self._bar_of[event.table]]
                task.fields["rows"] += event.rows
                self._advance(event.table, 1, task.fields["rows"], task.elapsed)

    def _begin(self, table: TableId, total: int) -> None:
        """Add a bar for the table. The field `rows` of the bar counts the rows that are compared, for their speed."""
        self._bar_of[table] = self.progress.add_task(printable(str(table)), total=total, speed="", rows=0)

    def _advance(self, table: TableId, by: int, rows: int, seconds: float | None) -> None:
        """Advance the table's bar, and show its speed: `rows` in `seconds`."""
        speed = f"{rows / seconds:,.0f} rows/s" if seconds else ""
        self.progress.update(self._bar_of[table], advance=by, speed=speed)
