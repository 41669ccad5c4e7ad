"""Our commits on staging: each carries the complete progress and the id of its base."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges, RowDelta
from lakeingest.lake.iceberg.merges.vector_compaction import without_dangling_deletes
from lakeingest.lake.iceberg.storage.format_version import raise_version
from lakeingest.lake.iceberg.tables.history import MERGING, SAME_ROWS, STAGING, resume_point
from lakeingest.lake.iceberg.tables.staged_schema import as_staged, schema_of, temporary_schema
from lakeingest.lake.marks import progress_marks
from lakeingest.lake.refusals import stale

NO_MARKS: Mapping[str, str] = MappingProxyType({})


def mark(
    transaction: Transaction,
    progress: Progress,
    base: int,
    changes: FileChanges = NO_FILES,
    schema: int | None = None,
    more: Mapping[str, str] = NO_MARKS,
    kind: Operation | None = None,
) -> None:
    """Add to the transaction a marked commit on staging, which is at the snapshot `base`, with these file changes.

    The commit gets the schema with the id `schema`; None: the schema of `base`. `more` are further properties of the
    commit. `kind`: Iceberg's kind of the commit; None: by its files.
    """
    marks = {**marks_of(progress, base), **more}
    schema_id = schema_of(transaction.table_metadata, base) if schema is None else schema
    with temporary_schema(transaction, schema_id):
        io = transaction._table.io  # noqa: SLF001 - as PyIceberg does
        RowDelta(transaction, io, STAGING, marks, changes, kind).commit()  # into the transaction


def marks_of(progress: Progress, base: int) -> dict[str, str]:
    """The properties of a new commit with this progress on this base."""
    return {**progress_marks(progress, base), "lakeingest.commit": uuid.uuid4().hex}


def end_merges(transaction: Transaction, loaded: Table) -> None:
    """Let the transaction remove all branches on which statements have merged.

    At most one of them is still of use: the caller lets the same transaction move staging to its snapshot. All others
    were left by interrupted runs.
    """
    branches = [branch for branch in loaded.metadata.refs if branch.startswith(MERGING)]
    if branches:
        removals = ManageSnapshots(transaction=transaction)
        for branch in branches:
            removals.remove_branch(branch)
        removals.commit()  # into the transaction


def assert_staging(branches: ManageSnapshots, metadata: TableMetadata) -> ManageSnapshots:
    """Let the commit assert the snapshot that staging is at. Returns `branches`.

    So the commit is refused if someone has moved staging by then, as another pipeline does that takes the copy over.
    If staging does not exist, nothing is asserted.
    """
    return assert_branch(branches, metadata, STAGING)


def assert_branch(branches: ManageSnapshots, metadata: TableMetadata, branch: str) -> ManageSnapshots:
    """Set a branch to the snapshot where it is, so that the commit asserts this snapshot. Returns `branches`.

    If the branch does not exist, nothing is asserted.
    """
    if (ref := metadata.refs.get(branch)) is None:
        return branches
    retention = ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep
    return branches.create_branch(ref.snapshot_id, branch, *retention)


def reset(table: TableId, loaded: Table, *, raises_version: bool = False) -> Transaction:
    """The transaction that moves staging to the commit from which a run continues, and adds a new commit there.

    Without a new commit, staging would be at an old commit again. A delayed request that asserts this old commit would
    then take effect. With `raises_version`, the table gets version 3 of Iceberg's format. Raises StaleWriter if an
    unpublished table has lost all its progress.
    """
    staged = resume_point(table, loaded)
    if staged is None:
        raise stale(table)
    transaction = loaded.transaction()
    if raises_version:
        raise_version(transaction)
    ManageSnapshots(transaction=transaction).create_branch(staged.version, STAGING).commit()  # into the transaction
    # after someone's compaction, deletes of rows in replaced files may remain, and summaries would count them
    changes = NO_FILES  # in version 3, no files of position deletes may be written
    if not raises_version:
        changes = without_dangling_deletes(as_staged(loaded, staged.version), staged.version)
    # if readers see the commit `staged`, the new commit has the same rows as they see
    same_rows = {SAME_ROWS: str(staged.version)} if staged.visible else {}
    mark(transaction, staged.progress, staged.version, changes, more=same_rows)
    return transaction


def rewind(transaction: Transaction, progress: Progress, version: int) -> None:
    """Let the transaction move staging to the commit `version`, and add a new commit with this progress there."""
    ManageSnapshots(transaction=transaction).create_branch(version, STAGING).commit()  # into the transaction
    mark(transaction, progress, version)
