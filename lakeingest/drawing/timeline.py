"""A timeline as HTML: a lane for each stage, in which bars show when the stage worked. It is as wide as its page."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.core.figures.clocks import spoken
from lakeingest.drawing.chart import COLOURS
from lakeingest.drawing.page import shown

Span = tuple[float, float]  # the seconds at which work began and ended
_HEIGHT = 14
_NAME = "text-align: right; overflow: hidden; text-overflow: ellipsis; white-space: nowrap"
_LANE = "width: 100%; display: block; background: rgba(128, 128, 128, 0.12)"
_TICKS = 2  # into how many parts the ticks divide the axis below the lanes
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True)
class Lane:
    """When a stage was at work. `colour` is blue or orange."""

    name: str
    spans: Sequence[Span]
    colour: str = "blue"


def timeline(lanes: Sequence[Lane], seconds: float) -> str:
    """The lanes, one below the other, and the axis of the time from 0 to `seconds`. Names are data, no HTML."""
    rows = "".join(_row(lane, max(seconds, 1e-9)) for lane in lanes)  # never 0, because it is a divisor
    ticks = "".join(f"<span>{shown(_tick(seconds * part / _TICKS))}</span>" for part in range(_TICKS + 1))
    return (
        '<div style="display: grid; grid-template-columns: fit-content(12em) minmax(0, 1fr); gap: 3px 8px;'
        f' align-items: center; font-size: 0.85rem">{rows}<div></div>'
        f'<div style="display: flex; justify-content: space-between; white-space: nowrap">{ticks}</div></div>'
    )


def joined(spans: Sequence[Span], most: int) -> list[Span]:
    """The spans in their order, at most `most` of them: spans with only a short gap between them become one."""
    ordered, found = sorted(spans), list[Span]()
    # fewer than `most` gaps can be wider than this: together they are shorter than the whole time
    least_gap = (max(end for _, end in ordered) - ordered[0][0]) / most if ordered else 0.0
    for start, end in ordered:
        if found and start - found[-1][1] <= least_gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _row(lane: Lane, whole: float) -> str:
    """A lane of a timeline of so many seconds: its name and its bars."""
    name, spoken_lane = shown(lane.name), shown(_spoken_lane(lane))
    drawn = "".join(_bar(span, whole, lane.colour) for span in lane.spans)
    return (
        f'<div style="{_NAME}" title="{name}">{name}</div><svg xmlns="http://www.w3.org/2000/svg" role="img"'
        f' aria-label="{spoken_lane}" height="{_HEIGHT}" style="{_LANE}; height: {_HEIGHT}px">{drawn}</svg>'
    )


def _bar(span: Span, whole: float, colour: str) -> str:
    """A bar as wide as its time, but wide enough to be seen."""
    start, end = span
    left = min(100.0 * start / whole, 99.8)  # so that a bar of the least width, 0.2 %, is within the lane
    width = max(100.0 * (end - start) / whole, 0.2)
    return f'<rect x="{left:.2f}%" width="{width:.2f}%" height="{_HEIGHT}" fill="{COLOURS[colour]}"/>'


def _spoken_lane(lane: Lane) -> str:
    """The lane in words, for programs that read pages aloud."""
    worked = sum(end - start for start, end in lane.spans)
    return f"{lane.name}: at work for {spoken(worked)}"


def _tick(seconds: float) -> str:
    """A time in few characters."""
    size, unit = next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])
    return "0" if seconds == 0 else f"{seconds / size:.3g} {unit}"
