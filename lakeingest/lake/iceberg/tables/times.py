"""The times in a table's metadata never go back, whatever the clocks of the committing machines say.

Java readers refuse a table if an entry in its log of snapshots, or of versions of metadata.json, is more than a minute
older than the entry before it (Iceberg's `TableMetadata`). PyIceberg uses the clock of the machine for each entry, and
compares nothing. So an entry by a clock that is behind gets the time of the entry before it.
"""

import time
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.serializers import Compressor
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config

from lakeingest.core.figures.clocks import NEAR
from lakeingest.lake.iceberg.storage.format_version import assert_following, writable

Entry = TypeVar("Entry", SnapshotLogEntry, MetadataLogEntry)


def latest_time(metadata: TableMetadata) -> int:
    """The latest time in the table's metadata, in milliseconds since 1970."""
    logged = (entry.timestamp_ms for log in (metadata.snapshot_log, metadata.metadata_log) for entry in log)
    return max(metadata.last_updated_ms, *logged, 0)


def is_ahead(metadata: TableMetadata) -> bool:
    """Whether the latest time in the metadata is more than a minute in the future, by this machine's clock.

    While it is, Java readers refuse the table.
    """
    return latest_time(metadata) > (time.time() + NEAR.total_seconds()) * 1000


def with_ordered_times(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, in which each log entry is at least as late as the entry before it.

    The time of the last update is at least as late as every entry, too.
    """
    changed: dict[str, object] = {}
    snapshot_log, metadata_log = _ordered(metadata.snapshot_log), _ordered(metadata.metadata_log)
    if snapshot_log is not metadata.snapshot_log:  # `_ordered` returns the same list if nothing has changed
        changed["snapshot_log"] = snapshot_log
    if metadata_log is not metadata.metadata_log:
        changed["metadata_log"] = metadata_log
    if (last := latest_time(metadata)) > metadata.last_updated_ms:
        changed["last_updated_ms"] = last
    return metadata.model_copy(update=changed) if changed else metadata


def not_before(metadata: TableMetadata, updates: Sequence[TableUpdate], ahead: int) -> tuple[TableUpdate, ...]:
    """The updates, in which no new snapshot is older than the last change of the table.

    `ahead` says how many milliseconds this machine's clock is ahead of the catalog's. The times of new snapshots are
    turned into times of the catalog's clock.
    """
    last_change = latest_time(metadata)

    def timed(update: AddSnapshotUpdate) -> AddSnapshotUpdate:
        """The update. Its snapshot gets its time by the catalog's clock, or the last change's time if that is later."""
        moment = max(update.snapshot.timestamp_ms - ahead, last_change)
        return update.model_copy(update={"snapshot": update.snapshot.model_copy(update={"timestamp_ms": moment})})

    return tuple(timed(update) if isinstance(update, AddSnapshotUpdate) else update for update in updates)


@cache
def _writes_no_snapshot_as_minus_one() -> bool:
    """PyIceberg's setting `legacy-current-snapshot-id`, which may be in a file or in the environment."""
    return bool(Config().get_bool("legacy-current-snapshot-id"))


class OrderedCatalog(MetastoreCatalog):
    """A catalog for which PyIceberg writes metadata.json: here in any version of the format, and with ordered times."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Stage a commit, with ordered times. Raises CommitFailedException as `assert_following`."""
        if current_table is not None:
            assert_following(current_table.metadata, updates)
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        staged.metadata = with_ordered_times(staged.metadata)
        return staged

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        """As PyIceberg writes metadata.json, but the setting of the process is read once, not for each file."""
        text = writable(metadata).model_dump_json(exclude_none=not _writes_no_snapshot_as_minus_one())
        compressed = Compressor.get_compressor(metadata_path).bytes_compressor()(text.encode())
        with io.new_output(metadata_path).create(overwrite=False) as file:
            file.write(compressed)


def _ordered(log: list[Entry]) -> list[Entry]:
    """The log, in which an entry that is older than the entry before it gets the time of the entry before it.

    If no entry changes, the same list is returned.
    """
    latest, entries = 0, []
    for entry in log:
        latest = max(latest, entry.timestamp_ms)
        entries.append(entry if entry.timestamp_ms == latest else entry.model_copy(update={"timestamp_ms": latest}))
    is_unchanged = all(new is old for new, old in zip(entries, log, strict=True))
    return log if is_unchanged else type(log)(entries)  # a `Shared` list stays one
