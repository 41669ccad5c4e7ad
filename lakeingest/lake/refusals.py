"""Why a table of the lake is not written: the messages that both formats have in common."""

from lakeingest.core.schema import TableId
from lakeingest.errors import ForeignWrite, NotOurTable, StaleWriter


def stale(table: TableId) -> StaleWriter:
    """Another writer changed the table since this run read it."""
    return StaleWriter(f"{table}: another writer is at work on it; run the same command again")


def published_by_another(table: TableId) -> StaleWriter:
    """Another run of ours published the table first."""
    return StaleWriter(f"{table}: another writer published it; run the same command again")


def not_ours(name: str, table: TableId) -> NotOurTable:
    """The lake has something else under the name of the table's copy."""
    return NotOurTable(f"{name} exists and is no copy of {table}; rename it or set target.table")


def foreign_write(table: TableId, commit: str, way_out: str) -> ForeignWrite:
    """Someone else committed to the copy."""
    return ForeignWrite(f"{table}: someone else wrote {commit} to it; {way_out}")
