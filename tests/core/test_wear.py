"""When a worn copy is tidied, and what its commits have paid for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.copies.wear import LOOK_EVERY, MOST_ROWS, ROWS_A_COMMIT, ROWS_A_DEAD, Group, Wear

SMALL = 50_000
groups = st.lists(
    st.builds(lambda rows, part: Group(rows, rows * part // 100), st.integers(0, 10**6), st.integers(0, 100))
)


@pytest.mark.parametrize(
    ("wear", "looks"),
    [
        (Wear(LOOK_EVERY, 1, 60_000, 1), True),
        (Wear(2 * LOOK_EVERY, 2, 60_000, 0), True),  # small files alone
        (Wear(LOOK_EVERY, 1, 60_000, 0), False),
        (Wear(LOOK_EVERY + 1, 1, 60_000, 1), False),
        (Wear(0, 9, 60_000, 1), False),
    ],
)
def test_a_worn_copy_is_looked_at_now_and_then(wear: Wear, *, looks: bool) -> None:
    """If it has deleted rows or small files, each so many commits."""
    assert wear.needs_look(SMALL) is looks


def test_the_most_dead_are_written_anew_first_as_far_as_the_credit_goes() -> None:
    """A group that is too expensive is left out, and a cheaper one is taken in its place."""
    found = [Group(90_000, 1_000), Group(100_000, 20_000), Group(0, 0), Group(30_000, 10_000)]
    assert Wear(1, 9, 10**6, 0).chosen(found) == [3, 2]
    assert Wear(20, 9, 10**6, 0).chosen(found) == [3, 1, 2]
    assert Wear(64, 9, 10**6, 0).chosen(found) == [3, 1, 0, 2]
    assert Wear(10**9, 9, 10**9, 0).chosen([Group(MOST_ROWS, 0), Group(1, 1), Group(MOST_ROWS - 1, 0)]) == [1, 2]


@given(commits=st.integers(0, 1_000), found=groups)
def test_no_more_is_spent_than_was_given(commits: int, found: list[Group]) -> None:
    """And what is left over is less by what was spent."""
    wear = Wear(commits, 1, 1, 1)
    chosen = [found[number] for number in wear.chosen(found)]
    spent = sum(max(0, group.rows - ROWS_A_DEAD * group.dead) for group in chosen)
    assert spent <= commits * ROWS_A_COMMIT
    assert sum(group.rows for group in chosen) <= MOST_ROWS
    left = wear.left_after(chosen)
    assert 0 <= left <= commits
    assert (commits - left) * ROWS_A_COMMIT >= spent > (commits - left - 1) * ROWS_A_COMMIT or not spent
