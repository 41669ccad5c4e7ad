"""Quiet tables: when the position of one is committed all the same."""

from lakeingest.core.binlog.position import FilePosition, Position
from lakeingest.core.copies.quiet import Quiet
from lakeingest.core.tables.schema import TableId

QUIET = Quiet(1, Position("3e11fa47-71ca-11e1-9e33-c80aa9429562", 0, FilePosition("binlog.000002", 400), None), 0)
TABLES = [TableId("shop", f"t{number}") for number in range(200)]


def test_many_tables_are_not_committed_at_once() -> None:
    """Between a quarter and a half of the retention each has its own time."""
    assert not any(QUIET.needs_commit(table, 249, 1000) for table in TABLES)
    assert 60 < sum(QUIET.needs_commit(table, 375, 1000) for table in TABLES) < 140
    assert all(QUIET.needs_commit(table, 500, 1000) for table in TABLES)


def test_a_source_that_drops_no_binlog_is_taken_for_one_that_does_after_a_month() -> None:
    """So that a lost state never leads to reading the log of a year again."""
    assert not any(QUIET.needs_commit(table, 7 * 86_400, None) for table in TABLES)
    assert all(QUIET.needs_commit(table, 15 * 86_400, None) for table in TABLES)


def test_a_clock_that_was_ahead_delays_no_commit() -> None:
    """It said that the position is known since a time that is yet to come."""
    assert all(QUIET.needs_commit(table, -1, 1000) for table in TABLES)
