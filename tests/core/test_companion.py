"""Companions: their progress counts what was written, and carries the position in the changelog."""

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import (
    Standing,
    all_companions_of,
    begun,
    companion_of,
    is_companion,
    read_to_of,
    with_columns,
    written,
)
from lakeingest.core.copies import progress_form
from lakeingest.core.copies.counted import count_of
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress_form import COMPANION_FORMAT
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

TABLE = TableId("shop", "orders__changelog")
SCHEMA = TableSchema(TABLE, (Column("n", Kind.INT64, SourceType("bigint", "bigint")),), ("n",))
READ_TO = ReadTo(Place(1, 7, 1234), log="1f0c83aa")


def test_a_companion_stands_beside_its_copy() -> None:
    """In the same database, with a name that says what it is, whatever the name of the table is."""
    table = TableId("shop", "my.orders")
    assert companion_of(table, "changelog") == TableId("shop", "my.orders__changelog")
    assert all_companions_of([table]) == {companion_of(table, "changelog"), companion_of(table, "history")}


def test_a_new_companion_goes_up_to_no_position() -> None:
    """So it begins with a copy. A copy is no companion."""
    new = begun(SCHEMA)
    assert (new.phase, new.rows, count_of(new), read_to_of(new)) == (Phase.LEVEL, 0, 0, None)
    assert is_companion(new)


@pytest.mark.parametrize(("steps", "count"), [(1, 1), (0, 1), (40, 40)])
def test_rows_and_position_are_one_commit(steps: int, count: int) -> None:
    """Each commit has more rows, a greater count and the position up to which they go; it can be published."""
    after = written(begun(SCHEMA), READ_TO, inserted=40, steps=steps)
    assert (after.rows, count_of(after), read_to_of(after)) == (40, count, READ_TO)
    shown = after.audited().published()
    again = written(shown, READ_TO, inserted=2, deleted=10, steps=2)
    assert (again.rows, count_of(again)) == (32, count + 2)


def test_other_columns_are_a_commit_of_their_own() -> None:
    """It adds no rows, and carries the position after the DDL, if there was one."""
    shown = written(begun(SCHEMA), READ_TO, inserted=4).audited().published()
    later = ReadTo(Place(1, 8, 4), 0, log="1f0c83aa")
    for read_to, reached in ((None, READ_TO), (later, later)):
        after = with_columns(shown, "other columns", read_to)
        assert (after.rows, count_of(after), after.fingerprint) == (4, 2, "other columns")
        assert read_to_of(after) == reached
        assert after.audited().published().rows == 4


def test_the_position_is_kept_with_the_progress() -> None:
    """In a form that versions refuse that would take a companion for a copy."""
    for progress in (begun(SCHEMA), written(begun(SCHEMA), READ_TO, inserted=1)):
        doc = progress_form.to_json(progress)
        assert doc["format"] == COMPANION_FORMAT
        assert progress_form.from_json(doc) == progress


def test_a_quiet_companion_moves_on_without_a_commit() -> None:
    """It never goes back."""
    standing = Standing(5, READ_TO, of=3)
    later = Place(1, 8, 4)
    assert standing.unchanged_to(later) == Standing(5, ReadTo(later, log="1f0c83aa"), of=3)
    assert standing.unchanged_to(Place(1, 7, 4)) is standing


def test_a_note_counts_for_the_version_and_the_changelog_that_it_names() -> None:
    """A companion that has gone back to an older version lacks rows: it goes on from its own commit."""
    own, later = Standing(5, READ_TO), ReadTo(Place(1, 8, 4), log="1f0c83aa")
    assert own.as_noted(Standing(5, later, of=3)) == Standing(5, later, of=3)
    assert own.as_noted(Standing(5, READ_TO, of=3)) == Standing(5, READ_TO, of=3)
    for noted in (None, Standing(6, later, of=3), Standing(4, later, of=3), Standing(5, ReadTo(later.place), of=3)):
        assert own.as_noted(noted) == own
