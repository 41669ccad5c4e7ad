"""Our commits on the staging branch: each carries the complete progress and the id of its base."""

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
    """Append a marked commit to staging; it takes effect with the transaction."""
    marks = {**progress_marks(progress, base), "lakeingest.commit": uuid.uuid4().hex}
    RowDelta(transaction, transaction._table.io, STAGING, marks, changes).commit()  # noqa: SLF001 - as PyIceberg does


def reset(table: TableId, loaded: Table) -> Transaction:
    """Set staging to the commit at which a run continues.

    This is always a new commit. If the branch moved back to an old one, a delayed copy of the next commit would find
    the branch as it asserts, and take effect.
    """
    staged, transaction = resume_point(table, loaded), loaded.transaction()
    if staged is None:
        raise stale(table)
    ManageSnapshots(transaction=transaction).create_branch(staged.version, STAGING).commit()
    mark(transaction, staged.progress, staged.version)
    return transaction
