"""The two ways to merge changes into an Iceberg table: what executors write, and how our commit on staging is made.

`row_delta`: executors write files of rows and of deletes, and our commit adds them. `statement`: executors write the
changes, Spark merges them on a branch of its own, and our commit moves staging to the snapshot of that branch.
"""

import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.config.target import MergeName
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.keys import quote
from lakeingest.errors import OperatorNeeded
from lakeingest.lake.iceberg.files.row_delta import FOR_EVER, NO_FILES
from lakeingest.lake.iceberg.merges.marks import mark, marks_of
from lakeingest.lake.iceberg.merges.merger import NO_EFFECTS, IcebergMerger
from lakeingest.lake.iceberg.merges.statement import merge_on_branch, write_changes
from lakeingest.lake.iceberg.merges.vector_compaction import with_compaction
from lakeingest.lake.iceberg.storage.durable import sync_snapshot
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.expiry import delete
from lakeingest.lake.iceberg.tables.history import MERGING, STAGING, is_marked, tip
from lakeingest.lake.iceberg.tables.staged_schema import as_staged
from lakeingest.lake.refusals import stale
from lakeingest.lake.target import Effects, MergesBy, OpenSpark, Written


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge into the snapshot `version` of the table `loaded`.

    Mergers have written its `files`, and counted its `effects`. `progress_of` returns, for these effects, the progress
    that the merge's commit carries. `load` loads the table again.
    """

    loaded: Table
    version: int
    files: Sequence[Any]
    effects: Effects
    progress_of: Callable[[Effects], Progress]
    load: Callable[[], Table]
    open_spark: OpenSpark


@dataclass(frozen=True, slots=True)
class Prepared:
    """A merge that is ready to be committed: `write` puts it into a transaction on the table `loaded`."""

    loaded: Table
    progress: Progress
    write: Callable[[Transaction], None]


@dataclass(frozen=True, slots=True)
class WayOfMerging:
    """A way to merge.

    `merges_by` says what mergers are given, `merger` is their class, and `prepare` turns what they have written into a
    commit.
    """

    merges_by: MergesBy
    merger: type[IcebergMerger]
    prepare: Callable[[Merge], Prepared]


@dataclass(frozen=True, slots=True)
class StatementMerger(IcebergMerger):
    """Writes changes to files, which the statement reads, and counts the effects of the changes."""

    def replace(self, changes: pa.Table) -> Written:
        """Count the effects. Nothing is written, because the statement replaces the old rows. Raises as `find`."""
        _, effects = self.find(changes)
        return Written(pickle.dumps(([], effects)))

    def write(self, rows: pa.Table) -> Written:
        """Write the changes to a file."""
        return Written(pickle.dumps((write_changes(self.table, self.key, rows), NO_EFFECTS)))


def _by_row_delta(merge: Merge) -> Prepared:
    """Prepare to commit the positions of old rows and the files of new rows, perhaps with a compaction.

    A compaction puts the new deletes into another file. So after a compaction the files that mergers wrote for these
    deletes are deleted, because no commit needs them.
    """
    changes = with_compaction(as_staged(merge.loaded, merge.version), merge.version, merge.files)
    written = {file.file_path for file in merge.files if isinstance(file, DataFile)}
    delete(merge.loaded.io, written - {file.file_path for file in changes.added})
    progress = merge.progress_of(merge.effects)
    return Prepared(merge.loaded, progress, lambda transaction: mark(transaction, progress, merge.version, changes))


def _by_statement(merge: Merge) -> Prepared:
    """Let Spark merge on a branch of its own, and prepare to move staging to the snapshot of that branch.

    If the changes have no effect, only the progress is committed. If there are many small files, a compaction follows.
    Raises StaleWriter if staging has moved on, and as `_merge_by_spark`.
    """
    progress, version = merge.progress_of(merge.effects), merge.version
    if tip(merge.loaded, STAGING).snapshot_id != version:  # the commit would be refused after Spark's work
        raise stale(progress.table)
    if merge.effects == NO_EFFECTS:
        delete(merge.loaded.io, [file.path for file in merge.files])
        return Prepared(merge.loaded, progress, lambda transaction: mark(transaction, progress, version))
    # Step 1: Spark merges on a branch of its own. Step 2: `write` moves staging to the merged snapshot
    loaded, merged = _merge_by_spark(merge, progress)
    # (): no further files, because Spark has committed its own to the branch
    changes = with_compaction(as_staged(loaded, merged.snapshot_id), merged.snapshot_id, ())

    def write(transaction: Transaction) -> None:
        """Move staging to the merged snapshot. If there is a compaction, add its commit."""
        # this `commit` only adds to the transaction
        ManageSnapshots(transaction=transaction).create_branch(merged.snapshot_id, STAGING, FOR_EVER).commit()
        if changes != NO_FILES:
            mark(transaction, progress, merged.snapshot_id, changes)

    return Prepared(loaded, progress, write)


def _merge_by_spark(merge: Merge, progress: Progress) -> tuple[Table, Snapshot]:
    """Run the statement. Returns the table, loaded again, and the statement's snapshot.

    Raises StaleWriter if this snapshot does not build on `merge.version`; OperatorNeeded if Spark has not stored the
    progress with the snapshot.
    """
    branch = f"{MERGING}{uuid.uuid4().hex}"
    name = ".".join(quote(part) for part in (merge.loaded.catalog.name, *merge.loaded.name()))
    table = TableFiles.of(merge.loaded)
    marks = marks_of(progress, merge.version)  # the properties of the statement's snapshot
    merge_on_branch(merge.open_spark(), name, branch, merge.version, table, merge.files, marks)
    delete(merge.loaded.io, [file.path for file in merge.files])  # the changes are merged
    loaded = merge.load()
    merged = loaded.metadata.snapshot_by_name(branch)
    if merged is None or merged.parent_snapshot_id != merge.version:
        raise stale(progress.table)
    if not is_marked(merged):
        raise OperatorNeeded(
            f"{progress.table}: Spark did not store the progress with its commit; unset PYSPARK_PIN_THREAD, or set"
            " target.merge to row_delta"
        )
    sync_snapshot(loaded, merged)
    return loaded, merged


WAYS: Mapping[MergeName, WayOfMerging] = {
    "row_delta": WayOfMerging("rows", IcebergMerger, _by_row_delta),
    "statement": WayOfMerging("changes", StatementMerger, _by_statement),
}
