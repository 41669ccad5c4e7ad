"""Adds up what the merges of a run write, table by table (`core.proofs.usual`)."""

from collections.abc import Iterable

from lakeingest.core.proofs.usual import Written
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.target import Effects


class Tally:
    """What merges have written into each table since the last `take` of the table.

    Threads may call the methods for different tables at the same time.
    """

    def __init__(self) -> None:
        self._written: dict[TableId, Written] = {}

    def merged(self, table: TableId, effects: Effects, parts: Iterable[Written]) -> None:
        """Add what a committed merge has written: the rows of its `effects`, and these parts."""
        changed = effects.inserted + effects.updated + effects.deleted
        self._written[table] = sum(parts, self._written.get(table, Written()) + Written(changed))

    def take(self, table: TableId) -> Written:
        """Return what merges have written into the table since the last call for it, and begin again from nothing."""
        return self._written.pop(table, Written())
