"""The list of transactions: a table with a row for each transaction that changed copied tables.

The changelogs of these tables are tables of the lake. The list gets a row of a transaction once these changelogs have
all rows of the transaction. So a consumer of several changelogs reads them up to a place in the list, and sees only
whole transactions.
"""

from collections.abc import Mapping

from lakeingest.core.binlog.position import Place
from lakeingest.core.companions.log_columns import LOGGED_AT, NUMBER
from lakeingest.core.tables.change import COMMITTED_AT, GTID, POSITION
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

TABLES, ROWS, GAP = "tables", "change_rows", "gap"

_TYPES = {
    Kind.INT64: SourceType("bigint", "bigint"),
    Kind.STRING: SourceType("text", "text"),
    Kind.TIMESTAMP: SourceType("timestamp(6)", "timestamp", size=6),
    Kind.BOOLEAN: SourceType("bit(1)", "bit", size=1),
}


def transactions_table(database: str) -> TableSchema:
    """The definition of the list of transactions in this database."""
    columns = (
        _column(NUMBER, Kind.INT64, "each row has a greater number than those before", nullable=False),
        _column(POSITION, Kind.STRING, "the transaction's place in the binlog, as a text that sorts", nullable=False),
        _column(GTID, Kind.STRING, "the transaction's GTID, if the source has GTIDs"),
        _column(COMMITTED_AT, Kind.TIMESTAMP, "when the transaction was committed"),
        _column(TABLES, Kind.STRING, "the number of rows in the changelog of each table, as JSON"),
        _column(ROWS, Kind.INT64, "the number of rows in all changelogs"),
        _column(GAP, Kind.BOOLEAN, "true: transactions up to this place are not in the list", nullable=False),
        _column(LOGGED_AT, Kind.TIMESTAMP, "when the row was written", nullable=False),
    )
    comment = "Transactions of copied tables, by lakeingest"
    return TableSchema(TableId(database, "transactions"), columns, (NUMBER,), comment=comment)


def _column(name: str, kind: Kind, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, kind, _TYPES[kind], nullable=nullable, comment=comment)


def complete_to(read_to: Mapping[TableId, Place | None]) -> Place | None:
    """The place up to which the changelogs of all tables go; None if one of them has not begun, or if there are none.

    `read_to`: the place up to which the changelog of each table goes; None if it has not begun.
    """
    places = list(read_to.values())
    if not places or any(place is None for place in places):
        return None
    return min(place for place in places if place is not None)
