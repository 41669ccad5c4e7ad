"""The times in a table's metadata. They never go back, whatever the clocks of the committing machines say.

Readers in Java refuse a table with an entry in its log of snapshots, or of versions of metadata.json, that is more than
a minute older than the entry before it (Iceberg's `TableMetadata`). PyIceberg takes the clock of the machine for each
entry, and compares nothing. So a commit whose clock is behind gets the time of the last entry.
"""

import time
from collections.abc import Sequence
from typing import TypeVar

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from lakeingest.core.clocks import NEAR

Entry = TypeVar("Entry", SnapshotLogEntry, MetadataLogEntry)


def latest(metadata: TableMetadata) -> int:
    """The latest time in the table's metadata, in milliseconds since 1970."""
    logged = (entry.timestamp_ms for log in (metadata.snapshot_log, metadata.metadata_log) for entry in log)
    return max(metadata.last_updated_ms, *logged, 0)


def is_ahead(metadata: TableMetadata) -> bool:
    """Whether the latest time in the metadata is still in the future for this machine's clock.

    Java refuses such a table.
    """
    return latest(metadata) > (time.time() + NEAR.total_seconds()) * 1000


def in_order(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, with no entry of a log older than the one before it, and no time after the last update."""
    logs = {"snapshot_log": _in_order(metadata.snapshot_log), "metadata_log": _in_order(metadata.metadata_log)}
    changed: dict[str, object] = {name: log for name, log in logs.items() if log is not getattr(metadata, name)}
    if (last := latest(metadata)) > metadata.last_updated_ms:
        changed["last_updated_ms"] = last
    return metadata.model_copy(update=changed) if changed else metadata


def not_before(metadata: TableMetadata, updates: Sequence[TableUpdate], ahead: int) -> tuple[TableUpdate, ...]:
    """The updates, none of which adds a snapshot that is older than the last change of the table.

    `ahead` is by how many milliseconds the clock of this machine is ahead of the catalog's.
    """
    last = latest(metadata)

    def timed(update: AddSnapshotUpdate) -> AddSnapshotUpdate:
        moment = max(update.snapshot.timestamp_ms - ahead, last)
        return update.model_copy(update={"snapshot": update.snapshot.model_copy(update={"timestamp_ms": moment})})

    return tuple(timed(update) if isinstance(update, AddSnapshotUpdate) else update for update in updates)


class OrderedCatalog(MetastoreCatalog):
    """A catalog whose metadata.json PyIceberg writes, with times in order."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        staged.metadata = in_order(staged.metadata)
        return staged


def _in_order(log: list[Entry]) -> list[Entry]:
    last, ordered = 0, []
    for entry in log:
        last = max(last, entry.timestamp_ms)
        ordered.append(entry if entry.timestamp_ms == last else entry.model_copy(update={"timestamp_ms": last}))
    return log if all(new is old for new, old in zip(ordered, log, strict=True)) else type(log)(ordered)
