"""PyIceberg's transactions, but their metadata is computed once after each step, not at each access.

PyIceberg's own classes copy the metadata twenty times for one commit. With many snapshots the copies take seconds. They
take half of the time in which a small table is created.
"""

from typing import Self, cast

from pyiceberg.table import CreateTableTransaction, StagedTable, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from lakeingest.lake.iceberg.storage.format_version import is_third, raised_version


class OneTransaction(Transaction):
    """A transaction on a table."""

    _known: tuple[int, TableMetadata] | None = None  # a number of updates, and the metadata after them

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata after the updates that the transaction has so far."""
        if not self._updates:
            return self._table.metadata
        # updates are only added, so their number tells whether the known metadata is still right
        if self._known is None or self._known[0] != len(self._updates):
            self._known = len(self._updates), super().table_metadata
        return self._known[1]


class OneCreation(OneTransaction, CreateTableTransaction):
    """The transaction that creates a table."""

    @classmethod
    def of(cls, creation: CreateTableTransaction) -> Self:
        """The same transaction as `creation`, which must have no updates but those that describe the new table."""
        prepared = creation._table  # noqa: SLF001 - only a catalog can prepare a table
        return cls(cast(StagedTable, prepared))

    def _initial_changes(self, table_metadata: TableMetadata) -> None:
        """PyIceberg's updates that describe the new table, with one for version 3 that PyIceberg applies."""
        super()._initial_changes(table_metadata)
        if is_third(table_metadata):
            self._updates = tuple(
                raised_version() if isinstance(update, UpgradeFormatVersionUpdate) else update
                for update in self._updates
            )
