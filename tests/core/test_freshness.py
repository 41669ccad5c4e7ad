"""Freshness: up to which time readers see every change, from facts that are known, or nothing."""

import pytest

from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.binlog.position import FilePosition, Place, Position
from lakeingest.core.figures.freshness import (
    Fresh,
    age,
    committed_at,
    complete_to,
    fresh_as_of,
    lag_seconds,
    noted_again,
)


def at(pos: int, second: float | None = None, epoch: int = 1) -> Position:
    """A position of one file, whose last transaction was committed in this second; None if nobody knows."""
    last = None if second is None else Committed("binlog.000001", 4, None, round(second * 1_000_000))
    history = History(last=last) if second is not None else None
    return Position("server", epoch, FilePosition("binlog.000001", pos), None, history)


def note(pos: int, as_of: float, epoch: int = 1) -> Fresh:
    """A note for a place of that file."""
    return Fresh(Place(epoch, 1, pos), as_of)


@pytest.mark.parametrize(
    ("shown", "noted", "as_of"),
    [
        (None, None, None),  # nothing is published
        (None, note(10, 50.0), None),
        (at(10), None, None),  # its time is not known
        (at(10, 7.5), None, 7.5),
        (at(10, 7.5), note(10, 50.0), 50.0),  # the table is quiet since
        (at(20, 7.5), note(10, 50.0), 50.0),
        (at(20, 60.0), note(10, 50.0), 60.0),
        (at(9, 7.5), note(10, 50.0), 7.5),  # readers were sent back behind the note
        (at(9), note(10, 50.0), None),
        (at(9, epoch=2), note(10, 50.0), 50.0),  # after a failover
        (at(20, 7.5, epoch=1), note(10, 50.0, epoch=2), 7.5),
    ],
)
def test_the_latest_moment_that_is_known_counts(
    shown: Position | None, noted: Fresh | None, as_of: float | None
) -> None:
    """A note counts for readers at its place or later, and nothing is guessed."""
    assert fresh_as_of(shown, noted) == as_of


@pytest.mark.parametrize(
    ("noted", "shown", "moments", "expected"),
    [
        (None, None, (5.0,), None),
        (None, at(10), (), None),
        (None, at(10), (None, None), None),
        (None, at(10), (None, 5.0), note(10, 5.0)),
        (None, at(10, 6.0), (5.0,), note(10, 6.0)),
        (note(10, 9.0), at(20, 6.0), (5.0,), note(20, 9.0)),  # never older while readers go forward
        (note(10, 9.0), at(8, 6.0), (None,), note(8, 6.0)),  # but older where readers went back
    ],
)
def test_a_note_moves_on(
    noted: Fresh | None, shown: Position | None, moments: tuple[float | None, ...], expected: Fresh | None
) -> None:
    """With the place that readers see, to the latest moment that is known."""
    assert noted_again(noted, shown, *moments) == expected


def test_readers_of_a_quiet_table_see_all_up_to_the_end_that_a_run_has_seen() -> None:
    """A note keeps that position until a later one is known, and says nothing to readers who were sent back."""
    noted = noted_again(None, at(10), 5.0, complete=at(30))
    assert noted == Fresh(at(10).place, 5.0, at(30))
    assert complete_to(at(10), noted) == at(30)
    assert complete_to(at(40), noted) == at(40)
    assert complete_to(at(9), noted) == at(9)
    assert complete_to(at(10), None) == at(10)
    assert complete_to(None, noted) is None
    assert noted_again(noted, at(20)) == Fresh(at(20).place, 5.0, at(30))
    assert noted_again(noted, at(20), complete=at(50)) == Fresh(at(20).place, 5.0, at(50))
    assert noted_again(noted, at(9), 4.0) == note(9, 4.0)


@pytest.mark.parametrize(
    ("shown", "end", "current", "lag"),
    [
        (None, at(20, 9.0), False, None),
        (at(10), at(20, 9.0), False, None),
        (at(10, 7.0), at(20), False, None),
        (at(10, 7.0), at(20, 9.5), False, 2.5),
        (at(10, 9.5), at(20, 7.0), False, 0.0),  # the clocks of two servers
        (at(10), at(20), True, 0.0),
    ],
)
def test_the_lag_is_between_two_transactions_of_the_source(
    shown: Position | None,
    end: Position,
    current: bool,  # noqa: FBT001 - of a case
    lag: float | None,
) -> None:
    """So no clock of ours is in it; a table that has all changes has none, also where no time is known."""
    assert lag_seconds(shown, end, current=current) == lag


def test_an_age_is_never_negative() -> None:
    """The clock of the source may be ahead of ours. Without a moment there is no age."""
    assert (age(None, 10.0), age(4.0, 10.0), age(11.0, 10.0)) == (None, 6.0, 0.0)


def test_a_position_without_history_has_no_time() -> None:
    """Nor has none at all."""
    assert (committed_at(None), committed_at(at(4)), committed_at(at(4, 1.5))) == (None, None, 1.5)
