"""Adoptions of Iceberg tables: one commit names the next owner and moves staging.

Every commit asserts where staging is.
"""

import functools

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.ownership import Owner
from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.lake.iceberg.commit import commit
from lakeingest.lake.iceberg.history import MAIN, STAGING, tip
from lakeingest.lake.iceberg.marks import reset
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.iceberg.transaction import OneTransaction
from lakeingest.lake.ownership import PIPELINE, without_copy


class IcebergAdoptions:
    """`lake.ownership.Adoptions` on an Iceberg catalog."""

    def __init__(self, target: IcebergTarget, owner: Owner) -> None:
        self._target, self._owner = target, owner

    def owner(self, table: TableId) -> Owner | None:
        """The owner that the table's property names."""
        with self._target.storage_errors():
            text = self._found(table).properties.get(PIPELINE)
        return None if text is None else Owner.of_text(text)

    def adopt(self, table: TableId) -> None:
        """Name this owner in one commit. Changes by others are not looked at: the next run refuses them."""
        with self._target.storage_errors():
            build = functools.partial(self._adoption, table)
            commit(table, build(self._found(table)), functools.partial(self._look, table), build)

    def _adoption(self, table: TableId, loaded: Table) -> Transaction:
        """A new commit on staging. It has the progress from which a run continues, unless no run can continue."""
        try:
            transaction = reset(table, loaded)
        except LakeIngestError:
            transaction = OneTransaction(loaded)
            if STAGING not in loaded.metadata.refs:
                ManageSnapshots(transaction=transaction).create_branch(tip(loaded, MAIN).snapshot_id, STAGING).commit()
            with transaction.update_snapshot(branch=STAGING).fast_append():
                pass
        transaction.set_properties({PIPELINE: self._owner.to_text()})
        return transaction

    def _found(self, table: TableId) -> Table:
        loaded = self._look(table) if self._target.exists() else None
        if loaded is None:
            raise without_copy(table)
        return loaded

    def _look(self, table: TableId) -> Table | None:
        return self._target._entries.look_at_any(table)  # noqa: SLF001 - of the same package
