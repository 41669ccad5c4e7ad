"""Commits of ours on the staging branch: each carries the complete progress, and the name of what it builds on."""

import uuid

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.lake.iceberg.history import STAGING, resume_point
from lakeingest.lake.iceberg.row_delta import NO_FILES, FileChanges, RowDelta
from lakeingest.lake.marks import progress_marks
from lakeingest.lake.refusals import stale


def mark(transaction: Transaction, progress: Progress, base: int, changes: FileChanges = NO_FILES) -> None:
    """Append a marked commit to staging; it is there when the transaction is committed."""
    marks = {**progress_marks(progress, base), "lakeingest.commit": uuid.uuid4().hex}
    RowDelta(transaction, transaction._table.io, STAGING, marks, changes).commit()  # noqa: SLF001 - as PyIceberg does


def reset(table: TableId, loaded: Table) -> Transaction:
    """Let staging stand where the table is to be gone on from.

    That is always a new commit. Were the branch moved back to an old one, a late copy of the commit that came after it
    would find the branch where it asserts it, and take effect.
    """
    staged, transaction = resume_point(table, loaded), loaded.transaction()
    if staged is None:
        raise stale(table)
    ManageSnapshots(transaction=transaction).create_branch(staged.version, STAGING).commit()
    mark(transaction, staged.progress, staged.version)
    return transaction
