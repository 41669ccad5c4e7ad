"""Commits to an Iceberg catalog that take effect at most once, even if their answers are lost.

The answer to a request can be lost or late. If a client or a proxy sends a request twice, the answer to the second copy
may be a refusal although the first copy took effect. So only the table shows whether a commit took effect. To be
recognised in the table, each commit adds a new snapshot, moves main, moves staging to a snapshot where it never was, or
removes branches for ever. A commit asserts the current snapshot of each branch that it moves or removes (Iceberg's REST
specification, "TableRequirement"). So at most one copy of a request takes effect, and no copy takes effect after
another commit has moved such a branch. A commit also asserts the table's schema and partition spec.

PyIceberg's `commit_transaction` is not used: it retries as the table's property `commit.retry.num-retries` says, and
then builds our changes on the commit of another writer. After a conflict it deletes manifests, which are needed if the
commit took effect after all. This module deletes nothing.
"""

import random
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
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

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import CommitUnknown, LakeIngestError
from lakeingest.lake.iceberg.catalogs.joint_catalog import JointCatalog, NotOffered, TableCommit
from lakeingest.lake.iceberg.storage.store import in_threads
from lakeingest.lake.iceberg.tables.times import not_before
from lakeingest.lake.joint_answer import JointAnswer
from lakeingest.lake.refusals import stale

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # seconds between each try and the look at the table
TRIES_TOGETHER = 3  # of a commit of several tables, before each table is committed alone


def commit(
    table: TableId,
    transaction: Transaction,
    load: Callable[[], Table | None],
    rebuild: Callable[[Table], Transaction] | None = None,
) -> Mapping[str, int]:
    """Make one commit. Returns the new snapshot of each branch that it moved.

    `load` returns the current table; None if it does not exist. If someone else has committed, but moved none of the
    branches of this commit, `rebuild` prepares the same commit on the current table; if `rebuild` is None, the first
    request is sent again. Errors of the file system and of the database pass unchanged: after one of these, the commit
    has not taken effect, and never will. Other errors of lakeingest from `load` or `rebuild` pass, too: after one of
    these, it is unknown whether the commit took effect. Raises ValueError for a transaction that adds no snapshot, and
    moves and removes no branch.

    Raises:
        StaleWriter: the commit did not take effect and never will.
        CommitUnknown: it is unknown whether the commit took effect.

    """
    # the last one is sent; the others were sent earlier, and a delayed copy of each may still take effect
    requests = [Request.of(transaction)]
    effective: list[Request] = []  # the requests that the table shows to have taken effect

    def look() -> bool:
        """Whether a request took effect. If none did, and someone else has committed, prepare the next request.

        Raises StaleWriter if the last request can no longer take effect.
        """
        current = load()
        if current is not None:
            effective.extend(request for request in requests if request.took_effect(current.metadata))
        if effective:
            return True
        if not requests[-1].can_take_effect(current):
            raise stale(table)
        if current is None or rebuild is None or requests[-1].is_based_on(current):
            return False  # the last request is sent again
        # someone else has committed, but moved none of our branches
        requests.append(Request.of(rebuild(current)))
        return False

    def send() -> None:
        """Send the last request: the first one, until `look` prepares others."""
        requests[-1].send()

    until_known(table, send, look)
    # `effective` is empty if the answer said that the last request succeeded
    return dict((effective or requests)[-1].branches)


def until_known(table: TableId, send: Callable[[], object], look: Callable[[], bool]) -> None:
    """Send a request, repeatedly and with pauses, until it succeeds or `look` returns True.

    `look` returns True if the table shows that the request took effect, and raises an error of ours if the request can
    no longer take effect. Raises as `commit` does.
    """
    error: Exception | None = None
    may_take_effect = False  # whether a request that was sent may take effect later
    for pause in PAUSES:
        try:
            send()
        except Exception as failed:  # noqa: BLE001 - `look` finds out what happened
            error = failed
            may_take_effect = may_take_effect or not _is_final(failed)
        else:
            return
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - two writers should not wait equally long
        try:
            if look():
                return
        except LakeIngestError:
            raise
        except Exception as failed:  # noqa: BLE001 - `look` is called again after the next try
            if may_take_effect:  # otherwise `error` stays the refusal, which is raised below
                error = failed
        if not may_take_effect:  # each request was refused for good
            raise error
    raise CommitUnknown(
        f"{table}: a commit was sent {len(PAUSES)} times and it is not known whether it took effect"
        f" ({type(error).__name__}: {' '.join(str(error).split())}); run the same command again"
    ) from error


def commit_together(
    catalog: JointCatalog, requests: Sequence["Request"], load: Callable[[int], Table | None]
) -> JointAnswer:
    """Send the requests, each of another table, as one commit. There is at least one.

    `load` returns the current table of the request with this number. A request that is not known to have taken effect
    may take effect later: send it again by `commit`, because at most one copy of a request takes effect. All requests
    are sent again only if the answer says nothing, no request took effect, and each still can. This function raises no
    error of the catalog: whoever then commits each table by itself meets the errors that concern this table.
    """
    commits, unclear = [request.commit for request in requests], ""
    none_took_effect = [False] * len(requests)
    for pause in PAUSES[:TRIES_TOGETHER]:
        refusal, is_refused = "", False
        try:
            catalog.commit_tables(commits)
        except NotOffered as error:
            return JointAnswer(none_took_effect, str(error), is_final=True)
        except CommitFailedException as error:
            refusal, is_refused = str(error), True  # perhaps of a second copy alone: the tables show it
        except Exception as error:  # noqa: BLE001 - the tables show what happened
            is_refused, unclear = _is_final(error), f"{type(error).__name__}: {error}"
        else:
            return JointAnswer([True] * len(requests))
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - two writers should not wait equally long
        took_effect, all_can = _look(requests, load)
        has_moved = any(took_effect) or not all_can
        if is_refused or has_moved:
            # a table that has moved explains a refusal, so no refusal of the catalog is reported
            return JointAnswer(took_effect, "" if has_moved else refusal or unclear)
    return JointAnswer(none_took_effect, f"the catalog does not say whether it has committed: {unclear}")


def _look(requests: Sequence["Request"], load: Callable[[int], Table | None]) -> tuple[list[bool], bool]:
    """For each request, whether its table shows that it took effect; and whether all requests can still take effect.

    A request whose table cannot be loaded counts as one that did not take effect and cannot. After an error of the
    catalog no further table is loaded, because each answer may take a minute.
    """
    failed = list[Exception]()  # an error of the catalog, once there is one

    def look(number: int) -> tuple[bool, bool]:
        """Whether this request took effect, and whether it still can; False for both if its table cannot be loaded."""
        if failed:
            return False, False
        try:
            current = load(number)
        except LakeIngestError:  # of this table alone: its own commit meets the error again
            return False, False
        except Exception as error:  # noqa: BLE001 - the commit of each table by itself meets it again
            failed.append(error)
            return False, False
        took_effect = current is not None and requests[number].took_effect(current.metadata)
        return took_effect, requests[number].can_take_effect(current)

    found = list(in_threads(requests[0].table.location(), look, range(len(requests))))
    return [took_effect for took_effect, _ in found], all(can for _, can in found)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the catalog, and the effect by which it is recognised in the table.

    `snapshots` has the ids of the snapshots that the request adds, `branches` the new snapshot of each branch that it
    moves, and `removes` the branches that it removes. `creates` is True if it creates the table.
    """

    table: Table
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    snapshots: frozenset[int]
    branches: Mapping[str, int]
    removes: frozenset[str]
    creates: bool

    @classmethod
    def of(cls, transaction: Transaction) -> "Request":
        """The request of a transaction. The transaction cannot be used after this call.

        Raises ValueError if the request has no effect by which it could be recognised in the table.
        """
        table, prepared = transaction._table, transaction._updates  # noqa: SLF001 - PyIceberg offers no other way
        # the times of snapshots become the catalog's: a REST catalog knows how many milliseconds our clock is `ahead`
        updates = not_before(table.metadata, prepared, getattr(table.catalog, "ahead", 0))
        transaction._failed = True  # noqa: SLF001 - so that it refuses further use
        branches = {
            update.ref_name: update.snapshot_id for update in updates if isinstance(update, SetSnapshotRefUpdate)
        }
        added = frozenset(update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate))
        removes = frozenset(update.ref_name for update in updates if isinstance(update, RemoveSnapshotRefUpdate))
        if not added and not branches and not removes:
            raise ValueError("a commit must add a snapshot, or move or remove a branch, to be recognised")
        return cls(
            table=table,
            updates=updates,
            requirements=_requirements(transaction, branches.keys() | removes),
            snapshots=added,
            branches=branches,
            removes=removes,
            creates=isinstance(transaction, CreateTableTransaction),
        )

    @property
    def commit(self) -> TableCommit:
        """What the catalog is asked for."""
        return TableCommit(self.table, self.requirements, self.updates)

    def send(self) -> None:
        """Send the request once. It may have taken effect even if this raises an error."""
        self.table.catalog.commit_table(self.table, self.requirements, self.updates)

    def took_effect(self, metadata: TableMetadata) -> bool:
        """Whether the table shows that the request took effect.

        A request that adds snapshots is recognised by these snapshots. Any other request is recognised by the branches
        that it removes or moves.
        """
        if metadata.table_uuid != self.table.metadata.table_uuid:  # another table has the name now
            return False
        if self.snapshots:  # no other request adds snapshots with these ids
            return all(metadata.snapshot_by_id(snapshot) is not None for snapshot in self.snapshots)
        if not self.branches:  # the request only removes branches
            return self.removes.isdisjoint(metadata.refs)
        if MAIN_BRANCH not in self.branches:  # staging moves to a snapshot that was never in its history
            return all(_is_in_history(metadata, branch, snapshot) for branch, snapshot in self.branches.items())
        published = self.branches[MAIN_BRANCH]
        if _snapshot_of(metadata, MAIN_BRANCH) == published:
            return True
        # if main has moved on since, its log has the snapshot once more than before the request
        times_now = sum(entry.snapshot_id == published for entry in metadata.snapshot_log)
        times_before = sum(entry.snapshot_id == published for entry in self.table.metadata.snapshot_log)
        return times_now > times_before

    def can_take_effect(self, current: Table | None) -> bool:
        """Whether a delayed copy of the request may still take effect. `current` is the table; None: there is none."""
        if current is None:
            return self.creates
        if self.creates:  # it asserts that there is no table
            return False
        asserted = [each for each in self.requirements if isinstance(each, AssertRefSnapshotId)]
        are_unmoved = all(_snapshot_of(current.metadata, each.ref) == each.snapshot_id for each in asserted)
        return are_unmoved and current.metadata.table_uuid == self.table.metadata.table_uuid

    def is_based_on(self, current: Table) -> bool:
        """Whether the request was prepared on this version of the table: nobody has committed since."""
        return (current.name(), current.metadata_location) == (self.table.name(), self.table.metadata_location)


def _requirements(transaction: Transaction, branches: AbstractSet[str]) -> tuple[TableRequirement, ...]:
    """What the request of a transaction asserts; `branches` are the branches that the request moves or removes."""
    if isinstance(transaction, CreateTableTransaction):
        return (AssertCreate(),)
    metadata = transaction._table.metadata  # noqa: SLF001 - PyIceberg offers no other way
    # PyIceberg's requirements of these kinds are left out, because ours follow
    replaced_kinds = (
        AssertRefSnapshotId,  # PyIceberg makes one requirement of each kind, also for several branches
        AssertCurrentSchemaId,  # PyIceberg's may be of a schema that becomes current within the transaction
        AssertDefaultSpecId,  # `_definition_assertions` asserts it, too
    )
    kept = (each for each in transaction._requirements if not isinstance(each, replaced_kinds))  # noqa: SLF001
    of_branches = (_branch_assertion(branch, _snapshot_of(metadata, branch)) for branch in sorted(branches))
    return (*kept, *of_branches, *_definition_assertions(metadata))


def _definition_assertions(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """Assertions that nobody has replaced the table, or changed its columns or its partitions."""
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    )


def _branch_assertion(branch: str, snapshot: int | None) -> AssertRefSnapshotId:
    """The assertion that a branch is at this snapshot; None: that the branch does not exist."""
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": snapshot})


def _snapshot_of(metadata: TableMetadata, branch: str) -> int | None:
    """The snapshot that a branch is at; None if the branch does not exist."""
    return metadata.refs[branch].snapshot_id if branch in metadata.refs else None


def _is_in_history(metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Whether a branch is at this snapshot, or has moved on from it."""
    history = ancestors_of(metadata.snapshot_by_name(branch), metadata)
    return any(snapshot.snapshot_id == snapshot_id for snapshot in history)


def _is_final(error: Exception) -> bool:
    """Whether a file system or a transactional database refused a request: no copy of it takes effect later."""
    if isinstance(error, sqlite3.Error):  # of the embedded catalog
        return True
    sqlalchemy = sys.modules.get("sqlalchemy.exc")  # if nobody has imported it, the error is not from PostgreSQL
    if sqlalchemy is not None and isinstance(error, sqlalchemy.DBAPIError):
        return not error.connection_invalidated
    if isinstance(error, ConnectionError | TimeoutError):
        return False
    return isinstance(error, OSError) and error.errno is not None  # errors of HTTP clients have no number
