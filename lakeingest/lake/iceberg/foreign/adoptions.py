"""Adoptions of Iceberg tables: one commit names the next owner and moves staging.

Every commit asserts the snapshot that staging is at. So after the move no commit of the former owner takes effect.
"""

import functools

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.copies.ownership import Owner
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.lake.iceberg.commits.commit import commit
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.row_delta import append_nothing
from lakeingest.lake.iceberg.merges.marks import reset
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, tip
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.ownership import PIPELINE, without_copy


class IcebergAdoptions:
    """`lake.ownership.Adoptions` on an Iceberg catalog."""

    def __init__(self, target: IcebergTarget, owner: Owner) -> None:
        self._target, self._owner = target, owner

    def owner(self, table: TableId) -> Owner | None:
        """The owner that the property PIPELINE names; None without this property. Raises UsageError without a table."""
        with self._target.storage_errors():
            text = self._existing(table).properties.get(PIPELINE)
        return None if text is None else Owner.of_text(text)

    def adopt(self, table: TableId) -> None:
        """Name this pipeline as the owner in one commit. Raises UsageError without a table, and as `commit`.

        Changes by others are not checked here: the next run refuses them.
        """
        with self._target.storage_errors():
            build = functools.partial(self._adoption, table)
            # `build` is called again if someone else has committed before this commit takes effect
            commit(table, build(self._existing(table)), functools.partial(self._find, table), build)

    def _adoption(self, table: TableId, loaded: Table) -> Transaction:
        """The transaction with the new owner, and with a new commit on staging from which a run continues.

        If no run can continue, for example because others have changed the table, the new commit has no progress.
        """
        try:
            transaction = reset(table, loaded)
        except LakeIngestError:  # no run can continue: the next run raises the error, too
            transaction = _without_progress(loaded)
        transaction.set_properties({PIPELINE: self._owner.to_text()})
        return transaction

    def _existing(self, table: TableId) -> Table:
        """The table, whoever owns it. Raises UsageError if there is no table."""
        loaded = self._find(table) if self._target.exists() else None
        if loaded is None:
            raise without_copy(table)
        return loaded

    def _find(self, table: TableId) -> Table | None:
        """The table, whoever owns it; None if there is no table."""
        return self._target._entries.find_of_any_owner(table)  # noqa: SLF001 - of the same package


def _without_progress(loaded: Table) -> Transaction:
    """The transaction that moves staging to a new commit without progress. Staging is made if it does not exist."""
    transaction = OneTransaction(loaded)
    if STAGING not in loaded.metadata.refs:
        # this `commit` only adds to the transaction
        ManageSnapshots(transaction=transaction).create_branch(tip(loaded, MAIN).snapshot_id, STAGING).commit()
    append_nothing(transaction, STAGING)
    return transaction
