"""The progress of a run as HTML, from its events: waves, rows, rate, lag and gates of each table, and charts."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from html import escape

from lakeingest.core.figures.clocks import spoken
from lakeingest.core.printable import printable
from lakeingest.drawing.chart import Points, bars, lines
from lakeingest.drawing.table import html_table
from lakeingest.errors import LakeIngestError
from lakeingest.monitoring.course import Course, TableCourse
from lakeingest.monitoring.event_lines import line_maker
from lakeingest.pipeline.events import Event

TABLES_SHOWN = 30
_LINES_SHOWN = 6
_HEADERS = ("table", "rows copied", "of about", "waves", "rows/s", "changes", "lag, bytes", "gate", "readers see")


class Progress:
    """The progress of a run. `take` gets each event; other threads may draw it meanwhile."""

    def __init__(self) -> None:
        self._course = Course()
        self._lines: deque[str] = deque(maxlen=_LINES_SHOWN)
        self._line_of = line_maker()
        self._seconds = 0.0
        self._end = ""
        self._lock = threading.Lock()

    def take(self, event: Event, seconds: float) -> None:
        """Take an event, which came so many seconds after the run began."""
        with self._lock:
            self._seconds = seconds
            if (text := self._line_of(event)) is not None:
                self._lines.append(text)
            self._course.take(event, seconds, time.time())

    def end(self, seconds: float, error: BaseException | None) -> None:
        """Note that the run has ended after so many seconds; `error` is None if it had no error."""
        with self._lock:
            self._seconds = seconds
            if error is None:
                self._end = "has ended"
            else:
                reason = f": {error.line}" if isinstance(error, LakeIngestError) else ""
                self._end = f"ended with {type(error).__name__}{reason}"

    def __repr__(self) -> str:
        with self._lock:
            return self._headline

    def _repr_html_(self) -> str:
        with self._lock:
            return "".join(self._parts())

    @property
    def _state(self) -> str:
        """What the run does now, or how it has ended: the verb of the headline."""
        if self._end:
            return self._end
        if self._course.caught_up_at is not None:
            return "follows its source"
        return "works" if self._course.tables else "begins"

    @property
    def _headline(self) -> str:
        """The progress in one line. The caller holds the lock."""
        tables = self._course.tables.values()
        rows, seconds = sum(table.rows for table in tables), sum(table.seconds for table in tables)
        rate = f" at {rows / seconds:,.0f} rows/s" if seconds else ""
        waves = len(self._course.wave_rows)
        copied = f"; {rows:,} rows copied in {waves:,} waves{rate}" if waves else ""
        changes = sum(table.applied for table in tables)
        applied = f"; {changes:,} changes applied" if changes else ""
        return printable(f"the run {self._state}, {spoken(self._seconds)}{copied}{applied}")

    def _parts(self) -> Iterator[str]:
        """The HTML of the headline, the table of tables, the charts, and the last lines of the log."""
        yield f"<div><b>{escape(self._headline)}</b></div>"
        course, measured = self._course, self._course.measured
        lag_of = {} if measured is None else {str(table.table): table.lag_bytes for table in measured.tables}
        names = list(dict.fromkeys((*course.tables, *lag_of)))
        more = len(names) - TABLES_SHOWN
        if names:
            rows = (
                _row(name, course.tables.get(name, TableCourse()), lag_of.get(name)) for name in names[:TABLES_SHOWN]
            )
            yield html_table(_HEADERS, rows, f"and {more:,} more tables" if more > 0 else "")
        if course.wave_rows:
            yield bars("rows of each wave", course.wave_rows, "waves")
            yield bars("seconds of each chunk", course.chunk_seconds, "chunks", "orange")
        if course.lags:
            yield lines("lag of the slowest table, bytes", Points.of(course.lags.points), "seconds of the run")
        if course.rates:
            rates = Points.of(course.rates.points, "orange")
            yield lines("changes applied, per second", rates, "seconds of the run")
        if self._lines:
            yield f'<pre style="white-space: pre-wrap">{escape(chr(10).join(self._lines))}</pre>'


def _row(name: str, table: TableCourse, lag_bytes: int | None) -> tuple[object, ...]:
    """The row of a table, below `_HEADERS`."""
    rate = round(table.rows / table.seconds) if table.seconds else None
    numbers = table.rows, table.estimated, table.waves, rate, table.applied, lag_bytes
    return name, *numbers, table.gate, table.readers or "nothing new yet"
