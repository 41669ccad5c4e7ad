"""Adoptions of Iceberg tables: one commit names the next owner and moves staging, which each commit asserts."""

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
        """By the table's property."""
        with self._target.storage_errors():
            named = self._found(table).properties.get(PIPELINE)
        return None if named is None else Owner.of_text(named)

    def adopt(self, table: TableId) -> None:
        """Whatever others have changed of it: a run says that then."""
        with self._target.storage_errors():
            build = functools.partial(self._adoption, table)
            commit(table, build(self._found(table)), functools.partial(self._look, table), build)

    def _adoption(self, table: TableId, loaded: Table) -> Transaction:
        """A new commit on staging, with the progress that a run goes on with; without, where it cannot as it is."""
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
        found = self._look(table) if self._target.exists() else None
        if found is None:
            raise without_copy(table)
        return found

    def _look(self, table: TableId) -> Table | None:
        return self._target._entries.look_at_any(table)  # noqa: SLF001 - of the same package
