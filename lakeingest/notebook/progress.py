"""The progress of a run as HTML, from its events: waves, rows, rate, lag and gates of each table, and charts."""

import math
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from lakeingest.console import line_maker
from lakeingest.core.clocks import spoken
from lakeingest.core.printable import printable
from lakeingest.drawing.chart import Points, bars, lines
from lakeingest.drawing.table import html_table
from lakeingest.errors import LakeIngestError
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Merged,
    Planned,
    Published,
    TableStopped,
    WaveCommitted,
)

TABLES_SHOWN = 30
_LINES_SHOWN = 6
_MEASURES_KEPT = 2_000  # of a run that follows for days
_HEADERS = ("table", "rows copied", "of about", "waves", "rows/s", "changes", "lag, bytes", "gate", "readers see")


@dataclass(slots=True)
class _Table:
    """What the run has told of a table so far."""

    estimated: int | None = None
    rows: int = 0
    waves: int = 0
    seconds: float = 0.0  # of all its waves
    changes: int = 0  # that merges have applied
    lag_bytes: int | None = None
    gate: str = ""
    readers: str = "nothing new yet"


class Progress:
    """The progress of a run. `take` gets each event; other threads may draw it meanwhile."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._waves: list[WaveCommitted] = []
        self._lags: deque[tuple[float, float]] = deque(maxlen=_MEASURES_KEPT)  # seconds of the run, bytes
        self._rates: deque[tuple[float, float]] = deque(maxlen=_MEASURES_KEPT)  # seconds of the run, changes/s
        self._measured: tuple[float, int] | None = None  # the seconds of the run, and all changes up to then
        self._lines: deque[str] = deque(maxlen=_LINES_SHOWN)
        self._line_of = line_maker()
        self._seconds = 0.0
        self._state = "begins"
        self._lock = threading.Lock()

    def take(self, event: Event, seconds: float) -> None:
        """Take an event, which came so many seconds after the run began."""
        with self._lock:
            self._seconds = seconds
            if (text := self._line_of(event)) is not None:
                self._lines.append(text)
            if isinstance(event, Measured):
                self._measure(event, seconds)
            elif isinstance(event, Following):
                self._state = "follows its source"
            elif isinstance(event, Planned | WaveCommitted | Merged | GateRun | Published | TableStopped):
                self._state = self._state if self._state == "follows its source" else "works"
                self._take_of_table(event, self._tables.setdefault(str(event.table), _Table()))

    def end(self, seconds: float, error: BaseException | None) -> None:
        """The run has ended after so many seconds, with this error or without one."""
        with self._lock:
            self._seconds = seconds
            if error is None:
                self._state = "has ended"
            else:
                reason = f": {error.line}" if isinstance(error, LakeIngestError) else ""
                self._state = f"ended with {type(error).__name__}{reason}"

    def _take_of_table(
        self, event: Planned | WaveCommitted | Merged | GateRun | Published | TableStopped, table: _Table
    ) -> None:
        match event:
            case Planned():
                table.estimated = event.estimated_rows
            case WaveCommitted():
                self._waves.append(event)
                table.rows, table.waves = table.rows + event.rows, table.waves + 1
                table.seconds += event.seconds
                if event.complete:  # until now, the number of all rows was an estimate
                    table.estimated = table.rows
            case Merged():
                table.changes += event.applied
            case GateRun():
                warnings = f", {event.warnings:,} warnings" if event.warnings else ""
                verdict = f"{event.failed:,} of {event.evaluated:,} failed" if event.failed else "passed"
                table.gate = f"{event.stage}: {verdict}{warnings}"
            case Published():
                table.readers = f"{event.rows:,} rows as of {event.position}"
            case TableStopped():
                table.readers = "read again" if event.again else f"stopped, {type(event.error).__name__}"

    def _measure(self, event: Measured, seconds: float) -> None:
        """Keep the greatest lag of a table, and the rate of changes since the last measurement."""
        for measure in event.tables:
            self._tables.setdefault(str(measure.table), _Table()).lag_bytes = measure.lag_bytes
        lags = [measure.lag_bytes for measure in event.tables if measure.lag_bytes is not None]
        self._lags.append((seconds, float(max(lags)) if lags else math.nan))
        changes = sum(table.changes for table in self._tables.values())
        if self._measured is not None and seconds > self._measured[0]:
            before, changes_before = self._measured
            self._rates.append((seconds, (changes - changes_before) / (seconds - before)))
        self._measured = seconds, changes

    def __repr__(self) -> str:
        with self._lock:
            return self._headline

    def _repr_html_(self) -> str:
        with self._lock:
            return "".join(self._parts())

    @property
    def _headline(self) -> str:
        tables = self._tables.values()
        rows, seconds = sum(table.rows for table in tables), sum(table.seconds for table in tables)
        rate = f" at {rows / seconds:,.0f} rows/s" if seconds else ""
        copied = f"; {rows:,} rows copied in {len(self._waves):,} waves{rate}" if self._waves else ""
        changes = sum(table.changes for table in tables)
        applied = f"; {changes:,} changes applied" if changes else ""
        return printable(f"the run {self._state}, {spoken(self._seconds)}{copied}{applied}")

    def _parts(self) -> Iterator[str]:
        """The HTML of the headline, the table of tables, the charts, and the last lines of the log."""
        yield f"<div><b>{escape(self._headline)}</b></div>"
        shown = list(self._tables.items())[:TABLES_SHOWN]
        more = len(self._tables) - len(shown)
        if shown:
            yield html_table(
                _HEADERS, map(_row, *zip(*shown, strict=True)), f"and {more:,} more tables" if more else ""
            )
        if self._waves:
            yield bars("rows of each wave", [wave.rows for wave in self._waves], "waves")
            chunks = [seconds for wave in self._waves for seconds in wave.chunk_seconds]
            yield bars("seconds of each chunk", chunks, "chunks", "orange")
        if self._lags:
            yield lines("lag of the slowest table, bytes", _points(self._lags), "seconds of the run")
        if self._rates:
            yield lines("changes applied, per second", _points(self._rates, "orange"), "seconds of the run")
        if self._lines:
            yield f'<pre style="white-space: pre-wrap">{escape(chr(10).join(self._lines))}</pre>'


def _points(samples: deque[tuple[float, float]], colour: str = "blue") -> Points:
    return Points(tuple(at for at, _ in samples), tuple(value for _, value in samples), colour)


def _row(name: str, table: _Table) -> tuple[object, ...]:
    rate = round(table.rows / table.seconds) if table.seconds else None
    numbers = table.rows, table.estimated, table.waves, rate, table.changes, table.lag_bytes
    return name, *numbers, table.gate, table.readers
