from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.waves.collapse import collapse
from tests.core.world import Statement, Table, execute

KEYS = st.integers(0, 3)
STATEMENTS = st.lists(st.tuples(KEYS, st.none() | KEYS), min_size=1, max_size=3)


@given(
    st.dictionaries(KEYS, st.just(0)),
    st.dictionaries(st.from_type(Place), STATEMENTS, max_size=6),
    st.randoms(use_true_random=False),
)
def test_collapse_does_what_all_changes_one_by_one_do(
    before: Table, transactions: dict[Place, list[Statement]], chance: Random
) -> None:
    """Upserts and deletes of the last rows make the same table, in whatever order the changes arrive."""
    table, changes = dict(before), list[ChangeRow]()
    for value, place in enumerate(sorted(transactions), 1):
        changes += execute(table, transactions[place], place, value)
    chance.shuffle(changes)
    last = collapse(changes)
    assert last.keys() == {change.key for change in changes}
    upserts = {key: change.values["value"] for (key,), change in last.items() if not change.kind.is_delete}
    assert {key: value for key, value in before.items() if (key,) not in last} | upserts == table


def test_an_update_that_keeps_its_key_is_an_upsert() -> None:
    """-U comes before its +U, so the row is not deleted."""
    place = Place(0, 1, 120)
    before = ChangeRow(RowKind.UPDATE_BEFORE, (1,), place, 0)
    after = ChangeRow(RowKind.UPDATE_AFTER, (1,), place, 1, {"v": 2})
    assert collapse([after, before]) == {(1,): after}


def test_the_delete_halves_are_minus_u_and_minus_d() -> None:
    """All other kinds leave a row behind."""
    assert {kind for kind in RowKind if kind.is_delete} == {RowKind.UPDATE_BEFORE, RowKind.DELETE}
