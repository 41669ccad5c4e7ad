from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.position import FilePosition, GtidSet
from lakeingest.core.segments import Segment, cut

SKIP = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7")
POSITIONS = st.builds(
    lambda number, pos: FilePosition(f"binlog.{number:06d}", pos),
    st.integers(999_998, 1_000_001),
    st.integers(0, 9),
)


def order(at: FilePosition) -> tuple[int, int]:
    """Where a position stands in the binlog."""
    return at.number, at.pos


def segment(start: FilePosition, stop: FilePosition) -> Segment:
    """A segment of one server's binlog."""
    return Segment("3e11fa47-71ca-11e1-9e33-c80aa9429562", 2, start, stop, SKIP)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """A segment, sometimes empty."""
    start, stop = sorted(draw(st.tuples(POSITIONS, POSITIONS)), key=order)
    return segment(start, stop)


@given(segments(), st.lists(POSITIONS, max_size=12), st.integers(1, 5))
def test_the_pieces_are_the_whole_in_order(whole: Segment, ends: list[FilePosition], pieces: int) -> None:
    """Every transaction is decoded by exactly one reader, and none is cut."""
    parts = cut(whole, ends, pieces)
    if whole.empty:
        assert parts == []
        return
    assert parts[0].start == whole.start
    assert parts[-1].stop == whole.stop
    assert all(one.stop == two.start and one.stop in ends for one, two in pairwise(parts))
    assert not any(part.empty for part in parts)
    assert {(part.server_uuid, part.epoch, part.skip) for part in parts} == {(whole.server_uuid, 2, SKIP)}


@given(segments(), st.lists(POSITIONS, max_size=12), st.integers(1, 5))
def test_the_pieces_pass_about_as_many_transactions(whole: Segment, ends: list[FilePosition], pieces: int) -> None:
    """As many pieces as wanted where the boundaries allow it, and none with more than its share and one."""
    parts = cut(whole, ends, pieces)
    inside = {at for at in ends if order(whole.start) < order(at) < order(whole.stop)}
    assert len(parts) == (0 if whole.empty else min(pieces, len(inside) + 1))
    for part in parts:
        passed = sum(order(part.start) < order(at) <= order(part.stop) for at in inside)
        assert passed <= len(inside) / len(parts) + 1


def test_the_cuts_are_evenly_spread() -> None:
    """Not the first boundaries, which would leave the last reader with the rest."""
    ends = [FilePosition("binlog.000001", pos) for pos in range(100, 1000, 100)]
    whole = segment(FilePosition("binlog.000001", 4), FilePosition("binlog.000001", 1000))
    assert [part.stop.pos for part in cut(whole, ends, 5)] == [200, 400, 600, 800, 1000]


def test_a_segment_crosses_the_millionth_file() -> None:
    """Files are ordered by number, although their names sort otherwise."""
    whole = segment(FilePosition("binlog.999999", 4), FilePosition("binlog.1000000", 900))
    middle = FilePosition("binlog.1000000", 4)
    assert [(part.start, part.stop) for part in cut(whole, [middle], 2)] == [
        (whole.start, middle),
        (middle, whole.stop),
    ]


def test_a_segment_that_ends_before_it_begins_cannot_be_built() -> None:
    """A stop behind the start would read nothing and report success."""
    with pytest.raises(ValueError, match="ends before it begins"):
        segment(FilePosition("binlog.000002", 4), FilePosition("binlog.000001", 900))
