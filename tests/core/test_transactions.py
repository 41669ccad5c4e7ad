import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.position import Gtid, GtidSet, Place
from lakeingest.core.transactions import TransactionLog
from lakeingest.errors import SpoolGap, StateUnreadable

ONE, TWO = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
START = Place(0, 5, 4)
PLACES = st.builds(Place, st.just(0), st.integers(5, 7), st.integers(5, 40))
BEFORE = GtidSet.of({(ONE, ""): [(100, 200)], (TWO, "tag"): [(1, 3)]})


@st.composite
def spools(draw: st.DrawFn, least: int = 0) -> list[tuple[Gtid, Place]]:
    """Transactions in binlog order, their numbers not: two servers write through one replica."""
    ends = sorted(draw(st.sets(PLACES, min_size=least, max_size=6)))
    numbers = draw(st.permutations(range(1, len(ends) + 1)))
    return [(Gtid(draw(st.sampled_from([ONE, TWO])), number), at) for number, at in zip(numbers, ends, strict=True)]


@given(spools(), st.data())
def test_a_low_of_gtids_stands_at_its_last_transaction(spool: list[tuple[Gtid, Place]], data: st.DataObject) -> None:
    """What it contains of the spool is a prefix, and the place is where that prefix ends."""
    count = data.draw(st.integers(0, len(spool)))
    low = GtidSet.of_gtids(gtid for gtid, _ in spool[:count])
    assert TransactionLog(spool, BEFORE).place_of(low | BEFORE, START) == (spool[count - 1][1] if count else START)


@given(spools(least=2), st.data())
def test_a_low_with_a_hole_is_refused(spool: list[tuple[Gtid, Place]], data: st.DataObject) -> None:
    """A transaction that is executed before an earlier one shows that places cannot judge."""
    hole = data.draw(st.integers(0, len(spool) - 2))
    executed = data.draw(st.integers(hole + 1, len(spool) - 1))
    others = data.draw(st.sets(st.integers(0, len(spool) - 1)))
    low = GtidSet.of_gtids(spool[index][0] for index in (others | {executed}) - {hole})
    with pytest.raises(StateUnreadable, match="binlog_order_commits"):
        TransactionLog(spool, BEFORE).place_of(low | BEFORE, START)


def test_a_low_without_gtids_is_its_place() -> None:
    """The start of the file that was current needs no transaction to be found."""
    assert TransactionLog([], GtidSet()).place_of(Place(0, 7, 4), START) == Place(0, 7, 4)


@given(spools(least=1), st.data())
def test_a_low_from_before_the_table_was_watched_is_refused(
    spool: list[tuple[Gtid, Place]], data: st.DataObject
) -> None:
    """A split that needs a transaction of a segment that did not watch its table would miss that change."""
    watched = data.draw(st.integers(0, len(spool) - 1))
    count = data.draw(st.integers(0, len(spool)))
    low = GtidSet.of_gtids(gtid for gtid, _ in spool[:count]) | BEFORE
    covered_from = spool[watched][1]
    log = TransactionLog(spool, BEFORE)
    if count > watched:
        assert log.place_of(low, covered_from) == spool[count - 1][1]
        return
    with pytest.raises(SpoolGap, match="not watched"):
        log.place_of(low, covered_from)


def test_a_low_from_before_the_spool_is_refused() -> None:
    """What was executed before the spool opened is not in it; a low without it would lose changes."""
    low = BEFORE - GtidSet.of({(ONE, ""): [(150, 150)]})
    with pytest.raises(SpoolGap, match=":150"):
        TransactionLog([], BEFORE).place_of(low, START)
    with pytest.raises(SpoolGap, match="the spool begins at"):
        TransactionLog([], GtidSet()).place_of(Place(0, 5, 3), START)
