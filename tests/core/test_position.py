import json
import re
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeingest.core.binlog.history import Committed, History, LastEvent
from lakeingest.core.binlog.position import (
    DomainGtid,
    FilePosition,
    Gtid,
    GtidSet,
    Place,
    Position,
    file_name,
    file_number,
    file_start,
    files_after,
    in_same_file,
    is_before,
    is_in_one_of,
    is_within,
    latest,
)
from lakeingest.errors import StateUnreadable

ONE, TWO = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "ffffffff-0000-0000-0000-0000000000ff"
START = Place(0, 1, 4)
PLACES, SETS = st.from_type(Place), st.from_type(GtidSet)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def members(gtids: GtidSet) -> set[tuple[str, str, int]]:
    """The same set, as Python has sets."""
    return {
        (uuid, tag, number)
        for (uuid, tag), intervals in gtids.members
        for low, high in intervals
        for number in range(low, high + 1)
    }


@given(PLACES, PLACES)
def test_the_text_of_places_sorts_as_the_places_do(one: Place, two: Place) -> None:
    """Spark and snapshot properties compare the text."""
    assert (one < two) == (str(one) < str(two))
    assert (one == two) == (str(one) == str(two))


@given(PLACES, PLACES, PLACES)
def test_places_are_totally_ordered(one: Place, two: Place, three: Place) -> None:
    """Any two are comparable, by one order: epoch, file, position."""
    assert (one < two) + (one == two) + (two < one) == 1
    assert not (one < two < three) or one < three
    assert (one < two) == ((one.epoch, one.file, one.pos) < (two.epoch, two.file, two.pos))


@given(*[st.tuples(st.integers(999_998, 1_000_001), st.integers(4, 6))] * 2)
def test_positions_of_one_binlog_are_ordered_by_file_number_and_byte(
    one: tuple[int, int], two: tuple[int, int]
) -> None:
    """Also where the names get a digit more, and in which a name sorts otherwise."""
    at = [FilePosition(f"binlog.{number:06d}", pos).place(0) for number, pos in (one, two)]
    assert (at[0] < at[1], at[0] == at[1]) == (one < two, one == two)


def test_the_millionth_file_follows_the_one_before_it() -> None:
    """MySQL adds a seventh digit, and as text the name would sort first."""
    before, after = FilePosition("binlog.999999", 9000), FilePosition("binlog.1000000", 4)
    assert before.place(0) < after.place(0)
    assert str(before.place(0)) < str(after.place(0))
    assert before.number == 999_999


@given(PLACES)
def test_a_place_is_read_back_from_its_text(place: Place) -> None:
    """`parse` is the inverse of `str`."""
    assert Place.parse(str(place)) == place


@given(st.from_type(FilePosition))
def test_a_file_position_is_read_back_from_its_text(at: FilePosition) -> None:
    """`parse` is the inverse of `str`, even where the base name has dots."""
    assert FilePosition.parse(str(at)) == at


@given(st.text() | st.lists(st.sampled_from([".", ":", "1", "²", "a", "-", ",", ONE]), max_size=9).map("".join))
@example("1.².3")
@example("binlog.000001:²")
@example(f"{ONE}:²")
@example(f"{ONE}:1-²")
def test_text_is_read_or_refused_as_unreadable(text: str) -> None:
    """Whatever was stored, no other error comes out, and what is read is written as it can be read again."""
    for form in (Place, FilePosition, GtidSet):
        try:
            value = form.parse(text)
        except StateUnreadable:
            continue
        assert form.parse(str(value)) == value


@pytest.mark.parametrize("text", ["", "1.2", "1.2.3.4", "1.-2.3", "1.2.x"])
def test_what_is_no_place_is_refused(text: str) -> None:
    """A place has three numbers."""
    with pytest.raises(StateUnreadable, match="not a place"):
        Place.parse(text)


@pytest.mark.parametrize("text", ["", "binlog.000001", "binlog:4", "binlog.000001:x", ":4"])
def test_what_is_no_file_position_is_refused(text: str) -> None:
    """A file position has the name of a binlog file and a number."""
    with pytest.raises(StateUnreadable, match="not a binlog position"):
        FilePosition.parse(text)


def test_impossible_positions_cannot_be_built() -> None:
    """Nothing lies before the start, and a binlog file's name ends with its number."""
    with pytest.raises(ValueError, match="negative"):
        Place(0, 1, -1)
    with pytest.raises(ValueError, match="not a binlog position"):
        FilePosition("binlog", 4)
    with pytest.raises(ValueError, match="not a binlog position"):
        FilePosition("binlog.000001", -1)
    with pytest.raises(ValueError, match="not the name of a binlog file"):
        file_number("binlog")


@given(SETS)
def test_a_gtid_set_is_read_back_from_its_text(gtids: GtidSet) -> None:
    """`parse` is the inverse of `str`, with gaps and tags."""
    assert GtidSet.parse(str(gtids)) == gtids


@given(SETS)
def test_a_gtid_set_is_read_as_mysql_prints_it(gtids: GtidSet) -> None:
    """MySQL breaks lines after commas; people write upper case and spaces."""
    printed = str(gtids).upper().replace(",", ",\n").replace(":", " : ")
    assert GtidSet.parse(printed) == gtids


def test_tags_are_read_and_written_in_mysqls_form() -> None:
    """A tag holds for the intervals after it, until the next tag."""
    gtids = GtidSet.parse(f"{TWO.upper()}:7,\n{ONE}:1-3:5:bulk_load:1:a:2-4")
    assert members(gtids) == {
        *((ONE, "", number) for number in (1, 2, 3, 5)),
        (ONE, "bulk_load", 1),
        *((ONE, "a", number) for number in (2, 3, 4)),
        (TWO, "", 7),
    }
    assert str(gtids) == f"{ONE}:1-3:5:a:2-4:bulk_load:1,{TWO}:7"
    assert Gtid(ONE, 1, "bulk_load") in gtids
    assert Gtid(ONE, 4) not in gtids
    assert str(Gtid(ONE, 1, "bulk_load")) == f"{ONE}:bulk_load:1"
    assert str(Gtid(ONE, 4)) == f"{ONE}:4"


def test_gaps_stay_and_touching_intervals_become_one() -> None:
    """A closed gap would be a lost transaction; 1-2 and 3 are 1-3 in MySQL as well."""
    assert str(GtidSet.parse(f"{ONE}:1-2:3:5")) == f"{ONE}:1-3:5"
    assert Gtid(ONE, 4) not in GtidSet.parse(f"{ONE}:1-3:5")


@given(SETS, SETS)
def test_the_algebra_of_gtid_sets_is_that_of_sets(one: GtidSet, two: GtidSet) -> None:
    """Union, difference, inclusion and membership agree with Python's sets, so no gap is ever closed."""
    left, right = members(one), members(two)
    assert members(one | two) == left | right
    assert members(one - two) == left - right
    assert members(one & two) == left & right
    assert (one <= two) == (left <= right)
    assert bool(one) == bool(left)
    assert one.count == len(left)
    assert (one == two) == (left == right)
    assert all((Gtid(uuid, number, tag) in one) == ((uuid, tag, number) in left) for uuid, tag, number in left | right)


@given(SETS)
def test_a_gtid_set_is_the_set_of_its_gtids(gtids: GtidSet) -> None:
    """Built one by one, in any order, it is the same value."""
    assert GtidSet.of_gtids(Gtid(uuid, number, tag) for uuid, tag, number in members(gtids)) == gtids


@pytest.mark.parametrize(
    "text", ["x", ONE, f"{ONE}:", f"{ONE}:0-5", f"{ONE}:1-", f"{ONE}:-1", f"{ONE}:1-2-3", f"{ONE}-1:1", f"1{ONE}:1"]
)
def test_what_is_no_gtid_set_is_refused(text: str) -> None:
    """Half a set must not pass for the whole."""
    with pytest.raises(StateUnreadable, match="not a GTID set"):
        GtidSet.parse(text)


@pytest.mark.parametrize("text", ["", "\n", f"{ONE}:5-3"])
def test_an_empty_gtid_set_is_read(text: str) -> None:
    """A new server has executed nothing; MySQL takes an interval that ends before it begins for empty."""
    assert GtidSet.parse(text) == GtidSet()


@pytest.mark.parametrize(
    "sources",
    [
        (((TWO, ""), ((1, 1),)), ((ONE, ""), ((1, 1),))),
        (((ONE, ""), ((1, 1),)), ((ONE, ""), ((3, 3),))),
        (((ONE, ""), ()),),
        (((ONE, ""), ((1, 2), (3, 4))),),
        (((ONE, ""), ((0, 2),)),),
        (((ONE, ""), ((4, 2),)),),
    ],
)
def test_a_gtid_set_has_one_form(
    sources: tuple[tuple[tuple[str, str], tuple[tuple[int, int], ...]], ...],
) -> None:
    """Sorted, without empty parts, intervals apart: so that equal sets are equal values."""
    with pytest.raises(ValueError, match=re.compile("sorted|left out|ascending")):
        GtidSet(sources)


@given(st.from_type(Position))
def test_a_position_is_read_back_from_json(position: Position) -> None:
    """What a commit records is what the next run reads, with GTIDs or without."""
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position
    assert position.place == Place(position.epoch, position.at.number, position.at.pos)


@given(st.from_type(Position), st.sampled_from(["server_uuid", "epoch", "at", "gtids"]), JSON)
def test_a_damaged_position_is_unreadable(position: Position, part: str, damage: object) -> None:
    """A part that is missing is refused; a part that is wrong is never another error."""
    doc = position.to_json()
    with suppress(StateUnreadable):
        Position.from_json(doc | {part: damage})
    del doc[part]
    with pytest.raises(StateUnreadable, match="not a saved position"):
        Position.from_json(doc)


@given(st.from_type(Position))
def test_a_position_without_a_known_history_is_read_as_such(position: Position) -> None:
    """Its document does not name one."""
    doc = replace(position, history=None).to_json()
    assert doc.keys() == {"server_uuid", "epoch", "at", "gtids"}
    assert Position.from_json(doc) == replace(position, history=None)


@given(st.from_type(Position), st.sampled_from(["began", "event", "last"]), JSON)
def test_a_damaged_history_is_unreadable(position: Position, part: str, damage: object) -> None:
    """A part that is missing or wrong is refused: it must not pass for a binlog of which nothing is known."""
    history = (position.history or History()).to_json()
    with suppress(StateUnreadable):
        Position.from_json(position.to_json() | {"history": history | {part: damage}})
    del history[part]
    with pytest.raises(StateUnreadable, match="not a saved position"):
        Position.from_json(position.to_json() | {"history": history})


def test_a_position_moves_to_the_end_of_a_segment() -> None:
    """What was seen of the binlog at the new stop counts; the last transaction stays it where none came since."""
    last, later = Committed("b.000001", 200, f"{ONE}:3", 7), Committed("b.000002", 300, f"{ONE}:4", 9)
    begins = Position(ONE, 1, FilePosition("b.000001", 400), GtidSet.parse(f"{ONE}:1-3"), History(5, None, last))
    stop, event = FilePosition("b.000002", 157), LastEvent(126, "ab")
    quiet = begins.moved(stop, GtidSet(), History(8, event))
    assert quiet == replace(begins, at=stop, history=History(8, event, last))
    busy = quiet.moved(
        FilePosition("b.000002", 500), GtidSet.parse(f"{ONE}:4"), History(8, LastEvent(469, "cd"), later)
    )
    assert (busy.history, str(busy.gtids)) == (History(8, LastEvent(469, "cd"), later), f"{ONE}:1-4")
    unseen = busy.moved(FilePosition("b.000003", 4), GtidSet(), None)
    assert unseen.history == History(last=later)
    unknown = replace(begins, gtids=None, history=None).moved(stop, GtidSet(), None)
    assert (unknown.history, unknown.gtids) == (None, None)


def test_positions_are_compared_by_the_number_of_their_file() -> None:
    """Not by its name: `.999999` comes before `.1000000`."""
    earlier, later = FilePosition("binlog.999999", 500), FilePosition("binlog.1000000", 4)
    assert is_before(earlier, later)
    assert not is_before(later, earlier)
    assert not is_before(later, later)
    assert latest([later, earlier]) == later
    assert file_start("binlog.1000000") == later
    assert in_same_file(later, FilePosition("binlog.1000000", 90))
    assert not in_same_file(later, earlier)


def test_a_position_has_a_file_among_others() -> None:
    """Files come in the order of their numbers, and their names have at least as many digits as the position's."""
    at, files = FilePosition("binlog.999999", 500), ["binlog.999998", "binlog.999999", "binlog.1000000"]
    assert at.start_of_file == FilePosition("binlog.999999", 4)
    assert is_in_one_of(at, files)
    assert not is_in_one_of(at, files[::2])
    assert files_after(at, files) == ["binlog.1000000"]
    assert [file_name(number, like=at) for number in (7, 1_000_000)] == ["binlog.000007", "binlog.1000000"]


def test_the_start_of_a_positions_file_has_the_history_of_the_file_alone() -> None:
    """The last event and the last transaction come after it."""
    history = History(5, LastEvent(126, "ab"), Committed("b.000001", 200, None, 7))
    position = Position(ONE, 1, FilePosition("b.000001", 400), None, history)
    start = replace(position, at=FilePosition("b.000001", 4), history=History(5))
    assert position.start_of_file == start.start_of_file == start
    assert replace(position, history=None).start_of_file == replace(start, history=None)


def test_a_position_is_within_files_that_reach_it() -> None:
    """The end of a file is within it; a file that is missing reaches nothing."""
    sizes = {"binlog.000001": 100}
    assert is_within(FilePosition("binlog.000001", 100), sizes)
    assert not is_within(FilePosition("binlog.000001", 101), sizes)
    assert not is_within(FilePosition("binlog.000002", 4), sizes)


def test_a_gtid_of_mariadb_is_written_in_its_three_parts() -> None:
    """Domain, server, number."""
    assert str(DomainGtid(0, 7, 42)) == "0-7-42"
