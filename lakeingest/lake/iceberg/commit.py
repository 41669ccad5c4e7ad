"""Commits to an Iceberg catalog that take effect at most once, whatever becomes of their answers.

An answer can be lost or late, or be the refusal of a request that a client or a proxy has sent twice. So only the
table tells whether a commit is there. For that every commit adds a snapshot of its own or moves main, and it asserts
where each branch that it moves stands (Iceberg's REST specification, "TableRequirement"). Of all copies of such a
request at most one takes effect. Once a branch has moved without it, none can. It also asserts the table's schema.

PyIceberg's own `commit_transaction` is not used. It retries as the table's property `commit.retry.num-retries` says,
and then builds our changes on what another writer left; after a conflict it deletes manifests, which are live if the
commit is there after all. Nothing is deleted here.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
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
from lakeingest.lake.refusals import stale

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # seconds after each try, before the table is asked what became of it


def commit(
    table: TableId,
    transaction: Transaction,
    load: Callable[[], Table | None],
    rebuild: Callable[[Table], Transaction] | None = None,
) -> Mapping[str, int]:
    """Make one commit; where it has put the branches that it moves.

    `load` answers the table as it is now, None where there is none. `rebuild` prepares the same commit for it; it is
    called when someone else committed in between but moved none of our branches.
    StaleWriter: the commit is not there and never will be. CommitUnknown: nobody knows yet. Errors of the file system
    and of the database pass as they are; the commit is not there then.
    """
    requests = [_Request.of(transaction)]
    landed: list[_Request] = []

    def is_done() -> bool:
        found = load()
        landed.extend(one for one in requests if found is not None and one.is_in(found.metadata))
        if landed:
            return True
        if not requests[-1].can_land(found):
            raise stale(table)
        if found is not None and rebuild is not None and not requests[-1].is_based_on(found):
            requests.append(_Request.of(rebuild(found)))
        return False

    def send() -> None:
        requests[-1].send()

    until_known(table, send, is_done)
    return dict((landed or requests)[-1].branches)


def until_known(table: TableId, send: Callable[[], object], is_done: Callable[[], bool]) -> None:
    """Send a request, again and with pauses, until it is answered well or `is_done`.

    `is_done` raises an error of ours when the request can no longer take effect. Raises as `commit` does.
    """
    error: Exception | None = None
    for pause in PAUSES:
        try:
            send()
        except Exception as failed:  # noqa: BLE001 - whatever it says, only the catalog knows
            error = failed
        else:
            return
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - two writers should not wait alike
        try:
            if is_done():
                return
        except LakeIngestError:
            raise
        except Exception as failed:  # noqa: BLE001 - then it is asked after the next try
            error = failed
        if _is_final(error):
            raise error
    raise CommitUnknown(
        f"{table}: a commit was sent {len(PAUSES)} times and it is not known whether it is there"
        f" ({type(error).__name__}: {' '.join(str(error).split())}); run the same command again"
    ) from error


@dataclass(frozen=True, slots=True)
class _Request:
    """What is sent to the catalog, and how to recognise its effect.

    `branches`: where those stand then that it moves.
    """

    table: Table
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    snapshots: frozenset[int]
    branches: Mapping[str, int]
    creates: bool

    @classmethod
    def of(cls, transaction: Transaction) -> "_Request":
        """The request of a transaction, which is not used after that."""
        table, updates = transaction._table, transaction._updates  # noqa: SLF001 - PyIceberg sends them itself only
        transaction._failed = True  # noqa: SLF001 - so it refuses to do that
        branches = {one.ref_name: one.snapshot_id for one in updates if isinstance(one, SetSnapshotRefUpdate)}
        creates = isinstance(transaction, CreateTableTransaction)
        added = frozenset(one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate))
        if not added and branches.keys() != {MAIN_BRANCH}:
            raise ValueError("a commit cannot be recognised that neither adds a snapshot nor moves main")
        touched = branches.keys() | {one.ref_name for one in updates if isinstance(one, RemoveSnapshotRefUpdate)}
        asserted: tuple[TableRequirement, ...] = (AssertCreate(),)
        if not creates:
            # of each kind PyIceberg keeps one only, so of several branches the first
            others = (one for one in transaction._requirements if not isinstance(one, AssertRefSnapshotId))  # noqa: SLF001
            places = (_stands(one, _place(table.metadata, one)) for one in sorted(touched))
            asserted = (*others, *places, *_defined(table.metadata))
        return cls(table, updates, asserted, added, branches, creates)

    def send(self) -> None:
        """Once; an error tells nothing of what became of it."""
        self.table.catalog.commit_table(self.table, self.requirements, self.updates)

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether it has taken effect: its snapshots are there, or main was moved as it says."""
        if metadata.table_uuid != self.table.metadata.table_uuid:
            return False
        if self.snapshots:
            return all(metadata.snapshot_by_id(one) is not None for one in self.snapshots)
        # main alone; it may have gone on since, then the log tells that it was there
        target, logs = self.branches[MAIN_BRANCH], (metadata.snapshot_log, self.table.metadata.snapshot_log)
        now, before = (sum(entry.snapshot_id == target for entry in log) for log in logs)
        return now > before or _place(metadata, MAIN_BRANCH) == target

    def can_land(self, found: Table | None) -> bool:
        """Whether a copy of it, which may still be under way, could take effect on the table as it was found."""
        if self.creates or found is None:
            return self.creates and found is None
        base = self.table.metadata
        asserted = [one for one in self.requirements if isinstance(one, AssertRefSnapshotId)]
        unmoved = all(_place(found.metadata, one.ref) == one.snapshot_id for one in asserted)
        return unmoved and found.metadata.table_uuid == base.table_uuid

    def is_based_on(self, found: Table) -> bool:
        """Whether nobody committed since it was prepared."""
        return (found.name(), found.metadata_location) == (self.table.name(), self.table.metadata_location)


def _defined(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """It is this table, and defined as it is: its files were written for that."""
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
    """Whether it is the answer of a file system or a database of transactions, so that nothing is under way."""
    if isinstance(error, DBAPIError):
        return not error.connection_invalidated
    if isinstance(error, ConnectionError | TimeoutError):
        return False
    return isinstance(error, OSError) and error.errno is not None  # those of clients of HTTP have no number
