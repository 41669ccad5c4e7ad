"""Charts as SVG. Texts and axes have the colour of the page's text, so a chart is legible on light and dark pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Self

from lakeingest.core.printable import printable

BARS_MAX = 120  # more values than that are drawn as one bar for several of them, and as a line without dots
_WIDTH, _HEIGHT = 460, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 26, 34  # the margins around the plot
_BAR_MAX = 40.0  # the widest bar, so that the chart of one value is no block
COLOURS = {"blue": "#3b82c4", "orange": "#d9822b"}  # legible on white and on black
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Points:
    """Values to be drawn at places of the horizontal axis. `colour` is blue or orange."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    colour: str = "blue"

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]], colour: str = "blue") -> Self:
        """The points that are given as pairs."""
        return cls(tuple(x for x, _ in points), tuple(y for _, y in points), colour)


def bars(title: str, values: Sequence[float], label: str, colour: str = "blue") -> str:
    """A bar for each value, numbered from 1; `label` says what is numbered.

    Of more than BARS_MAX values, each bar is the mean of several that follow each other.
    """
    size = math.ceil(len(values) / BARS_MAX) or 1  # `or 1`: without values
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    means = [sum(part) / len(part) for part in parts]
    top, plot = _nice(max(means, default=0.0)), _WIDTH - _LEFT - _RIGHT
    each = plot / max(len(means), 1)
    width = min(each * 0.8, _BAR_MAX)
    drawn = "".join(
        f'<rect x="{_LEFT + each * at + (each - width) / 2:.1f}" y="{_y(value, top):.1f}" width="{width:.2f}"'
        f' height="{max(0.0, _y(0, top) - _y(value, top)):.1f}" fill="{COLOURS[colour]}"/>'
        for at, value in enumerate(means)
    )
    first, last = each / 2, plot - each / 2
    ticks = {_LEFT + first: "1"} if means else {}
    if len(values) > 1:
        ticks[_LEFT + last] = f"{len(values):,}"
    several = f"{label}, {size} a bar" if size > 1 else label
    return _chart(title, drawn, top, ticks, several)


def lines(title: str, points: Points, label: str) -> str:
    """The points joined by a line, each with a dot if there are few; `label` names the horizontal axis.

    An unknown value (NaN) is left out, and the line has a gap there.
    """
    known = [value for value in points.ys if not math.isnan(value)]
    top = _nice(max(known, default=0.0))
    start, end = (points.xs[0], points.xs[-1]) if points.xs else (0.0, 0.0)
    span = (end - start) or 1.0  # never 0, because it is a divisor
    colour = COLOURS[points.colour]
    places = [
        (_LEFT + (x - start) / span * (_WIDTH - _LEFT - _RIGHT), _y(y, top))
        for x, y in zip(points.xs, points.ys, strict=True)
    ]
    drawn = "".join(
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="1.5"/>'
        for (x1, y1), (x2, y2) in pairwise(places)
        if not (math.isnan(y1) or math.isnan(y2))
    )
    if len(places) <= BARS_MAX:
        known_places = [(x, y) for x, y in places if not math.isnan(y)]
        drawn += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in known_places)
    ticks = {float(_LEFT): short(start)} if places else {}
    if end > start:
        ticks[float(_WIDTH - _RIGHT)] = short(end)
    return _chart(title, drawn, top, ticks, label)


def short(value: float) -> str:
    """A number in few characters, such as `1.5 M`."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g}"


def _nice(greatest: float) -> float:
    """The upper end of an axis: the least round number that is not below `greatest`; 1 if `greatest` is 0 or less."""
    if greatest <= 0 or not math.isfinite(greatest):
        return 1.0
    size = 10.0 ** math.floor(math.log10(greatest))
    return next((step * size for step in _STEPS if step * size >= greatest), greatest)


def _y(value: float, top: float) -> float:
    """The place of a value on the vertical axis, from the top of the chart. `top`: the upper end of the axis."""
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / top)


def _chart(title: str, drawn: str, top: float, ticks: dict[float, str], label: str) -> str:
    """The frame of a chart around what is drawn. `top`: the upper end of the vertical axis. `ticks`: texts by place."""
    base, right = _y(0, top), _WIDTH - _RIGHT
    levels = "".join(
        f'<line x1="{_LEFT}" y1="{_y(level, top):.1f}" x2="{right}" y2="{_y(level, top):.1f}" stroke="currentColor"'
        f' opacity="{1 if level == 0 else 0.2}"/><text x="{_LEFT - 6}" y="{_y(level, top) + 4:.1f}"'
        f' text-anchor="end">{short(level)}</text>'
        for level in (0, top / 2, top)
    )
    below = "".join(
        f'<text x="{x:.1f}" y="{base + 14:.1f}" text-anchor="middle">{text}</text>' for x, text in ticks.items()
    )
    shown = escape(printable(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{shown}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" style="font: 11px system-ui, sans-serif; fill: currentColor">'
        f'<text x="{_LEFT}" y="14" style="font-weight: 600">{shown}</text>{levels}{drawn}{below}'
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(printable(label))}</text>'
        "</svg>"
    )
