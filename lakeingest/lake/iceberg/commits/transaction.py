"""PyIceberg's transactions, but each update is applied to their metadata once, not at each access.

PyIceberg's own classes apply all updates twenty times for one commit, and copy the metadata each time. With many
snapshots the copies take seconds. They take half of the time in which a small table is created.
"""

import time
from collections.abc import Sequence
from typing import Self, cast

from pyiceberg.table import CreateTableTransaction, StagedTable, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from lakeingest.lake.iceberg.storage.format_version import is_third, raised_version


class OneTransaction(Transaction):
    """A transaction on a table."""

    _known: tuple[int, TableMetadata] | None = None  # a number of updates, and the metadata after them
    _applied: TableMetadata | None = None  # the same metadata, before `_after` sets the time of the last update
    _context: _TableMetadataUpdateContext | None = None  # what PyIceberg notes of the updates that it has applied

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata after the updates that the transaction has so far."""
        if not self._updates:
            return self._table.metadata
        # updates are only added, so their number tells whether the known metadata is still right
        known_count, metadata = self._known or (0, self._table.metadata)
        if known_count != len(self._updates):
            metadata = self._after(self._updates[known_count:])
            self._known = len(self._updates), metadata
        return metadata

    def _after(self, updates: Sequence[TableUpdate]) -> TableMetadata:
        """The metadata after these further updates, as PyIceberg's `update_table_metadata` returns it."""
        base = self._table.metadata
        context = self._context = self._context or _TableMetadataUpdateContext()
        applied = self._applied or base
        for update in updates:
            applied = _apply_table_update(update, applied, context)
        self._applied = applied
        applied.spec().check_compatible(applied.schema())
        applied.sort_order().check_compatible(applied.schema())
        # `applied` is not copied: neither the updates of PyIceberg nor ours change metadata that others have
        if context.has_changes() and applied.last_updated_ms == base.last_updated_ms:
            return applied.model_copy(update={"last_updated_ms": time.time_ns() // 1_000_000})
        return applied


class OneCreation(OneTransaction, CreateTableTransaction):
    """The transaction that creates a table."""

    @classmethod
    def of(cls, creation: CreateTableTransaction) -> Self:
        """The same transaction as `creation`, which must have no updates but those that describe the new table."""
        prepared = creation._table  # noqa: SLF001 - only a catalog can prepare a table
        return cls(cast(StagedTable, prepared))

    def _initial_changes(self, table_metadata: TableMetadata) -> None:
        """Add PyIceberg's updates that describe the new table. For version 3, a `RaiseVersion` replaces one of them."""
        super()._initial_changes(table_metadata)
        if is_third(table_metadata):
            self._updates = tuple(
                raised_version() if isinstance(update, UpgradeFormatVersionUpdate) else update
                for update in self._updates
            )
