"""The times in a table's metadata: they never go back, whatever the clocks of those who commit say.

Readers in Java refuse a table with an entry in its log of snapshots, or of versions of metadata.json, that is more than
a minute older than the entry before it (Iceberg's `TableMetadata`). PyIceberg takes the clock of the machine for each,
and compares nothing. So a commit whose clock is behind has the time of the last entry.
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
    """The last time that the table's metadata names, in milliseconds since 1970."""
    logged = (entry.timestamp_ms for log in (metadata.snapshot_log, metadata.metadata_log) for entry in log)
    return max(metadata.last_updated_ms, *logged, 0)


def is_ahead(metadata: TableMetadata) -> bool:
    """Whether the table was changed at a time that this machine's clock has yet to reach, which Java refuses."""
    return latest(metadata) > (time.time() + NEAR.total_seconds()) * 1000


def in_order(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, in which no entry of a log is before the one before it, and the last update is the last."""
    logs = {"snapshot_log": _in_order(metadata.snapshot_log), "metadata_log": _in_order(metadata.metadata_log)}
    changed: dict[str, object] = {name: log for name, log in logs.items() if log is not getattr(metadata, name)}
    if (last := latest(metadata)) > metadata.last_updated_ms:
        changed["last_updated_ms"] = last
    return metadata.model_copy(update=changed) if changed else metadata


def not_before(metadata: TableMetadata, updates: Sequence[TableUpdate], ahead: int) -> tuple[TableUpdate, ...]:
    """The updates, of which none adds a snapshot that is older than the last change of the table.

    By so many milliseconds the clock of this machine is `ahead` of the catalog's.
    """
    last = latest(metadata)

    def timed(one: AddSnapshotUpdate) -> AddSnapshotUpdate:
        moment = max(one.snapshot.timestamp_ms - ahead, last)
        return one.model_copy(update={"snapshot": one.snapshot.model_copy(update={"timestamp_ms": moment})})

    return tuple(timed(one) if isinstance(one, AddSnapshotUpdate) else one for one in updates)


class OrderedCatalog(MetastoreCatalog):
    """A catalog for which PyIceberg writes metadata.json."""

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
    last, found = 0, []
    for entry in log:
        last = max(last, entry.timestamp_ms)
        found.append(entry if entry.timestamp_ms == last else entry.model_copy(update={"timestamp_ms": last}))
    return log if all(new is old for new, old in zip(found, log, strict=True)) else type(log)(found)
