"""The page of a run, for a browser: how it went, what it did to each table, and what to do about its errors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from lakeingest.config import Config
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.shown import iso_time
from lakeingest.drawing.chart import Points, bars, lines
from lakeingest.drawing.page import page, shown, wide
from lakeingest.drawing.table import html_table
from lakeingest.drawing.timeline import Lane, joined, timeline
from lakeingest.monitoring.course import SPANS_MAX, Course, TableCourse
from lakeingest.monitoring.ending import Ending
from lakeingest.version import VERSION

TABLES_SHOWN = 200  # those with most to say, so that a page of many tables stays small
LANES_SHOWN = 12  # of waves, one for each table
ERRORS_SHOWN = 50
_STAGES = ("opening", "waves", "rows read again", "binlog", "merges", "gates", "publishes", "source away")
_EFFECTS = ("table", "rows copied", "waves", "read again", "inserted", "updated", "deleted", "publishes")
_STATES = ("table", "state", "rows", "position", "fresh as of", "lag, bytes", "lag, seconds", "last gate")
_GATES = ("table", "gate", "expectations", "failed", "warnings", "seconds")
_COSTS = ("stage", "times", "seconds", "CPU seconds")


@dataclass(frozen=True, slots=True)
class RunPage:
    """What the page of a run says. `began`: in seconds since 1970. `ending` is None while the run is at work."""

    config: Config
    course: Course
    began: float
    seconds: float
    ending: Ending | None

    def __str__(self) -> str:
        began = iso_time(self.began)
        return page(f"{self.config.name}: run of {began}", "".join(self._parts(f"{self.config.name}: run of {began}")))

    def _parts(self, title: str) -> Iterator[str]:
        """The HTML of the page, part by part."""
        course = self.course
        yield f"<h1>{shown(title)}</h1>{self._verdict}{_facts(self._facts())}"
        yield from self._errors()
        if lanes := self._lanes():
            yield f"<h2>Timeline</h2>{timeline(lanes, self.seconds)}"
        yield from _section("Effects by table", _EFFECTS, self._effects())
        yield from _section("Tables", _STATES, self._states())
        yield from self._gates()
        charts = []
        if len(course.lags) > 1:
            charts.append(lines("lag of the slowest table, bytes", Points.of(course.lags.points), "seconds of the run"))
            ages = Points.of(course.ages.points)
            charts.append(lines("age of what readers see, seconds", ages, "seconds of the run"))
        if any(rate for _, rate in course.rates.points):
            rates = Points.of(course.rates.points, "orange")
            charts.append(lines("changes applied, per second", rates, "seconds of the run"))
        if course.wave_rows:
            charts.append(bars("rows of each wave", course.wave_rows, "waves"))
            charts.append(bars("seconds of each chunk", course.chunk_seconds, "chunks", "orange"))
        if charts:
            yield f"<h2>Lag and throughput</h2><div>{' '.join(charts)}</div>"
        yield from _section("Time of each stage", _COSTS, self._costs())
        if course.happenings:
            left_out = course.happened - len(course.happenings)
            texts = "".join(f"<li>{iso_time(at)}: {shown(text)}</li>" for at, text in course.happenings)
            more = f"<p>{left_out:,} earlier lines are left out.</p>" if left_out else ""
            yield f"<h2>What else happened</h2>{more}<ul>{texts}</ul>"

    @property
    def _verdict(self) -> str:
        """How the run has ended, or that it is at work, as HTML."""
        ending = self.ending
        if ending is None:
            return f"<p>at work, as of {iso_time(self.began + self.seconds)}</p>"
        if ending.is_interrupted:
            return f"<p>interrupted, exit code {ending.code}</p>"
        if ending.code:
            return f'<p class="failed">failed with exit code {ending.code}: {shown(ending.error)}</p>'
        return f'<p class="passed">{shown(ending.result.notes[0])}</p>'  # the first note says how the run ended

    def _facts(self) -> Iterator[tuple[str, str]]:
        """The names and values of facts about the run as a whole."""
        config, tables = self.config, self.course.tables.values()
        source, result = config.source, None if self.ending is None else self.ending.result
        yield "pipeline", config.name
        yield "source", f"{source.type} at {source.host}:{source.port}"
        yield "target", f"{config.target.format} at {config.target.warehouse}"
        yield ("as of" if self.ending is None else "ended"), str(iso_time(self.began + self.seconds))
        yield "took", spoken(self.seconds)
        yield "tables", f"{len(self._names()):,}"
        total = {name: sum(getattr(table, name) for table in tables) for name in (*TableCourse.COUNTS, "applied")}
        yield (
            "effects",
            f"{total['rows']:,} rows copied in {total['waves']:,} waves, {total['reread']:,} rows read again,"
            f" {total['applied']:,} change rows applied: {total['inserted']:,} keys inserted,"
            f" {total['updated']:,} updated, {total['deleted']:,} deleted; {total['publishes']:,} publishes",
        )
        if result is not None and result.bill is not None:
            yield "bill", str(result.bill)
        yield "lakeingest", VERSION

    def _errors(self) -> Iterator[str]:
        """The errors of the run and of its tables; then the runbook of each kind of error."""
        found = list(self._named_errors())
        if not found:
            return
        items = "".join(
            f'<p><span class="failed">{shown(what)}: {shown(name)}</span><br>{shown(message)}</p>'
            for what, name, message in found[:ERRORS_SHOWN]
        )
        more = f"<p>and {len(found) - ERRORS_SHOWN:,} more tables</p>" if len(found) > ERRORS_SHOWN else ""
        runbooks = "".join(
            f"<details><summary>Runbook: <code>lakeingest explain {shown(name)}</code></summary>"
            f"<pre>{_escaped_lines(text)}</pre></details>"
            for name in dict.fromkeys(name for _, name, _ in found)
            if (text := _runbook(name))
        )
        yield f"<h2>Errors</h2>{items}{more}{runbooks}"

    def _named_errors(self) -> Iterator[tuple[str, str, str]]:
        """What has failed, the name of the error, and its message."""
        ending = self.ending
        if ending is None or ending.result is None:  # without a result, the events tell which tables have an error
            if ending is not None and ending.error:
                yield "the run", ending.error, ending.message
            for name, table in self.course.tables.items():
                if table.error is not None:
                    yield name, table.error.runbook, " ".join(str(table.error).split())
            return
        for stopped in ending.result.stopped:
            yield str(stopped.table), stopped.error, stopped.message

    def _lanes(self) -> list[Lane]:
        """A lane for each stage. Below the lane of the waves, a lane for each table, if several tables have waves."""
        course, lanes = self.course, list[Lane]()
        for stage in _STAGES:
            if stage not in course.spans:
                continue
            lanes.append(Lane(stage, course.spans[stage], "orange" if stage == "source away" else "blue"))
            copied = [name for name in self._ordered(course.tables) if course.tables[name].spans]
            if stage == "waves" and len(copied) > 1:
                lanes += [Lane(f"· {name}", course.tables[name].spans) for name in copied[:LANES_SHOWN]]
                others = [span for name in copied[LANES_SHOWN:] for span in course.tables[name].spans]
                lanes += [Lane(f"· {len(copied) - LANES_SHOWN:,} more", joined(others, SPANS_MAX))] if others else []
        return lanes

    def _effects(self) -> Iterator[Sequence[object]]:
        """A row for each table to which the run has written."""
        tables = self.course.tables
        for name in self._ordered(tables):
            if tables[name].effects or tables[name].publishes:
                yield name, *(getattr(tables[name], count) for count in TableCourse.COUNTS)

    def _states(self) -> Iterator[Sequence[object]]:
        """A row for each table: by its last measurement, or by the run's events if it was not measured."""
        measured = self._measures()
        for name in self._ordered(self._names()):
            table, measure = self.course.tables.get(name, TableCourse()), measured.get(name)
            state = table.readers or "unchanged"
            if measure is None:
                yield name, state, None, None, None, None, None, table.gate  # only a measurement has the other values
                continue
            if measure.error or measure.paused:
                state = f"stopped, {measure.error}" if measure.error else "paused"
            elif table.publishes:
                state = "published"
            numbers = measure.lag_bytes, measure.lag_seconds
            yield name, state, measure.rows, measure.position, iso_time(measure.as_of), *numbers, table.gate

    def _gates(self) -> Iterator[str]:
        """How many of the last gates passed without a warning, and a row for each gate that failed or warns."""
        tables = self.course.tables
        gates = [(name, gate) for name in self._ordered(tables) for gate in tables[name].gates.values()]
        others = [(name, gate) for name, gate in gates if gate.failed or gate.warnings]
        if gates:
            yield f"<h2>Gates</h2><p>{len(gates) - len(others):,} of {len(gates):,} gates passed without a warning.</p>"
        others.sort(key=lambda one: not one[1].failed)  # failed gates come first, then those with only warnings
        rows = ((name, gate.stage, gate.evaluated, gate.failed, gate.warnings, gate.seconds) for name, gate in others)
        yield from _section("", _GATES, rows)

    def _costs(self) -> Iterator[Sequence[object]]:
        """A row for each stage, once the run has a result."""
        result = None if self.ending is None else self.ending.result
        for cost in () if result is None else result.profile:
            yield cost.stage, cost.times, cost.wall, cost.cpu

    def _measures(self) -> dict[str, Measure]:
        """The last measurement of each table, by the table's name; empty before the first measurement."""
        measured = self.course.measured
        return {} if measured is None else {str(measure.table): measure for measure in measured.tables}

    def _names(self) -> list[str]:
        """The tables of the run's events and of its last measurement."""
        return list(dict.fromkeys((*self.course.tables, *self._measures())))

    def _ordered(self, names: Iterable[str]) -> list[str]:
        """Tables that have stopped first, then those that the run changed most."""
        tables, none, measures = self.course.tables, TableCourse(), self._measures()
        stopped = {name for name, measure in measures.items() if measure.error}

        def order(name: str) -> tuple[bool, int, str]:
            table = tables.get(name, none)
            is_going_on = table.error is None and name not in stopped
            return is_going_on, -table.effects, name  # False comes before True

        return sorted(names, key=order)


def _section(title: str, headers: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    """A table below its title; nothing if it has no row. Beyond TABLES_SHOWN, rows are counted and not shown."""
    listed = list(rows)
    if listed:
        more = len(listed) - TABLES_SHOWN
        note = f"and {more:,} more rows, which are not shown" if more > 0 else ""
        head = f"<h2>{shown(title)}</h2>" if title else ""
        yield f"{head}{wide(html_table(headers, listed[:TABLES_SHOWN], note))}"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    """The facts as a list in HTML."""
    rows = "".join(f"<dt>{shown(name)}</dt><dd>{shown(value)}</dd>" for name, value in facts)
    return f'<dl class="facts">{rows}</dl>'


def _runbook(name: str) -> str:
    """The text of the runbook of this name; '' if there is none."""
    file = resources.files("lakeingest").joinpath("runbooks", f"{name}.md")
    return file.read_text(encoding="utf-8") if name.isidentifier() and file.is_file() else ""


def _escaped_lines(text: str) -> str:
    return "\n".join(map(shown, text.split("\n")))
