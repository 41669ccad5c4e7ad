"""Which copies are due, as a table of cases."""

import pytest

from lakeingest.core.copies.due import QUIET_SECONDS, Standing, due
from lakeingest.core.tables.schema import TableId

LONG, SHORT = QUIET_SECONDS + 1, QUIET_SECONDS


def standing(
    name: str,
    idle: float = 0.0,
    *,
    unseen: bool = False,
    behind: bool = True,
    changes: bool = False,
    commit: bool = False,
) -> Standing:
    """A copy that the spool is ahead of, in which nothing has changed."""
    return Standing(TableId("d", name), unseen, behind, changes, idle, commit)


@pytest.mark.parametrize(
    ("copies", "order"),
    [
        ([], ""),
        ([standing("a")], ""),
        ([standing("a", LONG)], "a"),
        ([standing("a", SHORT)], ""),
        ([standing("a", LONG, behind=False)], ""),
        ([standing("a", unseen=True, behind=False)], "a"),
        ([standing("a", changes=True)], "a"),
        ([standing("a", changes=True, unseen=True)], "a"),
        ([standing("q", LONG), standing("b", changes=True), standing("u", unseen=True)], "ubq"),
        ([standing("a", LONG, commit=True), standing("b", LONG + 9, commit=True), standing("c", LONG)], "cb"),
        ([standing("a", LONG, unseen=True, commit=True), standing("b", LONG, commit=True)], "ab"),
    ],
)
def test_due_tables_come_in_order(copies: list[Standing], order: str) -> None:
    """Unseen copies, then changes, then positions, of which one commit a round at most."""
    assert [table.name for table in due(copies)] == list(order)
