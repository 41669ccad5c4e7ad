"""Histories beside the simplest way to know what a table was: a copy of all its rows at every position."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.validity import Begun, Change, Ended, KeyValues, Moment, Version, fold, in_order
from lakeingest.core.tables.change import RowKind

Rows = dict[KeyValues, int]


@dataclass(frozen=True)
class Done:
    """A transaction of the source: for each key its new value, or None if the key is deleted; and its commit time."""

    statements: tuple[tuple[int, int | None], ...]
    at: int
    rereads: tuple[int, ...] = ()  # the keys that are read again after it


TRANSACTIONS = st.lists(
    st.builds(
        Done,
        st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2)), min_size=1, max_size=4).map(tuple),
        st.integers(0, 20),  # in no order: clocks go back
        st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple),
    ),
    max_size=12,
)


def place_of(number: int) -> Place:
    """The place of a transaction, by its number."""
    return Place(1, 1, 100 * number)


def changes_of(transactions: Sequence[Done], wrong: Sequence[set[int]]) -> tuple[list[Change[int]], list[Rows]]:
    """The changes of the source, with what is read again, and the table after each transaction.

    After a transaction, changes of the keys `wrong` are not in the changes: what is read again corrects that.
    """
    changes, states, table = list[Change[int]](), list[Rows](), Rows()
    times = list(in_order([done.at for done in transactions], 0))
    for number, done in enumerate(transactions):
        place, rows = place_of(number), list[tuple[int, RowKind, int]]()
        for key, value in done.statements:
            before = table.get((key,))
            if value is None:
                if before is not None:
                    rows.append((key, RowKind.DELETE, before))
                    del table[key,]
            elif before is None:
                rows.append((key, RowKind.INSERT, value))
                table[key,] = value
            else:
                rows += [(key, RowKind.UPDATE_BEFORE, before), (key, RowKind.UPDATE_AFTER, value)]
                table[key,] = value
        for ordinal, (key, kind, row) in enumerate(rows):
            if key not in wrong[number]:
                moment = Moment(str(ReadTo(place, ordinal)), times[number], f"gtid:{place.pos}")
                changes.append(Change((key,), kind, row, moment))
        for reread, key in enumerate(done.rereads):
            moment = Moment(str(ReadTo(place, reread=reread)), times[number])
            value = table.get((key,))
            kind = RowKind.DELETE if value is None else RowKind.INSERT
            changes.append(Change((key,), kind, value or 0, moment, is_reread=True))
        states.append(dict(table))
    return changes, states


def same(left: int, right: int) -> bool:
    """Whether two rows are equal."""
    return left == right


def history_of(changes: Sequence[Change[int]], cuts: Iterable[int]) -> list[Version[int]]:
    """The history in the lake after the changes, folded in parts that end at `cuts`."""
    lake = dict[str, Version[int]]()  # by the position at which a version begins
    begin = 0
    for end in [*sorted(cuts), len(changes)]:
        part = changes[begin:end]
        keys = {change.key for change in part}
        current = {
            version.key: replace(version, is_stored=True)
            for version in lake.values()
            if version.ends is None and version.key in keys
        }
        for version in fold(current, part, same):
            lake[version.begins.position] = replace(version, is_stored=False)
        begin = max(begin, end)
    return list(lake.values())


def as_of_position(versions: Iterable[Version[int]], place: Place) -> Rows:
    """The rows as of a position, as the page about histories says it in SQL."""
    end = f"{place}~"
    return {
        version.key: version.row
        for version in versions
        if version.begins.position < end and (version.ends is None or version.ends.position > end)
    }


def as_of_time(versions: Iterable[Version[int]], at: int) -> Rows:
    """The rows as of a time, as the page about histories says it in SQL."""
    rows = [
        version for version in versions if version.begins.at <= at and (version.ends is None or version.ends.at > at)
    ]
    found = {version.key: version.row for version in rows}
    assert len(found) == len(rows), "a key has two rows at one time"
    return found


@given(TRANSACTIONS, st.sets(st.integers(0, 40)))
def test_a_history_is_the_table_at_every_position_and_time(transactions: list[Done], cuts: set[int]) -> None:
    """Also if clocks go back, keys change within one transaction, and a run dies after any change."""
    changes, states = changes_of(transactions, [set()] * len(transactions))
    versions = history_of(changes, {min(cut, len(changes)) for cut in cuts})
    assert len({version.begins.position for version in versions}) == len(versions)
    times = [done.at for done in transactions]
    for number, state in enumerate(states):
        assert as_of_position(versions, place_of(number)) == state
    for at in range(-1, 22):
        # the copy of that time: all transactions before the first one that was committed later
        seen = next((number for number, time in enumerate(times) if time > at), len(times))
        assert as_of_time(versions, at) == (states[seen - 1] if seen else {})


@given(TRANSACTIONS, st.sets(st.integers(0, 40)))
def test_rows_that_are_the_same_when_they_are_read_again_change_nothing(
    transactions: list[Done], cuts: set[int]
) -> None:
    """A re-snapshot of a sound copy leaves no trace."""
    changes, _ = changes_of(transactions, [set()] * len(transactions))
    logged = [change for change in changes if not change.is_reread]
    with_rereads = history_of(changes, {min(cut, len(changes)) for cut in cuts})
    without = {version.begins.position: version for version in history_of(logged, [])}
    assert {version.begins.position: version for version in with_rereads} == without


@given(TRANSACTIONS, st.lists(st.sets(st.integers(0, 3)), min_size=12, max_size=12), st.sets(st.integers(0, 40)))
def test_what_is_read_again_corrects_from_there_on(
    transactions: list[Done], wrong: list[set[int]], cuts: set[int]
) -> None:
    """Changes that nobody has logged are not dated back: the key is right from where it was read until it is lost."""
    changes, states = changes_of(transactions, wrong)
    versions = history_of(changes, {min(cut, len(changes)) for cut in cuts})
    right = {(key,) for key in range(4)}
    for number, (done, state) in enumerate(zip(transactions, states, strict=True)):
        right -= {(key,) for key, _ in done.statements if key in wrong[number]}
        right |= {(key,) for key in done.rereads}
        found = as_of_position(versions, place_of(number))
        assert {key: found.get(key) for key in right} == {key: state.get(key) for key in right}


def moment(number: int) -> Moment:
    """A moment; later ones have greater numbers."""
    return Moment(str(ReadTo(place_of(number), 0)), number)


@pytest.mark.parametrize(
    ("kind", "is_reread", "how", "why"),
    [
        (RowKind.INSERT, False, Begun.INSERT, Ended.UPDATE),
        (RowKind.UPDATE_AFTER, False, Begun.UPDATE, Ended.UPDATE),
        (RowKind.INSERT, True, Begun.CORRECTION, Ended.CORRECTION),
        (RowKind.UPDATE_BEFORE, False, None, Ended.UPDATE),
        (RowKind.DELETE, False, None, Ended.DELETE),
        (RowKind.DELETE, True, None, Ended.CORRECTION),
    ],
)
def test_a_version_says_how_it_began_and_ended(
    kind: RowKind, *, is_reread: bool, how: Begun | None, why: Ended
) -> None:
    """So that readers tell what the source did from what was put right."""
    stored = Version((1,), 5, moment(1), Begun.COPY, is_stored=True)
    ended, *begun = fold({(1,): stored}, [Change((1,), kind, 6, moment(2), is_reread)], same)
    assert (ended.ended_by, ended.ends, ended.row, ended.begins) == (why, moment(2), 5, moment(1))
    assert [(version.begun_by, version.row, version.is_stored) for version in begun] == (
        [(how, 6, False)] if how else []
    )


def test_a_delete_of_a_key_without_a_version_changes_nothing() -> None:
    """As in a copy, which may lack the row: it is in quarantine, or does not meet a condition."""
    assert (
        fold({}, [Change((1,), RowKind.DELETE, 6, moment(1)), Change((2,), RowKind.DELETE, 6, moment(2), True)], same)
        == []
    )


def test_a_version_that_a_transaction_begins_and_ends_is_kept() -> None:
    """It is exact by position, and no time has it."""
    changes = [
        Change((1,), RowKind.INSERT, 5, Moment(str(ReadTo(place_of(1), 0)), 7)),
        Change((1,), RowKind.DELETE, 5, Moment(str(ReadTo(place_of(1), 1)), 7)),
    ]
    [version] = fold({}, changes, same)
    assert version.ends is not None
    assert (version.begins.at, version.ends.at, version.ended_by) == (7, 7, Ended.DELETE)


@given(st.lists(st.integers(0, 9)), st.integers(0, 9))
def test_times_never_go_back(times: list[int], latest: int) -> None:
    """Each time is the greatest so far."""
    assert list(in_order(times, latest)) == [max(latest, *times[: n + 1]) for n in range(len(times))]
