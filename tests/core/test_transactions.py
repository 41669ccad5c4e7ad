from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import Gtid, GtidSet, Place
from lakeingest.core.binlog.transactions import LoggedSegment, TransactionLog
from lakeingest.errors import SpoolGap, StateUnreadable
from tests.core.logged import Transactions, log_of

ONE, TWO = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
START = Place(0, 5, 4)
PLACES = st.builds(Place, st.just(0), st.integers(5, 7), st.integers(5, 40))
BEFORE = GtidSet.of({(ONE, ""): [(100, 200)], (TWO, "tag"): [(1, 3)]})


@st.composite
def spools(draw: st.DrawFn, least: int = 0) -> tuple[Transactions, list[int]]:
    """Transactions in binlog order, their numbers not: two servers write through one replica; and where it is cut."""
    ends = sorted(draw(st.sets(PLACES, min_size=least, max_size=8)))
    numbers = draw(st.permutations(range(1, len(ends) + 1)))
    spool = [(Gtid(draw(st.sampled_from([ONE, TWO])), number), at) for number, at in zip(numbers, ends, strict=True)]
    return spool, sorted(draw(st.lists(st.integers(0, len(spool)), max_size=5)))


def executed(spool: Transactions, count: int) -> GtidSet:
    """The low watermark of a view that was opened after so many transactions."""
    return BEFORE | GtidSet.of_gtids(gtid for gtid, _ in spool[:count])


@given(spools(), st.lists(st.integers(0, 8)))
def test_a_low_of_gtids_stands_at_its_last_transaction(
    spool: tuple[Transactions, list[int]], counts: list[int]
) -> None:
    """What each contains of the spool is a prefix, and the place is where that prefix ends, wherever it is cut."""
    transactions, cuts = spool
    lows = {executed(transactions, count): min(count, len(transactions)) for count in counts}
    found = log_of(transactions, BEFORE, cuts).places(lows, START)
    assert found == {low: transactions[count - 1][1] if count else START for low, count in lows.items()}


@given(spools(), st.sets(st.integers(0, 7)))
def test_what_a_low_lacks_is_after_its_place_or_it_is_refused(
    spool: tuple[Transactions, list[int]], inside: set[int]
) -> None:
    """Of any transactions: a set with a hole shows that places cannot judge, another is judged by its place."""
    transactions, cuts = spool
    chosen = [number in inside for number in range(len(transactions))]
    low = BEFORE | GtidSet.of_gtids(transactions[number][0] for number, is_in in enumerate(chosen) if is_in)
    log = log_of(transactions, BEFORE, cuts)
    if len(list(takewhile(bool, chosen))) < sum(chosen):
        with pytest.raises(StateUnreadable, match="binlog_order_commits"):
            log.places([low], START)
        return
    [place] = log.places([low], START).values()
    assert [at <= place for _, at in transactions] == chosen


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2], [2, 3], [0, 1, 2, 3, 4, 4]])
@pytest.mark.parametrize("inside", [{1}, {3}, {0, 2}, {0, 1, 3}, {1, 2, 3}])
def test_a_hole_is_found_wherever_the_spool_is_cut(inside: set[int], cuts: list[int]) -> None:
    """Within a segment, and between segments of which the low has all or nothing."""
    transactions = [(Gtid(ONE, number + 1), Place(0, 5, 5 + number)) for number in range(4)]
    low = GtidSet.of_gtids(transactions[number][0] for number in inside)
    with pytest.raises(StateUnreadable, match="binlog_order_commits"):
        log_of(transactions, cuts=cuts).places([low], START)


@given(spools(), st.lists(st.integers(0, 8)))
def test_only_segments_within_which_a_low_ends_are_read(
    spool: tuple[Transactions, list[int]], counts: list[int]
) -> None:
    """Once for all lows, and no further than the last of them, by one transaction."""
    transactions, cuts = spool
    taken: list[tuple[int, Gtid]] = []
    lows = [executed(transactions, count) for count in counts]
    log_of(transactions, BEFORE, cuts, taken).places(lows, START)
    ends = [0, *cuts, len(transactions)]
    expected = []
    for number, (begin, end) in enumerate(pairwise(ends)):
        if within := [count for count in counts if begin < count < end]:
            expected += [(number, gtid) for gtid, _ in transactions[begin : max(within) + 1]]
    assert sorted(taken, key=lambda one: one[0]) == expected


def test_a_log_of_many_segments_opens_the_one_it_must() -> None:
    """A thousand segments, a low in the middle of one of them: its transactions up to there are all that is read."""
    transactions = [(Gtid(ONE, number), Place(0, 1, number)) for number in range(1, 10_001)]
    taken: list[tuple[int, Gtid]] = []
    log = log_of(transactions, cuts=range(10, 10_000, 10), taken=taken)
    lows = [GtidSet.of({(ONE, ""): [(1, last)]}) for last in (4_000, 6_543, 20_000)]
    assert list(log.places(lows, Place(0, 1, 0)).values()) == [Place(0, 1, last) for last in (4_000, 6_543, 10_000)]
    assert taken == [(654, Gtid(ONE, number)) for number in (6_541, 6_542, 6_543, 6_544)]


def test_a_low_without_gtids_is_its_place() -> None:
    """The start of the file that was current needs no transaction to be found."""
    low = Place(0, 7, 4)
    assert log_of([]).places([low], START) == {low: low}


@given(spools(least=1), st.data())
def test_a_low_from_before_the_table_was_watched_is_refused(
    spool: tuple[Transactions, list[int]], data: st.DataObject
) -> None:
    """A split that needs a transaction of a segment that did not watch its table would miss that change."""
    transactions, cuts = spool
    watched = data.draw(st.integers(0, len(transactions) - 1))
    count = data.draw(st.integers(0, len(transactions)))
    low, covered_from = executed(transactions, count), transactions[watched][1]
    log = log_of(transactions, BEFORE, cuts)
    if count > watched:
        assert log.places([low], covered_from) == {low: transactions[count - 1][1]}
        return
    with pytest.raises(SpoolGap, match=f"not watched before {covered_from}, a split needs {transactions[count][0]}"):
        log.places([low], covered_from)


def test_a_low_from_before_the_spool_is_refused() -> None:
    """What was executed before the spool opened is not in it; a low without it would lose changes."""
    low = BEFORE - GtidSet.of({(ONE, ""): [(150, 150)]})
    with pytest.raises(SpoolGap, match=":150"):
        log_of([], BEFORE).places([low], START)
    with pytest.raises(SpoolGap, match="the spool begins at"):
        log_of([]).places([Place(0, 5, 3)], START)


def test_a_segment_without_the_transactions_it_names_is_unreadable() -> None:
    """A place that was not found is never taken for an earlier one."""
    gtids = GtidSet.of({(ONE, ""): [(1, 3)]})
    rest = LoggedSegment(gtids, START, Place(0, 5, 9), lambda: iter([(Gtid(ONE, 1), Place(0, 5, 5))]))
    with pytest.raises(StateUnreadable, match="lacks transactions"):
        TransactionLog([rest], GtidSet()).places([GtidSet.of({(ONE, ""): [(1, 2)]})], START)
