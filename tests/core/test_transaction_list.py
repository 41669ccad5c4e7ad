"""The list of transactions: it ends where the changelogs of all tables have every row."""

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.companions.log_columns import LOGGED_AT, NUMBER
from lakeingest.core.companions.transaction_list import GAP, complete_to, transactions_table
from lakeingest.core.tables.schema import TableId

A, B = TableId("shop", "a"), TableId("shop", "b")
EARLY, LATE = Place(1, 7, 100), Place(1, 7, 200)


def test_the_list_stands_in_a_database_of_its_own() -> None:
    """No table of a source can have the name."""
    schema = transactions_table("_lakeingest")
    assert schema.table == TableId("_lakeingest", "transactions")
    assert schema.table.is_reserved
    assert schema.key == (NUMBER,)
    assert {GAP, LOGGED_AT} <= set(schema.names)


@pytest.mark.parametrize(
    ("read_to", "place"),
    [
        ({A: EARLY, B: LATE}, EARLY),
        ({A: LATE}, LATE),
        ({A: LATE, B: None}, None),
        ({}, None),
    ],
)
def test_one_changelog_that_lags_holds_the_list_back(read_to: dict[TableId, Place | None], place: Place | None) -> None:
    """Also one that has not begun; without any, there is no list."""
    assert complete_to(read_to) == place
