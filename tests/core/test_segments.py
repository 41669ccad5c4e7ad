from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.history import History, LastEvent
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position, bytes_between
from lakeingest.core.binlog.segments import Segment, cut

SKIP = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7")
SEEN = History(1_700_000_000, LastEvent(126, "ab"))
FILE_BYTES = 100
SIZES = {f"binlog.{number:06d}": FILE_BYTES for number in (1_000_001, 1_000_000, 999_999, 999_998)}
POSITIONS = st.builds(
    lambda number, pos: FilePosition(f"binlog.{number:06d}", pos),
    st.integers(999_998, 1_000_001),
    st.integers(0, FILE_BYTES),
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


def offset(at: FilePosition) -> int:
    """The bytes before a position, of all files."""
    return (at.number - 999_998) * FILE_BYTES + at.pos


CUTS = (segments(), st.lists(POSITIONS, max_size=12), st.integers(1, 5), st.integers(1, 90))


@given(*CUTS)
def test_the_pieces_are_the_whole_in_order(whole: Segment, ends: list[FilePosition], pieces: int, least: int) -> None:
    """Every transaction is decoded by exactly one reader, and none is cut."""
    parts = cut(whole, ends, SIZES, pieces, least)
    if whole.empty:
        assert parts == []
        return
    assert parts[0].start == whole.start
    assert parts[-1].stop == whole.stop
    assert all(one.stop == two.start and one.stop in ends for one, two in pairwise(parts))
    assert not any(part.empty for part in parts)
    assert {(part.server_uuid, part.epoch, part.skip) for part in parts} == {(whole.server_uuid, 2, SKIP)}


@given(*CUTS)
def test_the_pieces_are_about_as_long_as_each_other(
    whole: Segment, ends: list[FilePosition], pieces: int, least: int
) -> None:
    """No more than wanted, none too short to be worth a reader, none longer than its share and what cannot be cut."""
    parts = cut(whole, ends, SIZES, pieces, least)
    assert len(parts) <= pieces
    lengths = [offset(part.stop) - offset(part.start) for part in parts]
    if len(parts) > 1:
        assert min(lengths) >= least
    first, last = offset(whole.start), offset(whole.stop)
    known = sorted({first, last, *(offset(at) for at in ends if first < offset(at) < last)})
    gap = max((two - one for one, two in pairwise(known)), default=0)
    wanted = max(1, min(pieces, (last - first) // least))
    assert max(lengths, default=0) <= (last - first) / wanted + gap + 2 * least


def test_the_cuts_are_evenly_spread_over_the_bytes() -> None:
    """However boundaries crowd in one place: the last reader is not left with the rest."""
    ends = [FilePosition("binlog.000001", pos) for pos in (*range(10, 60, 2), 210, 395, 600, 790)]
    whole = segment(FilePosition("binlog.000001", 4), FilePosition("binlog.000001", 1000))
    parts = cut(whole, ends, {"binlog.000001": 1000}, 5, 100)
    assert [part.stop.pos for part in parts] == [210, 395, 600, 790, 1000]


def test_a_segment_that_is_short_is_one_piece() -> None:
    """Twice as long as the shortest piece it is two, below that another reader is not worth its connection."""
    ends = [FilePosition("binlog.000001", pos) for pos in range(100, 2000, 100)]
    for length, pieces in ((199, 1), (200, 2), (299, 2), (300, 3), (1500, 5)):
        whole = segment(FilePosition("binlog.000001", 100), FilePosition("binlog.000001", 100 + length))
        assert len(cut(whole, ends, {"binlog.000001": 2000}, 5, 100)) == pieces


def test_a_segment_crosses_the_millionth_file() -> None:
    """Files are ordered by number, although their names sort otherwise; a large one is more than a small one."""
    files = {"binlog.999999": 5000, "binlog.1000000": 900, "binlog.1000001": 5000}
    starts = [FilePosition(file, 4) for file in files]
    whole = segment(FilePosition("binlog.999999", 4), FilePosition("binlog.1000001", 4000))
    assert [(part.start, part.stop) for part in cut(whole, starts, files, 2, 100)] == [
        (whole.start, starts[1]),
        (starts[1], whole.stop),
    ]


def test_bytes_between_positions_need_the_sizes_of_files_that_end_between() -> None:
    """Within a file none; numbers of files are compared, not their names."""
    start, sizes = FilePosition("binlog.999999", 4), {"binlog.999998": 7, "binlog.999999": 100, "binlog.1000000": 300}
    assert bytes_between(start, FilePosition("binlog.999999", 50), {}) == 46
    assert bytes_between(start, FilePosition("binlog.1000001", 20), sizes) == 96 + 300 + 20


def test_a_segment_that_ends_before_it_begins_cannot_be_built() -> None:
    """A stop behind the start would read nothing and report success."""
    with pytest.raises(ValueError, match="ends before it begins"):
        segment(FilePosition("binlog.000002", 4), FilePosition("binlog.000001", 900))


@given(*CUTS)
def test_the_first_piece_proves_where_the_whole_begins(
    whole: Segment, ends: list[FilePosition], pieces: int, least: int
) -> None:
    """What was seen of the binlog at the start is of no other piece."""
    parts = cut(replace(whole, history=SEEN), ends, SIZES, pieces, least)
    assert [part.history for part in parts] == [SEEN, *[None] * (len(parts) - 1)][: len(parts)]


def test_a_boundary_behind_the_end_of_its_file_is_no_boundary() -> None:
    """A source that lost the end of its binlog in a crash goes on in a new file; what was noted before is gone."""
    whole = segment(FilePosition("binlog.000001", 4), FilePosition("binlog.000002", 90))
    sizes = {"binlog.000001": 60, "binlog.000002": 90}
    lost, there = FilePosition("binlog.000001", 70), FilePosition("binlog.000001", 60)
    assert [part.stop for part in cut(whole, [lost], sizes, 2, 1)] == [whole.stop]
    assert [part.stop for part in cut(whole, [lost, there], sizes, 2, 1)] == [there, whole.stop]


def test_a_segment_comes_after_a_position() -> None:
    """It has the position's server, epoch and history, and passes over what was executed before."""
    at, stop = FilePosition("binlog.000001", 4), FilePosition("binlog.000002", 90)
    after = Segment.after(Position("uuid", 3, at, SKIP, SEEN), stop)
    assert after == Segment("uuid", 3, at, stop, SKIP, SEEN)
    assert Segment.after(Position("uuid", 3, at, None), stop) == Segment("uuid", 3, at, stop, GtidSet())
