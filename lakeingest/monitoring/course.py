"""The course of a run: what its events have said so far, for reports and for live displays.

Its memory is bounded, except for eight bytes for each wave and each chunk, and what it keeps of each table.
"""

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lakeingest.drawing.timeline import Span, joined
from lakeingest.errors import LakeIngestError
from lakeingest.monitoring.event_lines import line
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    LeftAsItIs,
    Measured,
    Merged,
    Opened,
    Planned,
    Published,
    RowsReread,
    SourceLost,
    Spooled,
    TableStopped,
    WaveCommitted,
)

SPANS_MAX = 400  # of a stage; if it has more than twice as many, the nearest are joined into one
SAMPLES_MAX = 480  # of a value over time; if there are so many, each two neighbours become one
HAPPENINGS_MAX = 100
# What a course counts, or shows as a span; the lines of all other events are kept as happenings
_COUNTED = Opened | Planned | WaveCommitted | RowsReread | Spooled | Merged | GateRun | Published | Measured


class Samples:
    """A value over time, as (seconds of the run, value). A point of several samples has the greatest value."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._each, self._taken = 1, 0  # how many samples a point has, and how many came

    def add(self, at: float, value: float) -> None:
        """Add a sample; NaN for a value that is not known."""
        if self._taken % self._each:  # the last point has not all its samples yet
            self._points[-1] = at, _greater(self._points[-1][1], value)
        else:
            self._points.append((at, value))
        self._taken += 1
        if self._taken == self._each * SAMPLES_MAX:  # there are SAMPLES_MAX points, and each has all its samples
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(later, _greater(first, second)) for (_, first), (later, second) in pairs]
            self._each *= 2

    @property
    def points(self) -> Sequence[tuple[float, float]]:
        """The points in their order."""
        return tuple(self._points)

    def __len__(self) -> int:
        return len(self._points)


@dataclass(slots=True)
class TableCourse:
    """What a run has told of a table so far.

    `estimated`: the number of the table's rows by the server's estimate; the exact number once all rows are copied.
    `rows` were copied in `waves`, which took `seconds`. `reread` rows were read again. `applied` change rows were
    merged; `inserted`, `updated` and `deleted` count keys. `gates`: by stage, the last gate of the stage; the newest
    gate comes last. `readers`: what readers see, in words; '' if the run has not changed it. `error`: what has stopped
    the table; None again after the table's next publish. `spans`: when the table's waves were at work.
    """

    COUNTS: ClassVar[tuple[str, ...]] = ("rows", "waves", "reread", "inserted", "updated", "deleted", "publishes")

    estimated: int | None = None
    rows: int = 0
    waves: int = 0
    seconds: float = 0.0
    reread: int = 0
    applied: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    publishes: int = 0
    gates: dict[str, GateRun] = field(default_factory=dict)
    readers: str = ""
    error: LakeIngestError | None = None
    spans: list[Span] = field(default_factory=list)

    @property
    def effects(self) -> int:
        """One sum: the rows that were copied or reread, and the keys that were inserted, updated or deleted."""
        return self.rows + self.reread + self.inserted + self.updated + self.deleted

    @property
    def gate(self) -> str:
        """The result of the last gate, in words; '' if there was none."""
        if not self.gates:
            return ""
        gate = next(reversed(self.gates.values()))
        warnings = f", {gate.warnings:,} warnings" if gate.warnings else ""
        verdict = f"{gate.failed:,} of {gate.evaluated:,} failed" if gate.failed else "passed"
        return f"{gate.stage}: {verdict}{warnings}"


class Course:
    """The course of a run. `take` gets each event in turn."""

    def __init__(self) -> None:
        self.tables: dict[str, TableCourse] = {}
        self.spans: dict[str, list[Span]] = {}  # by stage
        self.wave_rows, self.chunk_seconds = array("d"), array("d")  # of each wave, and of each chunk
        self.lags, self.ages, self.rates = Samples(), Samples(), Samples()  # bytes, seconds, changes a second
        self.measured: Measured | None = None  # the last measurement
        self.happenings: deque[tuple[float, str]] = deque(maxlen=HAPPENINGS_MAX)
        self.happened = 0  # how many happenings there were, with those that are kept no more
        self.caught_up_at: float | None = None  # when the run had caught up, and began to follow
        self._rated = 0.0, 0  # the seconds of the run at the last measurement, and all changes up to then

    @property
    def is_idle(self) -> bool:
        """Whether nothing was done, and nothing happened that a person may want to know."""
        return not self.happened and not any(table.effects or table.publishes for table in self.tables.values())

    def take(self, event: Event, at: float, now: float) -> None:
        """Take an event that came `at` seconds after the run began. `now`: the time, in seconds since 1970."""
        if not isinstance(event, _COUNTED) and (text := line(event)) is not None:
            self.happenings.append((now, text))
            self.happened += 1
        match event:
            case Opened():
                self._span("opening", event.seconds, at)
            case Spooled():
                self._span("binlog", event.seconds, at)
            case SourceLost():
                self._span("source away", event.pause, at + event.pause)
            case Following():
                self.caught_up_at = at
            case Measured():
                self._measure(event, at, now)
            case Planned() | WaveCommitted() | RowsReread() | Merged() | GateRun() | Published() | TableStopped():
                self._take_of_table(event, self.tables.setdefault(str(event.table), TableCourse()), at)
            case LeftAsItIs():
                self.tables.setdefault(str(event.table), TableCourse()).readers = "left as it is"

    def _take_of_table(self, event: Event, table: TableCourse, at: float) -> None:
        """Take an event about one table, whose course is `table`. It came `at` seconds after the run began."""
        match event:
            case Planned():
                table.estimated = event.estimated_rows
            case WaveCommitted():
                self._span("waves", event.seconds, at)
                table.spans = _with_span(table.spans, (max(0.0, at - event.seconds), at))
                self.wave_rows.append(event.rows)
                self.chunk_seconds.extend(event.chunk_seconds)
                table.rows, table.waves = table.rows + event.rows, table.waves + 1
                table.seconds += event.seconds
                if event.complete:  # until now, the number of all rows was an estimate
                    table.estimated = table.rows
            case RowsReread():
                self._span("rows read again", event.seconds, at)
                table.reread += event.rows
            case Merged():
                self._span("merges", event.seconds, at)
                table.applied, table.inserted = table.applied + event.applied, table.inserted + event.inserted
                table.updated, table.deleted = table.updated + event.updated, table.deleted + event.deleted
            case GateRun():
                self._span("gates", event.seconds, at)
                table.gates.pop(event.stage, None)  # so that the newest gate comes last
                table.gates[event.stage] = event
            case Published():
                self._span("publishes", event.seconds, at)
                table.publishes += 1
                table.readers = f"{event.rows:,} rows as of {event.position}"
                table.error = None
            case TableStopped():
                table.readers = "read again" if event.again else f"stopped, {event.error.runbook}"
                table.error = None if event.again else event.error

    def _measure(self, event: Measured, at: float, now: float) -> None:
        """Keep the greatest lag and the greatest age of all tables, and the rate of changes since the last call."""
        self.measured = event
        lags = [table.lag_bytes for table in event.tables if table.lag_bytes is not None]
        moments = [table.as_of for table in event.tables if table.as_of is not None]
        self.lags.add(at, float(max(lags)) if lags else math.nan)
        self.ages.add(at, max(0.0, now - min(moments)) if moments else math.nan)
        (before, changes_before), changes = self._rated, sum(table.applied for table in self.tables.values())
        if before and at > before:  # `before` is 0 at the first measurement
            self.rates.add(at, (changes - changes_before) / (at - before))
        self._rated = at, changes

    def _span(self, stage: str, seconds: float, end: float) -> None:
        """Add a span of a stage, which took so many seconds up to `end`."""
        self.spans[stage] = _with_span(self.spans.get(stage, []), (max(0.0, end - seconds), end))


def _with_span(spans: list[Span], span: Span) -> list[Span]:
    """Add a span to the list. Returns the list itself, or a new list of joined spans if there are too many of them."""
    spans.append(span)
    return joined(spans, SPANS_MAX) if len(spans) > 2 * SPANS_MAX else spans


def _greater(one: float, other: float) -> float:
    """The greater of two values; if one of them is NaN, the other one."""
    if math.isnan(one) or math.isnan(other):
        return other if math.isnan(one) else one
    return max(one, other)
