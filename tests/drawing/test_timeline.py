"""Timelines as HTML, and spans that become one."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.drawing.timeline import Lane, joined, timeline

TIMES = st.floats(0, 1e6, allow_nan=False)
SPANS = st.lists(st.tuples(TIMES, TIMES).map(lambda span: (min(span), max(span))), max_size=60)


@given(SPANS, st.integers(1, 20))
def test_joined_spans_are_few_and_cover_all_work(spans: list[tuple[float, float]], most: int) -> None:
    """In their order, apart from each other; and of few spans that do not touch, none is changed."""
    found = joined(spans, most)
    assert len(found) <= most
    assert found == sorted(found)
    assert all(end < start for (_, end), (start, _) in pairwise(found))
    assert all(any(first <= start and end <= last for first, last in found) for start, end in spans)
    if found:
        assert (found[0][0], found[-1][1]) == (min(start for start, _ in spans), max(end for _, end in spans))


def test_far_spans_stay_apart() -> None:
    """Only those that are near become one."""
    assert joined([(90.0, 100.0), (0.0, 1.0), (1.5, 2.0)], 4) == [(0.0, 2.0), (90.0, 100.0)]


@pytest.mark.parametrize("seconds", [0.0, 1e-3, 10.0, 1e6])
def test_each_bar_is_within_its_lane_and_can_be_seen(seconds: float) -> None:
    """Also the bar of a moment, of a run without any time, and one that lasts longer than the run."""
    spans = [(0.0, 0.0), (seconds / 2, seconds), (seconds, seconds + 5.0)]
    drawn = timeline([Lane("waves", spans), Lane("source away", spans, "orange")], seconds)
    bars = [(float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', drawn)]
    assert len(bars) == 6
    assert all(0 <= x < 100 and width > 0 for x, width in bars)
    assert not re.search("nan|inf", drawn)


def test_a_name_is_data() -> None:
    """It makes no tag and no attribute."""
    drawn = timeline([Lane('<script>"\u202e', [(0.0, 1.0)])], 1.0)
    assert "<script" not in drawn
    assert "\u202e" not in drawn
    assert "&lt;script&gt;&quot;" in drawn
