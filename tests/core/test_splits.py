import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import GtidSet, Place
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.errors import StateUnreadable

AT, LATER = Place(0, 1, 100), Place(0, 1, 200)
LOW = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7")
SPLITS, PLACES = st.from_type(Splits), st.from_type(Place)


def width(splits: Splits) -> int:
    """The number of key columns; one where no bound shows it."""
    return next((len(split.range.upper) for split in splits.all if split.range.upper), 1)


@given(SPLITS, st.data())
def test_find_agrees_with_a_linear_search(splits: Splits, data: st.DataObject) -> None:
    """A key is in the one split whose range has it, or its chunk is still to be read."""
    key: Key = data.draw(st.tuples(*[st.integers(-6, 6)] * width(splits)))
    found = [split for split in splits.all if key in split.range]
    assert len(found) <= 1
    assert splits.find(key) == (found[0] if found else None)


@given(SPLITS)
def test_splits_know_how_far_the_table_is_copied(splits: Splits) -> None:
    """Every key below `copied_up_to` is in a split; a complete table has all of them."""
    up_to = splits.copied_up_to
    if up_to is not None:
        assert splits.find(up_to) is None
        assert splits.find((*up_to[:-1], int(up_to[-1]) - 1)) == splits.all[-1]
    assert splits.complete == (bool(splits.all) and up_to is None)


@given(SPLITS, SPLITS)
def test_a_wave_continues_where_the_splits_end(splits: Splits, more: Splits) -> None:
    """Nothing is lost and nothing is there twice; a wave that leaves a gap is refused."""
    splits = Splits(splits.all[:-1]) if splits.complete else splits
    wave = [split for split in more.all if split.range.lower is not None]
    if splits.all and wave and wave[0].range.lower != splits.copied_up_to:
        with pytest.raises(ValueError, match="a gap or an overlap"):
            splits.finish(wave)
    for count in range(len(splits.all) + 1):
        finished = Splits(splits.all[:count]).finish(splits.all[count:])
        assert all(mark(finished, key) == mark(splits, key) for key in around(splits))
        assert finished.all[:count] == splits.all[:count]
        last = finished.all[count:]
        assert all(replace(one, range=two.range) != two for one, two in pairwise(last))


def around(splits: Splits) -> set[Key]:
    """Keys at the bounds and beside them."""
    keys = {bound for split in splits.all for bound in (split.range.lower, split.range.upper) if bound is not None}
    return {(*key[:-1], int(key[-1]) + step) for key in keys or {(0,)} for step in (-1, 0, 1)}


def mark(splits: Splits, key: Key) -> tuple[object, ...] | None:
    """What changes of the key are judged by."""
    split = splits.find(key)
    return None if split is None else (split.low, split.high, split.merged_at)


def test_a_complete_table_takes_no_more_waves() -> None:
    """Not even an empty one: somebody lost count."""
    with pytest.raises(ValueError, match="no more chunks"):
        Splits((Split(KeyRange(), merged_at=AT),)).finish([])


@given(SPLITS, PLACES, st.data())
def test_a_merge_moves_the_planned_splits_and_no_others(splits: Splits, stop: Place, data: st.DataObject) -> None:
    """A wave that was appended after the plan keeps its watermarks, and the keys stay tiled."""
    count = data.draw(st.integers(0, len(splits.all)))
    planned = Splits(splits.all[:count])
    merged = splits.merged_to(planned, stop)
    for key in around(splits):
        assert mark(merged, key) == (mark(splits, key) if planned.find(key) is None else (None, None, stop))
    assert len(merged.all) <= len(splits.all)
    assert merged.copied_up_to == splits.copied_up_to
    assert merged.complete == splits.complete


@given(SPLITS, PLACES)
def test_a_table_whose_splits_are_all_merged_is_one_split(splits: Splits, stop: Place) -> None:
    """Split information stays small, and a complete table stands at the stop."""
    merged = splits.merged_to(splits, stop)
    assert len(merged.all) == min(len(splits.all), 1)
    assert merged.stop == (stop if splits.complete else None)


def test_a_table_stands_at_a_stop_only_when_all_splits_do() -> None:
    """Neither an unmerged split nor one at another mark is overlooked."""
    first, second = KeyRange(None, (5,)), KeyRange((5,), None)
    merged = Split(first, merged_at=AT)
    assert Splits().stop is None
    assert Splits((merged,)).stop is None
    assert Splits((merged, Split(second, low=LOW, high=AT))).stop is None
    assert Splits((merged, Split(second, merged_at=LATER))).stop is None
    assert Splits((Split(first, low=LOW, high=AT), Split(second, low=LOW, high=AT))).stop is None
    assert Splits((merged, Split(second, merged_at=AT))).stop == AT


def test_a_merge_that_was_planned_on_other_splits_is_refused() -> None:
    """Recorded twice, or after the splits changed, it would merge nothing and still count its rows."""
    splits = Splits((Split(KeyRange(None, (5,)), low=LOW, high=AT),))
    merged = splits.merged_to(splits, LATER)
    with pytest.raises(ValueError, match="other splits"):
        merged.merged_to(splits, LATER)


@given(st.from_type(Split))
def test_no_merge_may_end_before_what_a_split_has_seen(split: Split) -> None:
    """The floor is the high watermark until merged, then the stop of the last merge."""
    assert split.floor == (split.merged_at or split.high)


@given(SPLITS)
def test_splits_are_read_back_from_json(splits: Splits) -> None:
    """The marks travel in commits as text."""
    assert Splits.from_json(json.loads(json.dumps(splits.to_json()))) == splits


@given(st.from_type(Split), st.data())
def test_a_damaged_split_is_unreadable(split: Split, data: st.DataObject) -> None:
    """A missing part is refused, and so is one that is something else."""
    doc = split.to_json()
    part = data.draw(st.sampled_from(sorted(doc)))
    damage = data.draw(st.sampled_from(["x", [], {}, ["a"], 7, {"gtids": 7}, {"place": "7"}]))
    with pytest.raises(StateUnreadable):
        Split.from_json(doc | {part: damage})
    del doc[part]
    with pytest.raises(StateUnreadable, match="not a split"):
        Split.from_json(doc)


@pytest.mark.parametrize("doc", [7, ["x"], [{"lower": [1], "upper": None, "at": str(AT)}]])
def test_splits_that_do_not_tile_are_unreadable(doc: list[dict[str, object]]) -> None:
    """Stored splits with a gap must not pass for a table."""
    with pytest.raises(StateUnreadable, match="not "):
        Splits.from_json(doc)


def test_an_impossible_split_cannot_be_built() -> None:
    """It is read, with both watermarks in their order, or it is merged."""
    keys = KeyRange()
    for low, high, merged_at in [
        (None, None, None),
        (LOW, None, None),
        (None, AT, None),
        (LOW, AT, AT),
        (LOW, None, AT),
        (None, AT, AT),
    ]:
        with pytest.raises(ValueError, match="read or merged"):
            Split(keys, low, high, merged_at)
    with pytest.raises(ValueError, match="ends before it begins"):
        Split(keys, LATER, AT)


def test_splits_with_a_gap_or_an_overlap_cannot_be_built() -> None:
    """They tile from the least key on."""
    first = Split(KeyRange(None, (5,)), merged_at=AT)
    for lower in ((4,), (6,), None):
        with pytest.raises(ValueError, match="a gap or an overlap"):
            Splits((first, Split(KeyRange(lower, (9,)), merged_at=AT)))
    with pytest.raises(ValueError, match="no lower bound"):
        Splits((Split(KeyRange((5,), None), merged_at=AT),))


def unordered(*lows: GtidSet | Place) -> list[Split]:
    """A split for each low, of keys whose order only the server knows; their highs descend."""
    ends: list[Key | None] = [None, *((f"'{n}'",) for n in range(1, len(lows))), None]
    return [Split(KeyRange(ends[n], ends[n + 1]), low, Place(1, 9, 900 - n)) for n, low in enumerate(lows)]


def test_splits_of_an_unknown_order_are_one() -> None:
    """With the least of their lows and the last of their highs, wave by wave."""
    one, two, three = (GtidSet.parse(f"{LOW.members[0][0][0]}:{run}") for run in ("1-9", "1-7", "1-8"))
    wave = unordered(one, two, three)
    begun = Splits().finish(wave[:2])
    assert begun == Splits((Split(KeyRange(None, ("'2'",)), two, Place(1, 9, 900)),))
    assert begun.copied_up_to == ("'2'",)
    assert Splits.from_json(json.loads(json.dumps(begun.to_json()))) == begun
    assert begun.finish(wave[2:]) == Splits((Split(KeyRange(), two, Place(1, 9, 900)),))
    places = unordered(Place(1, 9, 7), Place(1, 9, 5))
    assert Splits().finish(places).all[0].low == Place(1, 9, 5)
    with pytest.raises(ValueError, match="lows with GTIDs and without"):
        Splits().finish(unordered(LOW, Place(1, 9, 5)))


def test_no_wave_follows_a_merge_of_an_unknown_order() -> None:
    """Which of the keys a change is of, nobody could tell."""
    first, second = unordered(LOW, LOW)
    merged = Splits((Split(first.range, merged_at=AT),))
    with pytest.raises(ValueError, match="a wave after a merge"):
        merged.finish([second])
