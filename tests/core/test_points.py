"""Points: what is kept of each table, when the next one is due, and which are let go."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakeingest.core.binlog.position import FilePosition, Position
from lakeingest.core.copies.points import (
    KeptVersion,
    Point,
    Standing,
    checked_name,
    expired,
    is_due,
    left_out,
    name_at,
    waits_for,
)
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable, UsageError

A, B, C = (TableId("shop", name) for name in ("a", "b.c", "c"))
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
POSITION = Position("server", 1, FilePosition("binlog.000007", 4711), None)


def point(name: str, hours: float = 0, *, is_complete: bool = True) -> Point:
    """A point that was made so many hours before noon."""
    kept = {A: KeptVersion(2**62, name), B: KeptVersion(7, "20261130")}
    return Point(name, POSITION, NOON - hours * HOUR, kept, {C: "it is paused"}, is_complete=is_complete)


def test_a_point_is_stored_as_it_is() -> None:
    """Names of tables, great numbers and reasons come back; another document is refused."""
    for stored in (point("before-release"), point("auto-x", is_complete=False)):
        assert Point.from_json(stored.to_json()) == stored
    assert [point(name).is_by_itself for name in ("nightly", "auto-1")] == [False, True]
    for doc in ({}, point("x").to_json() | {"tables": {"shop.a": 1}}, point("x").to_json() | {"made_at": "noon"}):
        with pytest.raises(StateUnreadable):
            Point.from_json(doc)


@pytest.mark.parametrize("name", ["", "main", "MAIN", "auto-mine", ".hidden", "a b", "a/b", "é", "a" * 65, "-x"])
def test_a_name_that_no_tag_or_file_can_have_is_refused(name: str) -> None:
    """Also those of the points that runs make by themselves."""
    with pytest.raises(UsageError, match="is no name of a point"):
        checked_name(name)


def test_other_names_are_taken() -> None:
    """As they are."""
    assert [checked_name(name) for name in ("v1.2_final-3", "2026")] == ["v1.2_final-3", "2026"]
    assert name_at(NOON) == "auto-20261130T120000Z"


def test_a_table_that_stops_hinders_no_point_and_one_that_lags_does() -> None:
    """It is left out with its reason; the others must be seen as of the place."""
    current, lags = Standing(A, 7, is_current=True), Standing(B, 7, is_current=False)
    unpublished, paused = Standing(C, None, is_current=True), Standing(C, 7, is_current=False, hindrance="it is paused")
    assert waits_for([current, paused]) == []
    assert waits_for([current, lags, unpublished]) == [B, C]
    assert left_out([current, lags, paused]) == {C: "it is paused"}


def test_a_point_is_due_when_the_last_complete_one_is_old() -> None:
    """Points of people do not count, nor those in the future, which a clock that was set back has left."""
    assert is_due([], HOUR, NOON)
    assert is_due([point("nightly", 0.1), point("auto-1", 1), point("auto-2", -0.1)], HOUR, NOON)
    assert is_due([point("auto-1", 0.5, is_complete=False)], HOUR, NOON)
    assert not is_due([point("auto-1", 0.9), point("auto-2", 2)], HOUR, NOON)


def test_old_points_of_runs_are_let_go_but_the_newest() -> None:
    """Those of people stay until they drop them."""
    old = [replace(point(f"auto-{hours}", hours)) for hours in (9, 5, 3)]
    assert expired([point("nightly", 99), *old], 4 * HOUR, NOON) == old[:2]
    assert expired(old, HOUR, NOON) == old[:2]
    assert expired([], HOUR, NOON) == []
    dead = point("auto-dead", 0.1, is_complete=False)
    assert expired([dead, point("nightly", 0.1, is_complete=False), point("auto-1", 9)], HOUR, NOON) == [dead]
