"""Charts as SVG: right with no value, with one, and with thousands."""

import math
import re
from xml.etree import ElementTree as ET

import pytest

from lakeingest.drawing.chart import BARS_MAX, Points, bars, lines, short

SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart: str) -> ET.Element:
    """The chart as XML, in which each number is one, and everything is within its frame."""
    assert not re.search(r"nan|inf", chart)
    root = ET.fromstring(chart)  # noqa: S314 - it is ours
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root:
        for name in ("x", "x1", "x2", "cx"):
            assert -0.1 <= float(element.get(name, 0)) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert -0.1 <= float(element.get(name, 0)) <= height
    return root


def texts(root: ET.Element) -> list[str]:
    """All texts of a chart."""
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("count", [0, 1, 2, 7, BARS_MAX, BARS_MAX + 1, 1_000, 100_000])
def test_there_is_a_bar_for_each_value_or_for_several(count: int) -> None:
    """Bars have gaps between them, are no wider than 40, and are as high as their values."""
    root = parsed(bars("rows of each wave", [float(1 + at % 5) for at in range(count)], "waves"))
    drawn = list(root.iter(f"{SVG}rect"))
    assert len(drawn) == count if count <= BARS_MAX else 0 < len(drawn) <= BARS_MAX
    assert all(0 < float(bar.attrib["width"]) <= 40 for bar in drawn)
    assert all(float(bar.attrib["height"]) > 0 for bar in drawn)
    starts = [float(bar.attrib["x"]) for bar in drawn]
    assert starts == sorted(set(starts))
    size = math.ceil(count / BARS_MAX)
    assert ("waves" if size <= 1 else f"waves, {size} a bar") in texts(root)
    assert f"{count:,}" in texts(root)  # or the 0 of the axis


def test_heights_are_in_proportion() -> None:
    """A value of half the size has a bar of half the height; nothing has none."""
    heights = [float(bar.attrib["height"]) for bar in parsed(bars("t", [8, 4, 0], "n")).iter(f"{SVG}rect")]
    assert heights[0] == pytest.approx(2 * heights[1])
    assert heights[2] == 0


@pytest.mark.parametrize("count", [0, 1, 2, 50, 5_000])
def test_a_line_joins_its_points(count: int) -> None:
    """An unknown value leaves a gap; few points have dots."""
    ys = tuple(math.nan if at == 1 else float(at) for at in range(count))
    root = parsed(lines("lag", Points(tuple(map(float, range(count))), ys), "seconds"))
    joined = [line for line in root.iter(f"{SVG}line") if line.get("stroke") != "currentColor"]
    assert len(joined) == max(0, count - 3)
    assert len(list(root.iter(f"{SVG}circle"))) == (count - (count > 1) if count <= BARS_MAX else 0)


def test_a_title_is_data() -> None:
    """It makes no tag."""
    root = parsed(bars('<script>"&\u202e', [1], "<b>"))
    assert "script" not in {element.tag for element in root.iter()}
    assert root.attrib["aria-label"].startswith("<script>")


def test_texts_have_the_colour_of_the_page() -> None:
    """So that they are legible on light and dark pages."""
    root = parsed(bars("t", [1], "n"))
    assert "fill: currentColor" in root.attrib["style"]
    assert all("fill" not in element.attrib for element in root.iter(f"{SVG}text"))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (999, "999"), (1_000, "1 k"), (2_500_000, "2.5 M"), (3e9, "3 G"), (4e12, "4 T")],
)
def test_a_number_is_short(value: float, text: str) -> None:
    """In at most six characters."""
    assert short(value) == text
