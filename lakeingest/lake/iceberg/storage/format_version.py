"""Version 3 of Iceberg's format: how a table gets it, and its metadata.json, which PyIceberg reads but does not write.

Source: Iceberg's table specification, "Table Metadata Fields" and "Row Lineage for Upgraded Tables".
"""

from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.typedef import IcebergBaseModel

from lakeingest.lake.iceberg.storage.entry_fields import THIRD


class RaiseVersion(UpgradeFormatVersionUpdate):
    """The update that gives a table version 3. When PyIceberg applies its own update, it refuses version 3."""


@_apply_table_update.register(RaiseVersion)
def _(update: RaiseVersion, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    """Apply the update. A table that has version 3 already gets only its `next_row_id`, which may be missing."""
    next_row_id = getattr(base_metadata, "next_row_id", None) or 0
    if base_metadata.format_version == THIRD:
        return base_metadata.model_copy(update={"next_row_id": next_row_id})
    context.add_update(update)
    raised = base_metadata.model_copy(update={"format_version": THIRD, "next_row_id": next_row_id})
    return TableMetadataUtil._construct_without_validation(raised)  # noqa: SLF001 - as PyIceberg's own updates


class _Writable(TableMetadataV3):
    """Metadata of version 3 that PyIceberg can write."""

    def model_dump_json(  # type: ignore[override] # as PyIceberg
        self,
        exclude_none: bool = True,  # noqa: FBT001, FBT002 - as PyIceberg
        exclude: Any | None = None,
        by_alias: bool = True,  # noqa: FBT001, FBT002 - as PyIceberg
        **kwargs: Any,
    ) -> str:
        # PyIceberg's class of version 3 refuses to be written; its classes of other versions are written in this way
        dump = IcebergBaseModel.model_dump_json
        return dump(self, exclude_none=exclude_none, exclude=exclude, by_alias=by_alias, **kwargs)


def is_third(metadata: TableMetadata) -> bool:
    """Whether the table has version 3: rows are deleted by vectors, and have ids."""
    return metadata.format_version >= THIRD


def writable(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, as PyIceberg can write it to metadata.json."""
    if not is_third(metadata):
        return metadata
    fields = dict(metadata)
    return _Writable.model_construct(**{**fields, "next_row_id": fields.get("next_row_id") or 0})


def raise_version(transaction: Transaction) -> None:
    """Let the transaction give its table version 3, before the updates that it gets later."""
    transaction._stage((raised_version(),), ())  # noqa: SLF001 - Transaction refuses version 3


def raised_version() -> RaiseVersion:
    """The update that gives a table version 3."""
    return RaiseVersion.model_validate({"format-version": THIRD})


def assert_following(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> None:
    """Raises CommitFailedException if a new snapshot's sequence number is not above that of the table.

    Such a number shows that someone has committed since the snapshot was made. PyIceberg checks it only in version 2.
    """
    latest = metadata.last_sequence_number if isinstance(metadata, TableMetadataV3) else -1  # PyIceberg checks others
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            number = update.snapshot.sequence_number or 0
            if number <= latest:
                raise CommitFailedException(f"the sequence number {number} is not above {latest}")
            latest = max(latest, number)
