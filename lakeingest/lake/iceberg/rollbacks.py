"""Rollbacks of Iceberg tables: one commit restores main, and the columns, partition fields and folder of the table.

A rollback deletes nothing that others wrote, because queries may read it. Their snapshots expire later, like ours.
"""

import copy
import functools
import json
from collections.abc import Callable, Iterator

from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetDefaultSpecUpdate, SetLocationUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite
from lakeingest.lake.iceberg.commits.commit import commit
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.partitions import our_spec
from lakeingest.lake.iceberg.merges.marks import assert_staging
from lakeingest.lake.iceberg.tables.history import MAIN, is_marked, lineage, progress_of, resume_point, tip
from lakeingest.lake.iceberg.tables.leftovers import path_of
from lakeingest.lake.iceberg.tables.shape import LOCATION, assert_not_rewritten, assert_ours, is_being_taken
from lakeingest.lake.iceberg.tables.staged_schema import schema_of, show_schema
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import POSITION
from lakeingest.lake.refusals import stale
from lakeingest.lake.rollbacks import Rollback


class IcebergRollbacks:
    """`lake.rollbacks.Rollbacks` on an Iceberg catalog."""

    def __init__(self, target: IcebergTarget) -> None:
        self._target = target

    def found(self, table: TableId) -> Rollback | None:
        """The rollback of changes by others; None: they changed nothing, or no table. Only its metadata is read."""
        with self._target.storage_errors():
            loaded = self._find(table) if self._target.exists() else None
            return None if loaded is None else find_rollback(table, loaded, self._is_our_place)

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Do the rollback in one commit, which the catalog refuses if main or staging moves before it.

        Raises StaleWriter if the table is gone, or has changed since `wanted` was found.
        """
        with self._target.storage_errors():
            if (loaded := self._find(table)) is None:
                raise stale(table)
            build = functools.partial(rollback_commit, table, wanted=wanted, is_ours=self._is_our_place)
            commit(table, build(loaded), functools.partial(self._find, table), build)

    def _is_our_place(self, table: TableId, location: str) -> bool:
        return self._target._entries.is_our_place(table, location)  # noqa: SLF001 - of the same package

    def _find(self, table: TableId) -> Table | None:
        """The table, even if others have changed it."""
        return self._target._entries.find_changed(table)  # noqa: SLF001 - of the same package


def find_rollback(table: TableId, loaded: Table, is_ours: Callable[[TableId, str], bool]) -> Rollback | None:
    """The rollback of changes by others; None: they changed nothing. Raises ForeignWrite if no rollback can undo them.

    `is_ours` says whether we would make the table's copy in a folder. It is asked because a person who moves the table
    can also change the property that says where the table was made.
    """
    if (error := _refusal(table, loaded)) is None:
        return None
    ours = _last_published(loaded)
    if ours is None and is_being_taken(loaded):  # readers have only ever seen the rows of the other tool
        raise error
    if ours is None:
        raise ForeignWrite(
            f"{table}: it cannot be rolled back, because it has no commit of lakeingest any more that readers saw; drop"
            " it to copy it again"
        ) from error
    rollback = Rollback(
        shows=f"snapshot {ours.snapshot_id}",
        version=ours.snapshot_id,
        drops=tuple(f"snapshot {snapshot.snapshot_id}" for snapshot in _foreign_snapshots(loaded, ours)),
        restores=tuple(_changed_parts(table, loaded, ours, is_ours)),
    )
    after = copy.copy(loaded)  # the table as the rollback would leave it: a run must not refuse it
    after.metadata = rollback_commit(table, loaded, wanted=rollback, is_ours=is_ours).table_metadata
    if (remaining := _refusal(table, after)) is not None:
        raise ForeignWrite(f"{table}: it cannot be rolled back: {remaining}") from remaining
    return rollback


def rollback_commit(
    table: TableId, loaded: Table, *, wanted: Rollback, is_ours: Callable[[TableId, str], bool]
) -> Transaction:
    """The transaction that moves main to our commit, and restores the table's columns, partitions, folder and position.

    Staging stays where it is; if it has moved since `loaded`, as by a hand-over to another pipeline, the commit is
    refused. Raises StaleWriter if our commit has been expired, or if main has commits that `wanted` does not name.
    """
    metadata, ours = loaded.metadata, loaded.metadata.snapshot_by_id(wanted.version)
    if ours is None:
        raise stale(table)
    foreign = {f"snapshot {snapshot.snapshot_id}" for snapshot in _foreign_snapshots(loaded, ours)}
    if not foreign <= set(wanted.drops):
        raise stale(table)
    position = progress_of(table, ours).position
    transaction = OneTransaction(loaded)
    transaction.set_properties({POSITION: "" if position is None else json.dumps(position.to_json())})
    show_schema(transaction, ours.snapshot_id)
    spec = our_spec(metadata)
    # if our spec is gone, the partitions stay, and `find_rollback` refuses the rollback
    if spec is not None and spec.spec_id != metadata.default_spec_id:
        transaction._stage((SetDefaultSpecUpdate.model_validate({"spec-id": spec.spec_id}),), ())  # noqa: SLF001
    if (made_in := _original_folder(table, loaded, is_ours)) is not None:
        transaction._stage((SetLocationUpdate(location=made_in),), ())  # noqa: SLF001
    branches = ManageSnapshots(transaction=transaction)
    branches.set_current_snapshot(snapshot_id=ours.snapshot_id)
    assert_staging(branches, metadata).commit()  # into the transaction; the catalog asserts staging later
    return transaction


def _refusal(table: TableId, loaded: Table) -> ForeignWrite | None:
    """The error with which a run refuses a table that someone else changed; None if a run can continue with it."""
    try:
        assert_ours(table, loaded)
        if (staged := resume_point(table, loaded)) is not None:
            assert_not_rewritten(table, loaded, staged.version)
    except ForeignWrite as error:
        return error
    return None


def _last_published(loaded: Table) -> Snapshot | None:
    """Our last commit that main was at; None if none is left.

    The log of main names the snapshots that main was at. Main was also at our
    newest commit in the history of main, even if the log has lost this commit.
    """
    metadata = loaded.metadata
    logged = (metadata.snapshot_by_id(entry.snapshot_id) for entry in metadata.snapshot_log)
    published = [snapshot for snapshot in logged if snapshot is not None and is_marked(snapshot)]
    in_history = next((snapshot for snapshot, _ in lineage(loaded, tip(loaded, MAIN)) if is_marked(snapshot)), None)
    # `lineage` also finds expired snapshots, to which main cannot go back
    if in_history is not None and metadata.snapshot_by_id(in_history.snapshot_id) is not None:
        published.append(in_history)
    return max(published, key=lambda snapshot: snapshot.sequence_number or 0, default=None)


def _foreign_snapshots(loaded: Table, ours: Snapshot) -> list[Snapshot]:
    """The snapshots of others on main after our commit, the newest first."""
    foreign = []
    for snapshot, _ in lineage(loaded, tip(loaded, MAIN)):
        if is_marked(snapshot) or snapshot.snapshot_id == ours.snapshot_id:
            break
        foreign.append(snapshot)
    return foreign


def _changed_parts(
    table: TableId, loaded: Table, ours: Snapshot, is_ours: Callable[[TableId, str], bool]
) -> Iterator[str]:
    """The parts of the table, other than main, that are not as they were at our commit: columns, partitions, folder."""
    if schema_of(loaded.metadata, ours.snapshot_id) != loaded.metadata.current_schema_id:
        yield "columns"
    spec = our_spec(loaded.metadata)
    if spec is None or spec.spec_id != loaded.metadata.default_spec_id:
        yield "partitions"
    if _original_folder(table, loaded, is_ours) is not None:
        yield "folder"


def _original_folder(table: TableId, loaded: Table, is_ours: Callable[[TableId, str], bool]) -> str | None:
    """The folder in which we made the table, if someone has moved the table; None if nobody has moved it.

    A property of the table names this folder. None also if someone has changed the property, so that it names a folder
    in which we would never make the table.
    """
    made_in = loaded.properties.get(LOCATION, loaded.metadata.location)  # an earlier version set no such property
    is_moved = path_of(made_in).rstrip("/") != path_of(loaded.metadata.location).rstrip("/")
    return made_in if is_moved and is_ours(table, made_in) else None
