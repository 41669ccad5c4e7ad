"""Commits to an Iceberg catalog that take effect at most once, even if their answers are lost.

An answer can be lost or late, or refuse a request that a client or a proxy sent twice. So only the table shows whether
a commit took effect. To be recognised, each commit adds a new snapshot, moves main, moves staging to a snapshot where
it never was, or removes branches for ever. It asserts the current snapshot of each branch that it moves or removes
(Iceberg's REST specification, "TableRequirement"). So of all copies of such a request at most one takes effect. Once
another commit moved a branch, none can. A commit also asserts the table's schema.

PyIceberg's `commit_transaction` is not used. It retries as the table's property `commit.retry.num-retries` says, and
builds our changes on the commit of another writer. After a conflict it deletes manifests, which are needed if the
commit took effect after all. Nothing is deleted here.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from sqlalchemy.exc import DBAPIError

from lakeingest.core.schema import TableId
from lakeingest.errors import CommitUnknown, LakeIngestError
from lakeingest.lake.iceberg.times import not_before
from lakeingest.lake.refusals import stale

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # seconds after each try, before a look at the table


def commit(
    table: TableId,
    transaction: Transaction,
    load: Callable[[], Table | None],
    rebuild: Callable[[Table], Transaction] | None = None,
) -> Mapping[str, int]:
    """Make one commit. Returns the snapshot of each branch that it moved.

    `load` returns the current table, None if it does not exist. `rebuild` prepares the same commit on the current
    table, after someone else committed but moved none of our branches. Errors of the file system and of the database
    pass unchanged; then the commit did not take effect.

    Raises:
        StaleWriter: the commit did not take effect and never will.
        CommitUnknown: it is unknown whether the commit took effect.

    """
    requests = [_Request.of(transaction)]
    landed: list[_Request] = []

    def is_done() -> bool:
        current = load()
        landed.extend(request for request in requests if current is not None and request.is_in(current.metadata))
        if landed:
            return True
        if not requests[-1].can_land(current):
            raise stale(table)
        if current is not None and rebuild is not None and not requests[-1].is_based_on(current):
            requests.append(_Request.of(rebuild(current)))
        return False

    def send() -> None:
        requests[-1].send()

    until_known(table, send, is_done)
    return dict((landed or requests)[-1].branches)


def until_known(table: TableId, send: Callable[[], object], is_done: Callable[[], bool]) -> None:
    """Send a request, repeatedly and with pauses, until it succeeds or `is_done`.

    `is_done` raises an error of ours when the request can no longer take effect. Raises as `commit` does.
    """
    error: Exception | None = None
    for pause in PAUSES:
        try:
            send()
        except Exception as failed:  # noqa: BLE001 - only the catalog knows what happened
            error = failed
        else:
            return
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - two writers should not wait equally long
        try:
            if is_done():
                return
        except LakeIngestError:
            raise
        except Exception as failed:  # noqa: BLE001 - the next try is followed by another look
            error = failed
        if _is_final(error):
            raise error
    raise CommitUnknown(
        f"{table}: a commit was sent {len(PAUSES)} times and it is not known whether it took effect"
        f" ({type(error).__name__}: {' '.join(str(error).split())}); run the same command again"
    ) from error


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to the catalog, and how to recognise its effect.

    `branches` has the snapshot of each branch that the request moves, `removes` the branches that it removes.
    """

    table: Table
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    snapshots: frozenset[int]
    branches: Mapping[str, int]
    removes: frozenset[str]
    creates: bool

    @classmethod
    def of(cls, transaction: Transaction) -> "_Request":
        """The request of a transaction, which must not be used after that."""
        table, prepared = transaction._table, transaction._updates  # noqa: SLF001 - PyIceberg offers no other way
        updates = not_before(table.metadata, prepared, getattr(table.catalog, "ahead", 0))
        transaction._failed = True  # noqa: SLF001 - so that it refuses further use
        branches = {
            update.ref_name: update.snapshot_id for update in updates if isinstance(update, SetSnapshotRefUpdate)
        }
        creates = isinstance(transaction, CreateTableTransaction)
        added = frozenset(update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate))
        removes = frozenset(update.ref_name for update in updates if isinstance(update, RemoveSnapshotRefUpdate))
        if not added and not branches and not removes:
            raise ValueError("a commit must add a snapshot, or move or remove a branch, to be recognised")
        touched = branches.keys() | removes
        asserted: tuple[TableRequirement, ...] = (AssertCreate(),)
        if not creates:
            # PyIceberg makes only one requirement of each kind, so only the first of several branches has one. The
            # current schema changes within a transaction, and the one of the table as it was loaded is asserted.
            ours = AssertRefSnapshotId, AssertCurrentSchemaId, AssertDefaultSpecId
            others = (each for each in transaction._requirements if not isinstance(each, ours))  # noqa: SLF001
            places = (_stands(branch, _place(table.metadata, branch)) for branch in sorted(touched))
            asserted = (*others, *places, *_defined(table.metadata))
        return cls(table, updates, asserted, added, branches, removes, creates)

    def send(self) -> None:
        """Send the request once. An error does not mean that it had no effect."""
        self.table.catalog.commit_table(self.table, self.requirements, self.updates)

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether the request took effect: its snapshots exist, or its branches were moved or removed."""
        if metadata.table_uuid != self.table.metadata.table_uuid:
            return False
        if self.snapshots:
            return all(metadata.snapshot_by_id(snapshot) is not None for snapshot in self.snapshots)
        if not self.branches:
            return self.removes.isdisjoint(metadata.refs)
        if MAIN_BRANCH not in self.branches:  # a statement made the snapshot, and staging never had it before
            for branch, target in self.branches.items():
                history = ancestors_of(metadata.snapshot_by_name(branch), metadata)
                if target not in (snapshot.snapshot_id for snapshot in history):
                    return False
            return True
        # it moves main alone, which may have moved on since then: then the log of main has the snapshot once more
        target = self.branches[MAIN_BRANCH]
        times_now = sum(entry.snapshot_id == target for entry in metadata.snapshot_log)
        times_before = sum(entry.snapshot_id == target for entry in self.table.metadata.snapshot_log)
        return times_now > times_before or _place(metadata, MAIN_BRANCH) == target

    def can_land(self, current: Table | None) -> bool:
        """Whether a delayed copy of the request could still take effect on the current table, None if there is none."""
        if self.creates or current is None:
            return self.creates and current is None
        asserted = [each for each in self.requirements if isinstance(each, AssertRefSnapshotId)]
        unmoved = all(_place(current.metadata, each.ref) == each.snapshot_id for each in asserted)
        return unmoved and current.metadata.table_uuid == self.table.metadata.table_uuid

    def is_based_on(self, current: Table) -> bool:
        """Whether nobody committed since the request was prepared."""
        return (current.name(), current.metadata_location) == (self.table.name(), self.table.metadata_location)


def _defined(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """Assertions of the table and its definition, for which the files were written."""
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )


def _stands(branch: str, snapshot: int | None) -> AssertRefSnapshotId:
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": snapshot})


def _place(metadata: TableMetadata, branch: str) -> int | None:
    return metadata.refs[branch].snapshot_id if branch in metadata.refs else None


def _is_final(error: Exception | None) -> bool:
    """Whether a file system or a transactional database answered, so that no copy of the request is delayed."""
    if isinstance(error, DBAPIError):
        return not error.connection_invalidated
    if isinstance(error, ConnectionError | TimeoutError):
        return False
    return isinstance(error, OSError) and error.errno is not None  # errors of HTTP clients have no number
