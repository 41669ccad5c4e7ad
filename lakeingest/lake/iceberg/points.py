"""Points of Iceberg tables: a tag keeps a snapshot, even when another tool expires old snapshots."""

import functools

from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.copies.points import KeptVersion
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import UsageError
from lakeingest.lake.iceberg.commits.commit import commit
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.refusals import stale


class IcebergPoints:
    """`lake.points.Points` on an Iceberg catalog. The name of a point is that of its tags."""

    def __init__(self, target: IcebergTarget) -> None:
        self._target = target

    def keep(self, table: TableId, version: int, name: str) -> KeptVersion:
        """Make the tag `name` at the version, if the table does not have this tag yet."""
        with self._target.storage_errors():
            if (loaded := self._find(table)) is None:
                raise stale(table)
            if not _is_kept(table, loaded, version, name):
                build = functools.partial(_with_tag, table, version, name)
                commit(table, build(loaded), functools.partial(self._find, table), build)
        return KeptVersion(version, name)

    def release(self, table: TableId, kept: KeptVersion, name: str) -> None:
        """Remove the tag `name`, if it still keeps this version. Otherwise do nothing: the tag is not ours."""
        with self._target.storage_errors():
            loaded = self._find(table) if self._target.exists() else None
            if loaded is not None and _tag(loaded, name, kept.version) is not None:
                build = functools.partial(_without_tag, name)
                commit(table, build(loaded), functools.partial(self._find, table), build)

    def _find(self, table: TableId) -> Table | None:
        return self._target._entries.find(table)  # noqa: SLF001 - of the same package


def _tag(loaded: Table, name: str, version: int) -> SnapshotRef | None:
    """The tag of this name if it keeps this version, else None."""
    ref = loaded.metadata.refs.get(name)
    is_it = ref is not None and (ref.snapshot_ref_type, ref.snapshot_id) == (SnapshotRefType.TAG, version)
    return ref if is_it else None


def _is_kept(table: TableId, loaded: Table, version: int, name: str) -> bool:
    """Whether the tag `name` keeps the version already.

    Raises UsageError if something else has this name, and StaleWriter if the table does not have the version any more.
    """
    if _tag(loaded, name, version) is not None:
        return True
    if name in loaded.metadata.refs:
        raise UsageError(f"{table} has a branch or another tag {name}; choose another name for the point")
    if loaded.metadata.snapshot_by_id(version) is None:
        raise stale(table)
    return False


def _with_tag(table: TableId, version: int, name: str, loaded: Table) -> Transaction:
    """The transaction that makes the tag `name` at this version. Raises as `_is_kept`."""
    _is_kept(table, loaded, version, name)  # only for its errors: someone else may have used the name
    transaction = OneTransaction(loaded)
    ManageSnapshots(transaction=transaction).create_tag(version, name).commit()  # into the transaction
    return transaction


def _without_tag(name: str, loaded: Table) -> Transaction:
    """The transaction that removes the tag `name`."""
    transaction = OneTransaction(loaded)
    ManageSnapshots(transaction=transaction).remove_tag(name).commit()  # into the transaction
    return transaction
