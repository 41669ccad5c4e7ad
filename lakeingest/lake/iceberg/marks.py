"""Our commits on the staging branch: each carries the complete progress and the id of its base."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.lake.iceberg.history import MERGING, SAME_ROWS, STAGING, resume_point
from lakeingest.lake.iceberg.live_rows import without_dangling
from lakeingest.lake.iceberg.row_delta import NO_FILES, FileChanges, RowDelta
from lakeingest.lake.iceberg.staged_schema import as_staged, current_schema, schema_of
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
) -> None:
    """Append a marked commit to staging; it takes effect with the transaction.

    It has the schema with this id; None: the schema of its base. `more` are further marks.
    """
    marks = {**marks_of(progress, base), **more}
    with current_schema(transaction, schema_of(transaction.table_metadata, base) if schema is None else schema):
        RowDelta(transaction, transaction._table.io, STAGING, marks, changes).commit()  # noqa: SLF001 - as PyIceberg does


def marks_of(progress: Progress, base: int) -> dict[str, str]:
    """The marks of a new commit on this base."""
    return {**progress_marks(progress, base), "lakeingest.commit": uuid.uuid4().hex}


def end_merges(transaction: Transaction, loaded: Table) -> None:
    """Remove the branches on which statements merged.

    Staging has the commit of the last one, and the others are of interrupted runs.
    """
    branches = [branch for branch in loaded.metadata.refs if branch.startswith(MERGING)]
    if branches:
        ends = ManageSnapshots(transaction=transaction)
        for branch in branches:
            ends.remove_branch(branch)
        ends.commit()


def assert_staging(branches: ManageSnapshots, metadata: TableMetadata) -> ManageSnapshots:
    """Set staging to where it is, if it exists. So the commit asserts that nobody has moved it, or taken it over."""
    if (ref := metadata.refs.get(STAGING)) is None:
        return branches
    ages = ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep
    return branches.create_branch(ref.snapshot_id, STAGING, *ages)


def reset(table: TableId, loaded: Table) -> Transaction:
    """Set staging to the commit from which a run continues.

    This always makes a new commit. If the branch moved back to an old one, a delayed copy of the next commit would find
    the branch in the state that it asserts, and take effect.
    """
    staged, transaction = resume_point(table, loaded), loaded.transaction()
    if staged is None:
        raise stale(table)
    ManageSnapshots(transaction=transaction).create_branch(staged.version, STAGING).commit()
    # after someone's compaction there may be deletes of files that are gone, which every later commit would count
    changes = without_dangling(as_staged(loaded, staged.version), staged.version)
    rows = {SAME_ROWS: str(staged.version)} if staged.visible else {}
    mark(transaction, staged.progress, staged.version, changes, more=rows)
    return transaction


def rewind(transaction: Transaction, progress: Progress, version: int) -> None:
    """Set staging to a new commit with this progress, which builds on the commit `version`."""
    ManageSnapshots(transaction=transaction).create_branch(version, STAGING).commit()
    mark(transaction, progress, version)
