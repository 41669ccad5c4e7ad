import random

from hypothesis import given
from hypothesis import strategies as st
from lakeingest.core.change import ChangeRow, RowKind
from lakeingest.core.collapse import collapse
from lakeingest.core.keys import Key
from lakeingest.core.position import Place

Table = dict[Key, int]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, list[ChangeRow], Table]:
    """A table, changes of it in the order of the binlog, and what the table is after them."""
    keys = st.tuples(st.integers(0, 3))
    before = draw(st.dictionaries(keys, st.just(0)))
    table, changes = dict(before), list[ChangeRow]()
    ends = sorted(draw(st.sets(st.builds(Place, st.integers(0, 1), st.integers(0, 2), st.integers(0, 9)))))
    for value, place in enumerate(ends, 1):
        halves: list[tuple[RowKind, Key]] = []
        for key, other in draw(st.lists(st.tuples(keys, keys), min_size=1, max_size=3)):
            halves += applied(table, key, other, value)
        changes += [
            ChangeRow(kind, key, place, ordinal, {} if kind.is_delete else {"v": value})
            for ordinal, (kind, key) in enumerate(halves)
        ]
    return before, changes, table


def applied(table: Table, key: Key, other: Key, value: int) -> list[tuple[RowKind, Key]]:
    """One statement: an insert, a delete, an update, or a move of the key, as its change rows; `table` is changed."""
    if key not in table:
        table[key] = value
        return [(RowKind.INSERT, key)]
    del table[key]
    if key < other or other in table:
        return [(RowKind.DELETE, key)]
    table[other] = value
    return [(RowKind.UPDATE_BEFORE, key), (RowKind.UPDATE_AFTER, other)]


@given(histories(), st.randoms(use_true_random=False))
def test_collapse_does_what_all_changes_one_by_one_do(
    history: tuple[Table, list[ChangeRow], Table], chance: random.Random
) -> None:
    """Upserts and deletes of the last rows make the same table, in whatever order the changes arrive."""
    table, changes, expected = history
    chance.shuffle(changes)
    for key, last in collapse(changes).items():
        assert key == last.key
        if last.kind.is_delete:
            table.pop(key, None)
        else:
            table[key] = last.values["v"]
    assert table == expected


def test_an_update_that_keeps_its_key_is_an_upsert() -> None:
    """-U comes before its +U, so the row is not deleted."""
    place = Place(0, 1, 120)
    before = ChangeRow(RowKind.UPDATE_BEFORE, (1,), place, 0)
    after = ChangeRow(RowKind.UPDATE_AFTER, (1,), place, 1, {"v": 2})
    assert collapse([after, before]) == {(1,): after}


def test_the_delete_halves_are_minus_u_and_minus_d() -> None:
    """All other kinds leave a row behind."""
    assert {kind for kind in RowKind if kind.is_delete} == {RowKind.UPDATE_BEFORE, RowKind.DELETE}
