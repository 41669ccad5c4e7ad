"""Iceberg: files written on executors, commits on the branch `lakeingest`, one atomic publish.

The snapshot of a marked commit has all these properties in its summary: `lakeingest.progress`, on which the next step
depends · `lakeingest.base`, the snapshot that the commit builds on · `lakeingest.commit`, a unique name of the commit ·
`lakeingest.position`, `lakeingest.epoch`, for people. `recover` resets staging if its last commit is not marked.
"""

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction

from lakeingest import config
from lakeingest.config.tables import TableOptions
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files.file import File
from lakeingest.lake import target as port
from lakeingest.lake.errors import names_storage_errors, unreadable
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.commits.audit import Audit
from lakeingest.lake.iceberg.commits.commit import commit
from lakeingest.lake.iceberg.commits.entries import Entries, Options
from lakeingest.lake.iceberg.commits.finding import IcebergFinding
from lakeingest.lake.iceberg.commits.publishing import IcebergJoint, IcebergPublishing
from lakeingest.lake.iceberg.commits.recovery import newest_whole, reset_to, restore_metadata
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.live_rows import count_rows
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.files.rows import IcebergRows, batch_readers, row_readers
from lakeingest.lake.iceberg.files.scan_plan import files_with
from lakeingest.lake.iceberg.files.type_names import type_names
from lakeingest.lake.iceberg.merges.marks import end_merges, mark, reset, rewind
from lakeingest.lake.iceberg.merges.merger import IcebergMerger, IcebergWriter, files_and_effects
from lakeingest.lake.iceberg.merges.merging import WAYS, Merge, WayOfMerging
from lakeingest.lake.iceberg.merges.rewriting import IcebergRewriter, rewriters, write_lift, write_start_over
from lakeingest.lake.iceberg.merges.vector_compaction import full_compaction
from lakeingest.lake.iceberg.storage.errors import UNREADABLE, storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables import leftovers
from lakeingest.lake.iceberg.tables.evolution import Form, wanted_form
from lakeingest.lake.iceberg.tables.expiry import Held, due_now, expire, nothing_held, sweep, trim
from lakeingest.lake.iceberg.tables.history import STAGING, earlier, is_marked, is_tip, resume_point, tip
from lakeingest.lake.iceberg.tables.location import assert_folder_usable, chosen_location, foreign_folder
from lakeingest.lake.iceberg.tables.properties import wanted_version
from lakeingest.lake.iceberg.tables.shape import assert_not_rewritten, is_being_taken
from lakeingest.lake.iceberg.tables.staged_schema import as_staged, schema_of
from lakeingest.lake.iceberg.tables.times import is_ahead
from lakeingest.lake.iceberg.upkeep import remove_all_leftovers
from lakeingest.lake.inventory import Inventory
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.refusals import stale
from lakeingest.lake.target import Bounds, Capabilities, Effects, OpenSpark, Staged, Written, no_spark
from lakeingest.lake.waiting import Waiting, waiting_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Write = Callable[[Transaction], None]


class IcebergTarget(port.Tables):
    """`lake.target.Target` on an Iceberg catalog."""

    def __init__(
        self,
        settings: config.Target,
        options: Options | None = None,
        *,
        keeps_dropped: bool = True,
        waiting: File | None = None,
        notes: File | None = None,
        ownership: Ownership | None = None,
        open_spark: OpenSpark = no_spark,
    ) -> None:
        """`waiting`: the folder of the removals that wait; None: no old snapshot is removed. `notes`: as in `Audit`."""
        self.settings, self._places = settings, (str(settings.warehouse), settings.catalog_place)
        self._options, self._ownership = functools.cache(options or (lambda _: TableOptions())), ownership
        self._keeps_dropped, self._waiting_folder = keeps_dropped, waiting
        self._open_spark, self._configured_way = open_spark, WAYS[settings.way_of_merging]
        self.capabilities, self._audit = Capabilities(self._configured_way.merges_by), Audit(notes)

    @functools.cached_property
    def _catalog(self) -> Catalog:
        with self.storage_errors():
            return open_catalog(self.settings)

    @functools.cached_property
    def _entries(self) -> Entries:
        return Entries(self.settings, self._catalog, self._ownership, self._options)

    @property
    def _publishing(self) -> IcebergPublishing:
        return IcebergPublishing(self, self._entries, self._table_with, self._audit, self._form)

    @property
    def finding(self) -> IcebergFinding:
        """What looks at copies for the notes of `lake.known_copies`."""
        return IcebergFinding(self, self._entries, self._audit, self._wanted_version)

    def exists(self) -> bool:
        """Whether the catalog exists; always True for a catalog on a server. A catalog that exists is also opened."""
        exists = not self.settings.catalog.is_embedded or self.settings.catalog_file.exists()
        return exists and bool(self._catalog)  # the first access to `_catalog` opens it

    @names_storage_errors
    def names(self, *, shown: bool = False) -> set[tuple[str, str]]:  # noqa: ARG002 - staging is in the tables
        """All names in the catalog, whether `shown` or not; also the own names of tables that are being built."""
        return self._entries.all_names()

    @names_storage_errors
    def recover(self, table: TableId) -> Staged | None:
        """Reset staging to its last marked commit, as `Target.recover` says, and finish an interrupted first publish.

        None without a table. An unpublished table without its progress counts as none, and is dropped if it can be.
        """
        # Step 1: load the table, from older metadata if the newest is lost
        try:
            loaded = self._entries.find_anew(table)
        except UNREADABLE:
            lost_file = restore_metadata(self._catalog, self._entries.names(table))
            if lost_file is None:  # no older metadata was restored
                raise
            return self._recover_after_loss(table, lost_file)
        if loaded is None:
            return None
        # Step 2: refuse changes of others, and finish what an interrupted run began. Begin again after each change
        staged = resume_point(table, loaded)
        if staged is None:
            return self.recover(table) if self._entries.drop_unused(table, loaded) else None  # other runs may build it
        assert_not_rewritten(table, loaded, staged.version)
        if self._entries.finish_naming(table, loaded, is_published=staged.published is not None):
            return self.recover(table)
        # Step 3: if files are lost, go back to the newest commit with all its files, or discard an unpublished table
        if problem := self._audit.find_damage(table, loaded, staged.version):
            if (whole := newest_whole(loaded)) is None and staged.published is None:
                self.discard(table)
                return self.recover(table)
            if whole is None:
                raise unreadable(str(table), problem)
            self._finish(table, loaded, lambda current: reset_to(table, current, whole))
            return self._recover_after_loss(table, problem)
        # Step 4: reset staging, unless its tip is `staged`, a commit of ours, and the table has the wanted version
        version_is_ours = is_marked(loaded.metadata.snapshot_by_id(staged.version))  # else it is someone's compaction
        is_older = loaded.metadata.format_version < self._wanted_version(table)
        if version_is_ours and not is_older and is_tip(loaded, STAGING, staged.version):
            return staged
        self._finish(table, loaded, functools.partial(reset, table, raises_version=is_older))
        return self.recover(table)

    @names_storage_errors
    def look(self, table: TableId) -> port.Looked | None:
        """Look at the table, and at its properties. Raises NotOurTable if no copy can be made."""
        if (loaded := self._entries.find_anew(table)) is None:
            assert_folder_usable(self._catalog, self.settings, self._options(table), table)
        elif (staged := resume_point(table, loaded)) is not None:
            assert_not_rewritten(table, loaded, staged.version)
            return port.Looked(staged, loaded.properties)
        return None

    @names_storage_errors
    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Make an empty main, and a commit on staging, in one transaction. Raises as `Entries.create`."""
        if (waiting := self._waiting(schema.table)) is not None:
            waiting.begin()  # notes that all removals of the new table are stored there
        chosen = chosen_location(self.settings, self._options(schema.table), schema.table)
        return Staged(progress, self._entries.create(schema, progress, self._form(schema), chosen), published=None)

    @names_storage_errors
    def discard(self, table: TableId) -> None:
        """Drop a table that was never published. Raises StaleWriter if another run has published or dropped it."""
        self._entries.discard(table)

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The name of each column's Iceberg type. Raises UnsupportedTable if the catalog cannot have the table."""
        return type_names(self.settings, schema)

    def storage_errors(self) -> AbstractContextManager[None]:
        """Raise failures of the warehouse or of the catalog in the block as our errors."""
        return storage_errors(*self._places)

    @names_storage_errors
    def writer(self, table: TableId) -> IcebergWriter:
        """A writer for the executors. Its files have the schema of staging."""
        loaded = self._table(table)
        return IcebergWriter(TableFiles.of(as_staged(loaded, tip(loaded, STAGING).snapshot_id)))

    @names_storage_errors
    def commit_wave(self, staged: Staged, files: Sequence[Written], progress: Progress) -> Staged:
        """Append a wave's files, and store its progress, in one commit."""
        added = [file for pickled in files for file in pickle.loads(pickled)]  # noqa: S301 - by our own executors
        return self._commit_files(self._table(progress.table), staged, progress, FileChanges(tuple(added)))

    @names_storage_errors
    def merger(self, staged: Staged, key: Sequence[str], bounds: Bounds | None, flag: str = "") -> IcebergMerger:
        """A merger for the executors, with the files that they have to read."""
        loaded = self._table_with(staged.progress.table, staged.version)
        way, staged_table = self._way_of_merging(loaded, staged.version), as_staged(loaded, staged.version)
        files = files_with(staged_table, staged.version, key[0], bounds, flag)
        return way.merger(TableFiles.of(staged_table), tuple(key), files, takes_doubles=is_being_taken(loaded))

    @names_storage_errors
    def commit_merge(
        self, staged: Staged, merged: Sequence[Written], progress_of: Callable[[Effects], Progress]
    ) -> tuple[Staged, Effects]:
        """Make one marked commit, in the way of `target.merge`, or by `row_delta` where a statement cannot merge."""
        files, effects = files_and_effects(merged)
        load = functools.partial(self._table_with, staged.progress.table, staged.version)
        loaded = load()
        way = self._way_of_merging(loaded, staged.version)
        prepared = way.prepare(Merge(loaded, staged.version, files, effects, progress_of, load, self._open_spark))
        return self._commit(prepared.loaded, staged, prepared.progress, prepared.write), effects

    @names_storage_errors
    def readers(self, staged: Staged, names: Sequence[str], bounds: Sequence[Bounds | None]) -> list[list[IcebergRows]]:
        """For each item of `bounds`, readers of all data files that may have rows within these bounds."""
        loaded = as_staged(self._table_with(staged.progress.table, staged.version), staged.version)
        return [row_readers(loaded, staged.version, names, limits) for limits in bounds]

    @names_storage_errors
    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """Make a commit that changes only the progress."""
        return self._commit_files(self._table(progress.table), staged, progress)

    @names_storage_errors
    def earlier(self, staged: Staged) -> list[Staged]:
        """The marked commits before `staged` and after the commit that readers see, the newest first."""
        return earlier(self._table_with(staged.progress.table, staged.version), staged)

    @names_storage_errors
    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Make a new commit on the commit `version`. The new commit has the rows of `version`, and this progress."""
        write = functools.partial(rewind, progress=progress, version=version)
        return self._commit(self._table_with(progress.table, version), staged, progress, write)

    @names_storage_errors
    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:
        """Remove every file of rows and of deletes from staging. Main still has the files and the old columns."""
        loaded = self._table_with(progress.table, staged.version)
        write = functools.partial(write_start_over, keeps_dropped=self._keeps_dropped)
        arguments = loaded, staged.version, schema, known, progress
        return self._commit(loaded, staged, progress, lambda transaction: write(transaction, *arguments))

    @names_storage_errors
    def rewriters(self, staged: Staged, lift: Lift) -> list[IcebergRewriter]:
        """Rewriters for the executors; none if all old rows have NULL in every new column."""
        loaded = self._table_with(staged.progress.table, staged.version)
        return rewriters(loaded, staged.version, lift, keeps_dropped=self._keeps_dropped)

    @names_storage_errors
    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[Written]) -> Staged:
        """Make one marked commit with the next schema. The next publish makes this schema the table's current one."""
        loaded = self._table_with(progress.table, staged.version)
        write = functools.partial(write_lift, keeps_dropped=self._keeps_dropped)
        arguments = loaded, staged.version, lift, progress, rewritten
        return self._commit(loaded, staged, progress, lambda transaction: write(transaction, *arguments))

    def read(self, table: TableId, version: int) -> "DataFrame":
        """The rows of one commit."""
        spark = self._open_spark()  # before the block: a failure to start Spark is no failure of the storage
        with self.storage_errors():  # not by `spark.read.load`: it takes a name with a slash for a path
            parts = (self.settings.catalog.name, *self._table_with(table, version).name())
            return spark.sql(f"SELECT * FROM {'.'.join(map(quote, parts))} VERSION AS OF {version}")

    @names_storage_errors
    def batch_readers(
        self, table: TableId, version: int, names: Sequence[str], bounds: Bounds | None = None, flag: str = ""
    ) -> list[IcebergRows] | None:
        """Readers of the snapshot's files, minus the rows that its deletes by position delete."""
        return batch_readers(as_staged(self._table_with(table, version), version), version, names, bounds, flag)

    @names_storage_errors
    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:
        """The number of rows by the snapshot's summary if that equals `expected`, otherwise by the snapshot's files."""
        return count_rows(self._table_with(table, version), version, expected)

    @names_storage_errors
    def publish(
        self, staged: Staged, schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> Staged:
        """Check the commit, and move main to it, with its position and form. Staging may have moved on from it."""
        return self._publishing.prepare(staged, schema, properties, audit).show()

    @property
    def joint(self) -> IcebergJoint | None:
        """Publishes of several tables, in a catalog that can commit them at once."""
        return IcebergJoint.of(self._catalog, self._publishing)

    @names_storage_errors
    def properties(self, table: TableId) -> Mapping[str, str]:
        """The table's properties."""
        return self._table(table).properties

    @names_storage_errors
    def maintain(self, staged: Staged) -> Staged:
        """Combine small files and deletes, and remove due snapshots, in one commit; no commit if nothing is to do."""
        loaded = self._table_with(staged.progress.table, staged.version)
        changes = full_compaction(as_staged(loaded, staged.version), staged.version)
        if changes == NO_FILES and not due_now(loaded, self.settings.history, self._held(staged.progress.table)):
            return staged
        return self._commit_files(loaded, staged, staged.progress, changes, all_due=True)

    @names_storage_errors
    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete leftover files of the table and its discarded copies. Raises OperatorNeeded in a folder of others."""
        loaded = self._table(table)
        if not self._entries.is_our_place(table, loaded.location()):
            raise foreign_folder(table, loaded.location())
        return remove_all_leftovers(loaded, table, self.settings, self._waiting(table), age, self._entries.has_uuid)

    @names_storage_errors
    def inventory(self, table: TableId) -> Inventory:
        """The numbers of files and bytes in the summary of the snapshot that readers see."""
        return leftovers.inventory(self._table(table))

    def _way_of_merging(self, loaded: Table, version: int) -> WayOfMerging:
        """The configured way; `row_delta` if the schema is not current, a time is ahead, or a key may have two rows."""
        may = schema_of(loaded.metadata, version) == loaded.metadata.current_schema_id and not is_being_taken(loaded)
        return self._configured_way if may and not is_ahead(loaded.metadata) else WAYS["row_delta"]

    def _held(self, table: TableId) -> Held:  # noqa: ARG002 - shards need it
        """A function that returns the table's commits that have to stay, because another table shows them."""
        return nothing_held

    def _waiting(self, table: TableId) -> Waiting | None:
        return None if self._waiting_folder is None else waiting_of(self._waiting_folder, table, self.settings.history)

    def _form(self, schema: TableSchema) -> Form:
        return wanted_form(self.settings, self._options(schema.table), schema, self._entries.options(schema.table))

    def _wanted_version(self, table: TableId) -> int:
        return wanted_version(self.settings, self._options(table))

    def _table(self, table: TableId) -> Table:
        return self._entries.existing(table)

    def _table_with(self, table: TableId, version: int) -> Table:
        """The table. Raises StaleWriter if the table was dropped and made again, and so lacks the commit `version`."""
        if (loaded := self._table(table)).metadata.snapshot_by_id(version) is None:
            raise stale(table)
        return loaded

    def _commit_files(
        self,
        loaded: Table,
        staged: Staged,
        progress: Progress,
        changes: FileChanges = NO_FILES,
        *,
        all_due: bool = False,
    ) -> Staged:
        """Make one marked commit of these changes."""
        write = functools.partial(mark, progress=progress, base=staged.version, changes=changes)
        return self._commit(loaded, staged, progress, write, all_due=all_due)

    def _commit(
        self, loaded: Table, staged: Staged, progress: Progress, write: _Write, *, all_due: bool = False
    ) -> Staged:
        """Commit what `write` puts into a transaction. Raises StaleWriter if staging has moved on from `staged`.

        The commit also removes snapshots that are due: some of them, or all with `all_due`.
        """
        table, waiting = progress.table, self._waiting(progress.table)
        expired = 0  # the removed snapshots of all transactions that were built: more than one after a conflict

        def build(current: Table) -> Transaction:
            nonlocal expired
            if tip(current, STAGING).snapshot_id != staged.version:
                raise stale(table)
            transaction = OneTransaction(current)
            write(transaction)
            self._entries.add_owner(transaction, current)
            end_merges(transaction, current)
            expired += expire(transaction, current, self.settings.history, waiting, self._held(table), all_due=all_due)
            return transaction

        version = self._finish(table, loaded, build)[STAGING]
        trim(loaded)  # files are deleted after the commit, because the metadata before the commit still names them
        if expired:
            sweep(self._table(table), waiting)
        # `published` stays what this run has seen, so that its publish is refused if main has moved since then
        return Staged(progress, version, published=staged.published)

    def _recover_after_loss(self, table: TableId, lost: str) -> Staged | None:
        return (staged := self.recover(table)) and replace(staged, lost=lost)  # None if `recover` returns None

    def _finish(self, table: TableId, loaded: Table, build: Callable[[Table], Transaction]) -> Mapping[str, int]:
        """Commit the transaction that `build` prepares. Returns the new snapshot of each branch that it moved."""
        return commit(table, build(loaded), lambda: self._entries.find(table), build)
