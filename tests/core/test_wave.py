import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import Gtid, GtidSet, Place
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.collapse import collapse
from lakeingest.core.waves.rereads import Patch
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.core.waves.wave import MergePlan, marks_of, plan_merge
from lakeingest.errors import SpoolGap, StateUnreadable
from tests.core.logged import log_of

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LOG = [(Gtid(UUID, number), Place(0, 999_999 + number // 6, number)) for number in range(1, 11)]
COVERED = Place(0, 999_999, 0)
PLACES = [COVERED, *(place for _, place in LOG)]


def executed(count: int) -> GtidSet:
    """The low watermark of a view that was opened after `count` transactions."""
    return GtidSet.of_gtids(gtid for gtid, _ in LOG[:count])


@st.composite
def split_of(draw: st.DrawFn, keys: KeyRange) -> Split:
    """A split whose marks are on our little binlog, with GTIDs, without, or merged."""
    low, high = sorted(draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    mark = draw(st.sampled_from(["gtids", "place", "merged"]))
    if mark == "merged":
        return Split(keys, merged_at=PLACES[high])
    return Split(keys, low=executed(low) if mark == "gtids" else PLACES[low], high=PLACES[high])


@st.composite
def tables(draw: st.DrawFn) -> Splits:
    """The splits of a table with keys around 0 … 9; the last of them may be missing."""
    bounds: list[Key | None] = [
        None,
        *((bound,) for bound in sorted(draw(st.sets(st.integers(0, 9), max_size=4)))),
    ]
    if len(bounds) == 1 or draw(st.booleans()):
        bounds.append(None)
    return Splits(tuple(draw(split_of(KeyRange(bounds[i], bounds[i + 1]))) for i in range(len(bounds) - 1)))


def plan(splits: Splits, stop: Place) -> MergePlan:
    """The plan for our little binlog, spooled to the stop."""
    return plan_merge(splits, stop, log_of([entry for entry in LOG if entry[1] <= stop]), COVERED)


def applies(splits: Splits, stop: Place, number: int, key: Key) -> bool:
    """The rule of the brief, word by word: the oracle."""
    gtid, place = LOG[number - 1]
    split = next((split for split in splits.all if key in split.range), None)
    if split is None or place > stop:
        return False
    if split.merged_at is not None:
        return place > split.merged_at
    return gtid not in split.low if isinstance(split.low, GtidSet) else split.low is not None and place > split.low


@given(tables(), st.data())
def test_a_change_is_applied_by_the_rule_of_its_split(splits: Splits, data: st.DataObject) -> None:
    """Each key and transaction, judged with marks as numbers, is judged as the brief judges it with sets."""
    stop = data.draw(st.sampled_from([at for at in PLACES if at >= max(split.floor for split in splits.all)]))
    merge = plan(splits, stop)
    for number in range(1, 11):
        for key in range(-1, 11):
            assert merge.should_apply(PLACES[number], (key,)) == applies(splits, stop, number, (key,))


@given(tables())
def test_a_merge_reads_from_the_least_mark(splits: Splits) -> None:
    """Nothing that is to be applied lies at or before the start, and no later start would do."""
    merge = plan(splits, PLACES[10])
    marks = marks_of(splits, log_of(LOG, cuts=[3, 5]), COVERED)
    assert merge.start == min(marks)
    assert merge.splits == splits
    applied = [PLACES[n] for n in range(1, 11) for key in range(-1, 11) if merge.should_apply(PLACES[n], (key,))]
    assert not applied or min(applied) == PLACES[PLACES.index(merge.start) + 1]


@given(tables())
def test_neighbours_with_one_mark_are_judged_as_one(splits: Splits) -> None:
    """The plan is no larger than the number of changes of mark."""
    marks = plan(splits, PLACES[10]).marks
    assert all(one[0].touches(two[0]) and one[1] != two[1] for one, two in pairwise(marks))
    assert (marks[0][0].lower, marks[-1][0].upper) == (None, splits.copied_up_to)


@given(tables(), st.sampled_from(PLACES))
def test_a_merge_never_ends_before_what_a_split_has_seen(splits: Splits, stop: Place) -> None:
    """Below a high watermark the chunk has rows of the future, below a stop the target has."""
    floor = max(split.floor for split in splits.all)
    if stop >= floor:
        assert plan(splits, stop).stop == stop
        return
    with pytest.raises(ValueError, match="already seen"):
        plan(splits, stop)


def test_a_merge_without_splits_is_refused() -> None:
    """There is no row that a change could be applied to."""
    with pytest.raises(ValueError, match="nothing to merge"):
        plan(Splits(), COVERED)


def test_a_merge_before_the_last_chunk_is_refused_where_only_the_server_knows_the_order() -> None:
    """Changes of keys whose chunks are still to be read would stay beside what these bring."""
    splits = Splits((Split(KeyRange(None, ("_latin1 x'61'",)), merged_at=Place(1, 1, 4)),))
    with pytest.raises(ValueError, match="a merge before the last chunk"):
        plan_merge(splits, Place(1, 1, 9), log_of([]), Place(1, 1, 4))


@pytest.mark.parametrize(
    "split",
    [Split(KeyRange(), merged_at=PLACES[2]), Split(KeyRange(), low=PLACES[2], high=PLACES[5])],
)
def test_a_merge_whose_changes_are_no_longer_spooled_is_refused(split: Split) -> None:
    """Changes between the mark and the beginning of the spool would be lost."""
    with pytest.raises(SpoolGap, match="the spool begins at"):
        plan_merge(Splits((split,)), PLACES[10], log_of(LOG[3:], executed(3)), PLACES[3])


def test_a_merge_is_refused_where_binlog_order_was_given_up() -> None:
    """A low with a hole cannot be put to a place."""
    low = GtidSet.of_gtids([LOG[0][0], LOG[2][0]])
    with pytest.raises(StateUnreadable, match="binlog_order_commits"):
        plan(Splits((Split(KeyRange(), low=low, high=PLACES[5]),)), PLACES[10])


def moved(start: dict[int, int], transactions: Sequence[tuple[int, int | None]]) -> dict[int, int]:
    """The table after transactions that set, or with None delete, one key each."""
    table = dict(start)
    for key, value in transactions:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


@given(
    st.dictionaries(st.integers(0, 5), st.just(0)),
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(1, 99)), min_size=10, max_size=10),
    st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3).map(sorted), min_size=3, max_size=3),
)
def test_rows_of_the_view_and_the_window_are_the_table_as_of_the_stop(
    rows: dict[int, int], changes: list[tuple[int, int | None]], marks: list[list[int]]
) -> None:
    """The lemma: for low ⊆ view ⊆ high, whatever the splits' windows, each split ends at the same table."""
    bounds: list[Key | None] = [None, (2,), (4,), None]
    ranges = [KeyRange(bounds[i], bounds[i + 1]) for i in range(3)]
    splits = Splits(
        tuple(Split(keys, executed(low), PLACES[high]) for keys, (low, _, high) in zip(ranges, marks, strict=True))
    )
    stop = max(high for _, _, high in marks)
    merge = plan(splits, PLACES[stop])
    for keys, (_, view, _) in zip(ranges, marks, strict=True):
        chunk = {key: value for key, value in moved(rows, changes[:view]).items() if (key,) in keys}
        applied = [
            change
            for place, change in zip(PLACES[1:], changes, strict=True)
            if (change[0],) in keys and merge.should_apply(place, (change[0],))
        ]
        expected = {key: value for key, value in moved(rows, changes[:stop]).items() if (key,) in keys}
        assert moved(chunk, applied) == expected


def test_the_keys_that_a_patch_is_within_are_judged_from_its_low() -> None:
    """Though their split was merged further; the others by their split."""
    splits = Splits(
        (Split(KeyRange(None, (5,)), merged_at=PLACES[6]), Split(KeyRange((5,), None), merged_at=PLACES[2]))
    )
    patch = Patch("p", KeyRange((3,), (7,)), executed(4), PLACES[7])
    merge = plan_merge(splits, PLACES[10], log_of(LOG), COVERED, [patch])
    assert merge.marks == (
        (KeyRange(None, (3,)), PLACES[6]),
        (KeyRange((3,), (5,)), PLACES[4]),
        (KeyRange((5,), None), PLACES[2]),
    )
    assert merge.patches == ((patch, PLACES[4]),)
    beside = replace(patch, within=KeyRange((1,), (2,)))
    elsewhere = plan_merge(splits, PLACES[10], log_of(LOG), COVERED, [beside])
    assert elsewhere.marks[-1] == (KeyRange((5,), None), PLACES[2])


def test_rows_of_a_patch_follow_what_its_low_holds() -> None:
    """And what comes after its low follows them."""
    patch, kind = Patch("p", KeyRange(), executed(4), PLACES[7]), RowKind.UPDATE_AFTER
    merge = plan_merge(Splits((Split(KeyRange(), merged_at=PLACES[6]),)), PLACES[10], log_of(LOG), COVERED, [patch])
    rows = merge.patched({"p": [ChangeRow(RowKind.INSERT, (key,), PLACES[7], 0) for key in (1, 2)]})
    changes = [ChangeRow(kind, (1,), PLACES[4], 99), ChangeRow(kind, (2,), PLACES[5], 0)]
    assert all(row.place == PLACES[4] for row in rows)
    last = collapse([*rows, *changes])
    assert (last[1,].kind, last[2,].kind) == (RowKind.INSERT, kind)
    with pytest.raises(KeyError):
        merge.patched({})


def test_a_merge_neither_ends_before_a_patch_nor_comes_before_the_last_chunk() -> None:
    """The view may be newer than the stop, and a chunk would bring the rows once more."""
    patch = Patch("p", KeyRange(), executed(4), PLACES[7])
    with pytest.raises(ValueError, match="already seen"):
        plan_merge(Splits((Split(KeyRange(), merged_at=PLACES[2]),)), PLACES[6], log_of(LOG), COVERED, [patch])
    with pytest.raises(ValueError, match="a patch before the last chunk"):
        plan_merge(
            Splits((Split(KeyRange(None, (5,)), merged_at=PLACES[2]),)), PLACES[9], log_of(LOG), COVERED, [patch]
        )


def test_a_patch_is_read_back_from_json() -> None:
    """With either kind of low; a damaged one is refused, and so is one that cannot be."""
    for low in (executed(4), PLACES[4]):
        patch = Patch("p", KeyRange((3,), None), low, PLACES[7])
        assert Patch.from_json(json.loads(json.dumps(patch.to_json()))) == patch
        for damage in ({"low": 7}, {"high": None}, {"lower": "x"}):
            with pytest.raises(StateUnreadable, match="not a"):
                Patch.from_json(patch.to_json() | damage)
    with pytest.raises(ValueError, match="ends before it begins"):
        Patch("p", KeyRange(), PLACES[7], PLACES[4])
    with pytest.raises(ValueError, match="`within` must have every key"):
        Patch("p", KeyRange(("'a'",), None), PLACES[4], PLACES[7])
