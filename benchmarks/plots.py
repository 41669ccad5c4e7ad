"""The figures as pictures, which matplotlib draws; it is among the dependencies of development.

`python -m benchmarks.plots` draws those of `hour.json`, `large.json` and `beside.json` in `benchmarks/measured`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figures, spread
from benchmarks.ours_alone import BATCHES
from benchmarks.report import by_point
from benchmarks.rounds import CATCHUP, SNAPSHOT

Bar = tuple[str, float, float, float]  # who, and the least, the median and the greatest
Line = tuple[str, list[int], list[float]]  # what, over which values, and the medians


def draw(figures: Figures, folder: Path) -> list[Path]:
    """A PNG file of each scenario that there are figures of."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for scenario, unit in ((SNAPSHOT, "rows"), (CATCHUP, "changes")):
        if found := bars(figures, scenario):
            made.append(folder / f"{scenario}.png")
            _draw_bars(found, f"{scenario}: {unit} per second, without start-up", made[-1])
    if figures.of(BATCHES):
        made.append(folder / f"{BATCHES}-table.png")
        _draw_lines(over_table(figures), "rows in the table", made[-1])
        made.append(folder / f"{BATCHES}-changes.png")
        _draw_lines(over_batch(figures), "changes in the batch", made[-1])
    return made


def bars(figures: Figures, scenario: str) -> list[Bar]:
    """Who copies how many a second, the fastest first."""
    rates = {name: [one.rate for one in figures.of(scenario, name)] for name in figures.participants(scenario)}
    return sorted(((name, *spread(values)) for name, values in rates.items()), key=lambda bar: -bar[2])


def over_table(figures: Figures) -> list[Line]:
    """The seconds of a batch of one size as the table grows."""
    return _lines(
        [(f"{count:,} changes, {keys}", rows, seconds) for (rows, keys, count), seconds in _seconds(figures).items()]
    )


def over_batch(figures: Figures) -> list[Line]:
    """The seconds as the batch grows, for a table of one size."""
    return _lines(
        [(f"{rows:,} rows, {keys}", count, seconds) for (rows, keys, count), seconds in _seconds(figures).items()]
    )


def _seconds(figures: Figures) -> dict[tuple[int, str, int], float]:
    return {point: spread([one.net for one in rounds])[1] for point, rounds in by_point(figures, BATCHES).items()}


def _lines(points: Sequence[tuple[str, int, float]]) -> list[Line]:
    found: dict[str, list[tuple[int, float]]] = {}
    for label, over, seconds in points:
        found.setdefault(label, []).append((over, seconds))
    return [(label, [over for over, _ in sorted(line)], [s for _, s in sorted(line)]) for label, line in found.items()]


def _draw_bars(shown: Sequence[Bar], title: str, file: Path) -> None:
    from matplotlib.figure import Figure as Picture  # a second

    picture = Picture(figsize=(8, 1.2 + 0.5 * len(shown)), layout="constrained")
    axes = picture.subplots()
    names = [name for name, *_ in shown]
    medians = [median for _, _, median, _ in shown]
    whiskers = [[median - least for _, least, median, _ in shown], [most - median for _, _, median, most in shown]]
    drawn = axes.barh(names, medians, xerr=whiskers, color="#4878a8", ecolor="#333333", capsize=4)
    axes.bar_label(drawn, labels=[f"{median:,.0f}" for median in medians], padding=6)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{title}\nmedian, least to greatest of the rounds", fontsize=10, loc="left")
    picture.savefig(file, dpi=150)


def _draw_lines(shown: Sequence[Line], over: str, file: Path) -> None:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(8, 4.5), layout="constrained")
    axes = picture.subplots()
    for label, values, seconds in shown:
        axes.plot(values, seconds, marker="o", label=label)
    axes.set_xscale("log")
    ticks = sorted({value for _, values, _ in shown for value in values})
    axes.set_xticks(ticks, [f"{value:,}" for value in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(over)
    axes.set_ylabel("seconds of a run, without start-up")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    picture.savefig(file, dpi=150)


def draw_waits(phases: Mapping[str, Sequence[float]], file: Path) -> None:
    """The seconds within which so many of 100 changes are seen, in each phase of an hour."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(8, 4), layout="constrained")
    axes = picture.subplots()
    for name, seconds in phases.items():
        ordered = sorted(seconds)
        axes.plot([100 * (at + 1) / len(ordered) for at in range(len(ordered))], ordered, label=name)
    axes.set_xlabel("so many of 100 changes are seen within …")
    axes.set_ylabel("seconds after their commit")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    picture.savefig(file, dpi=150)


def draw_columns(rows: Sequence[tuple[str, Sequence[float]]], titles: Sequence[str], file: Path) -> None:
    """Draw a bar chart for each column, side by side, with one bar for each row."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(9, 1.2 + 0.32 * len(rows)), layout="constrained")
    fields = picture.subplots(1, len(titles), sharey=True)
    for field, title, values in zip(fields, titles, zip(*(values for _, values in rows), strict=True), strict=True):
        drawn = field.barh([name for name, _ in rows], values, color="#4878a8")
        field.bar_label(drawn, labels=[f"{value:,.4g}" for value in values], padding=4, fontsize=8)
        field.margins(x=0.25)
        field.set_xticks([])
        field.spines[["top", "right", "bottom"]].set_visible(False)
        field.set_title(title, fontsize=9, loc="left")
    fields[0].invert_yaxis()
    picture.savefig(file, dpi=150)


def main() -> None:
    """Draw them."""
    measured = Path(__file__).with_name("measured")
    draw_waits(json.loads((measured / "hour.json").read_text())["phases"], measured / "hour.png")
    for name in ("large", "beside"):
        kept = json.loads((measured / f"{name}.json").read_text())
        draw_columns([(what, values) for what, *values in kept["rows"]], kept["titles"], measured / f"{name}.png")


if __name__ == "__main__":
    main()
