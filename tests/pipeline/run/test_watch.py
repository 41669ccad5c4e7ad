"""Whether a table is watched: what may follow what."""

import pytest

from lakeingest.pipeline.run.watch import TRANSITIONS, Turn, Watch, after, first_watch


def test_a_table_joins_goes_over_ddl_and_is_copied_again() -> None:
    """The way of a table that is altered in a way that no copy can follow."""
    way = {
        Turn.JOINED: Watch.WATCHED,
        Turn.REACHED_DDL: Watch.AT_DDL,
        Turn.PASSED_DDL: Watch.WATCHED,
        Turn.LOST: Watch.UNWATCHED,
        Turn.COMPARED: Watch.REJOINING,
    }
    watch = Watch.JOINING
    for turn, following in way.items():
        watch = after(watch, turn)
        assert watch is following
    assert after(watch, Turn.JOINED) is Watch.WATCHED


@pytest.mark.parametrize("watch", Watch)
@pytest.mark.parametrize("turn", Turn)
def test_a_turn_that_the_state_does_not_allow_is_refused(watch: Watch, turn: Turn) -> None:
    """Only a joining table can have joined, and only one at DDL can pass it; every table can be copied again."""
    allowed = {
        Turn.JOINED: {Watch.JOINING, Watch.REJOINING},
        Turn.REFUSED: {Watch.JOINING, Watch.REJOINING},
        Turn.REACHED_DDL: {Watch.WATCHED, Watch.AT_DDL, Watch.UNWATCHED},
        Turn.PASSED_DDL: {Watch.AT_DDL},
        Turn.LOST: {Watch.WATCHED, Watch.AT_DDL},
        Turn.COPIED_AGAIN: set(Watch),
        Turn.COMPARED: set(Watch),
    }
    if watch in allowed[turn]:
        assert after(watch, turn) is TRANSITIONS[watch, turn]
    else:
        with pytest.raises(RuntimeError, match=f"a table that is {watch.value} cannot be {turn.value}"):
            after(watch, turn)


@pytest.mark.parametrize(
    ("copyable", "compares", "new", "at_ddl", "watch"),
    [
        (0, 0, 1, 0, Watch.UNWATCHED),
        (0, 1, 0, 1, Watch.UNWATCHED),
        (1, 1, 0, 1, Watch.REJOINING),
        (1, 0, 1, 0, Watch.JOINING),
        (1, 0, 0, 1, Watch.AT_DDL),
        (1, 0, 0, 0, Watch.WATCHED),
    ],
)
def test_where_a_table_stands_when_a_run_begins(
    copyable: int, compares: int, new: int, at_ddl: int, watch: Watch
) -> None:
    """What cannot be copied is not watched, and a copy that is compared joins, whatever else holds."""
    found = first_watch(copyable=bool(copyable), compares=bool(compares), new=bool(new), at_ddl=bool(at_ddl))
    assert found is watch
