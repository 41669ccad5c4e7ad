"""The figures as tables for a reader; of three numbers in a cell the middle one is the median."""

import statistics
from collections.abc import Callable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, Figures, spread
from benchmarks.limits import LIMITS
from benchmarks.ours_alone import BATCHES, FOLLOW, RECOPY
from benchmarks.rounds import CATCHUP, SNAPSHOT
from benchmarks.upserts import UPSERT

_UNITS = {SNAPSHOT: "rows", CATCHUP: "changes"}


def show(figures: Figures, console: Console) -> None:
    """Print all of them, then what has to be known beside them."""
    console.print("; ".join(f"{key}: {value}" for key, value in figures.about.items()), highlight=False)
    for scenario, table in (
        *((name, copies(figures, name)) for name in (SNAPSHOT, CATCHUP)),
        *((name, batches(figures, name)) for name in (BATCHES, UPSERT)),
        (FOLLOW, freshness(figures, FOLLOW)),
        (RECOPY, freshness(figures, RECOPY)),
        (LIMITS, limits(figures)),
    ):
        if figures.of(scenario):
            console.print(table)
    console.print("of three numbers: least / median / greatest of the rounds; net: without the start-up")
    for name, notes in figures.notes.items():
        for note in notes:
            console.print(f"{name}: {note}", highlight=False)
    for name, reason in figures.not_measured.items():
        console.print(f"{name}: not measured: {reason}", highlight=False, markup=False)


def copies(figures: Figures, scenario: str) -> Table:
    """A participant a column."""
    names = figures.participants(scenario)
    shown = _table(scenario, "", *names)
    cells: dict[str, Callable[[list[Figure]], str]] = {
        "rounds": lambda rounds: str(len(rounds)),
        "wall s": lambda rounds: _three([one.wall for one in rounds], 1),
        "start-up s": lambda rounds: _three([one.startup for one in rounds], 1),
        "net s": lambda rounds: _three([one.net for one in rounds], 1),
        "CPU s": lambda rounds: _three([one.cpu for one in rounds], 1),
        f"{_UNITS[scenario]} per second, net": lambda rounds: _three([one.rate for one in rounds]),
        "ours ÷ it, net": lambda rounds: _three(figures.ratios(rounds, lambda one: one.rate), 2),
        "ours ÷ it, per CPU s": lambda rounds: _three(
            figures.ratios([one for one in rounds if one.cpu], lambda one: one.count / one.cpu), 2
        ),
        "peak RSS MB, all": lambda rounds: _three([one.rss / 2**20 for one in rounds]),
        "peak RSS MB, largest": lambda rounds: _three([one.rss_largest / 2**20 for one in rounds]),
        "reading afterwards s": lambda rounds: _three([one.reading for one in rounds if one.reading], 1),
        "equal": lambda rounds: "\n".join(dict.fromkeys(one.equal for one in rounds if one.equal)),
    }
    for label, cell in cells.items():
        shown.add_row(label, *(cell(figures.of(scenario, name)) for name in names))
    return shown


def batches(figures: Figures, scenario: str) -> Table:
    """A size of the table, kind of keys and size of the batch a row."""
    headings = "net s", "CPU s, net", "changes per second, net", "peak RSS MB, all"
    shown = _table(scenario, "table rows", "keys", "changes", *headings)
    for (rows, keys, count), rounds in by_point(figures, scenario).items():
        numbers = [[one.net for one in rounds], [one.net_cpu for one in rounds]]
        whole = [[one.rate for one in rounds], [one.rss / 2**20 for one in rounds]]
        cells = *(_three(values, 1) for values in numbers), *(_three(values) for values in whole)
        shown.add_row(f"{rows:,}", keys, f"{count:,}", *cells)
    return shown


def by_point(figures: Figures, scenario: str) -> dict[tuple[int, str, int], list[Figure]]:
    """The rounds of each table size, kind of keys and batch size."""

    def point(one: Figure) -> tuple[int, str, int]:
        return one.table_rows, one.keys, one.count

    return {key: list(rounds) for key, rounds in groupby(sorted(figures.of(scenario), key=point), point)}


def freshness(figures: Figures, scenario: str) -> Table:
    """A row for each copy and each time that it is followed: from a row's commit until it is published."""
    shown = _table(scenario, "round", "", "count", "s", "a second", "marks", "p50 s", "p95 s", "CPU s", "RSS MB")
    for one in figures.of(scenario):
        cells = f"{one.count:,} {one.unit}", f"{one.net:.1f}", f"{one.rate:,.0f}", str(len(one.freshness))
        percentiles = _percentiles(one.freshness)
        shown.add_row(str(one.round), one.keys, *cells, *percentiles, f"{one.cpu:.1f}", f"{one.rss >> 20}")
    return shown


def _percentiles(values: Sequence[float]) -> tuple[str, str]:
    """The 50th and the 95th percentile."""
    if len(values) < 2:  # noqa: PLR2004 - one value is no spread
        return "", ""
    found = statistics.quantiles(values, n=20, method="inclusive")
    return f"{found[9]:.2f}", f"{found[18]:.2f}"


def limits(figures: Figures) -> Table:
    """A limit a row."""
    shown = _table(LIMITS, "limit", "count", "wall s", "CPU s", "per second")
    for name in figures.participants(LIMITS):
        rounds = figures.of(LIMITS, name)
        numbers = [[one.wall for one in rounds], [one.cpu for one in rounds]]
        count = f"{rounds[0].count:,} {rounds[0].unit}"
        shown.add_row(name, count, *(_three(one, 1) for one in numbers), _three([one.rate for one in rounds]))
    return shown


def _table(title: str, *headings: str) -> Table:
    shown = Table(title=title, title_justify="left")
    for heading in headings:
        shown.add_column(heading, justify="left" if heading in {"", "keys", "limit"} else "right")
    return shown


def _three(values: Sequence[float], digits: int = 0) -> str:
    if len(values) < 2:  # noqa: PLR2004 - one value is no spread
        return "".join(f"{value:,.{digits}f}" for value in values)
    return " / ".join(f"{value:,.{digits}f}" for value in spread(values))
