"""The target of Hudi: copy-on-write tables. Hudi has no branches, so staging is a folder of ours.

A publish is one commit of Hudi. Readers would notice the rollback of a commit, so the gates check the staged rows
before the commit. Each commit has all of these properties in its metadata:

lakeingest.progress           everything that the next step depends on
lakeingest.version            the version of the commit of staging that the publish made visible
lakeingest.base               the version that readers saw before
lakeingest.table, .owner      the source table, and the pipeline that owns the copy
lakeingest.key, .buckets      the columns of the primary key, and the number of buckets
lakeingest.partitions         the partitions, if the copy has any, with the earlier names of their columns
lakeingest.position, .epoch   for people
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote as decode

from lakeingest import config
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.partitioning import PartitionField, refusal
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import UnsupportedTable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import names_storage_errors, storage_errors
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.hudi.base_files import META
from lakeingest.lake.hudi.cleaning import clean
from lakeingest.lake.hudi.clusterings import remove_strays
from lakeingest.lake.hudi.commit import clock_lag
from lakeingest.lake.hudi.file_groups import assert_whole, data_files, visible_files
from lakeingest.lake.hudi.folder import TableFolder, is_table
from lakeingest.lake.hudi.lock import publish_lock
from lakeingest.lake.hudi.metastore import Metastore
from lakeingest.lake.hudi.partitions import PARTITION, Partitions
from lakeingest.lake.hudi.publication import Publication
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.rows import HudiRows, batch_readers
from lakeingest.lake.hudi.statement import rows_at
from lakeingest.lake.hudi.timeline import Instant, writes
from lakeingest.lake.hudi.types import hudi_types
from lakeingest.lake.inventory import Inventory
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.refusals import published_by_another, stale
from lakeingest.lake.staged.staging import Named, files_of, is_started_over, tables_in
from lakeingest.lake.staged.target import StagedTarget
from lakeingest.lake.target import Bounds, Looked, OpenSpark, Staged, no_spark
from lakeingest.lake.waiting import waiting_of
from lakeingest.rows import lake_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PartitionsOf = Callable[[TableId], tuple[PartitionField, ...]]


class HudiTarget(StagedTarget[Instant]):
    """`lake.target.Target` on Hudi tables. Commits that are not yet published are in the folder `staging`."""

    added_columns = frozenset({*META, RECORD_KEY, PARTITION})

    def __init__(
        self,
        settings: config.Target,
        staging: File,
        *,
        keeps_dropped: bool = True,
        ownership: Ownership | None = None,
        open_spark: OpenSpark = no_spark,
        partitions_of: PartitionsOf | None = None,
    ) -> None:
        """`partitions_of`: the partitions that pipeline.yml asks for; None: no copy is compared with them."""
        super().__init__(staging, open_spark, keeps_dropped=keeps_dropped)
        self.settings, self._ownership, self._partitions_of = settings, ownership, partitions_of
        self._removals = staging.parent / "waiting"
        self._warehouse = files.at(settings.warehouse, settings.storage)
        self._metastore = Metastore(settings)

    def exists(self) -> bool:
        """Whether a metastore is configured, or the folder of the warehouse or of staging exists.

        Raises CatalogAway if the metastore does not answer.
        """
        return self._metastore.answers() or self._warehouse.is_there() or self._folder.is_there()

    @names_storage_errors
    def names(self, *, shown: bool = False) -> set[tuple[str, str]]:
        """The namespace and name of each Hudi table in the warehouse and, without `shown`, of each table in staging."""
        names: set[tuple[str, str]] = set()
        for namespace in self._warehouse.subfolders():
            folder, found = self._warehouse / namespace, list[str]()
            with suppress(PermissionError):  # `lost+found`, for example: we could not have written a copy there
                found = folder.subfolders()
            for name in found:
                if is_table(folder / name):
                    # a table before its first publish is in a folder with the suffix BUILDING
                    names.add((decode(namespace), decode(name.removesuffix(BUILDING))))
        return names if shown else names | set(map(self.settings.identifier, tables_in(self._folder)))

    @names_storage_errors
    def recover(self, table: TableId) -> Staged | None:
        """The last commit of staging, after the repair of everything that an interrupted run has left.

        None: the table has neither a published commit nor staging. An interrupted first publish is finished. Staging
        that does not build on the commit that readers see is dropped, and begins again on that commit. If a publish was
        interrupted before it updated the metastore, `recover` makes a commit of progress alone, because the publish of
        this commit will update the metastore.
        """
        # Step 1: refuse changes of others
        published = self._published(table)
        staged = self._resume_point(table, published)
        # Step 2: finish an interrupted publish
        if published is not None:
            self._folder_of(table).finish(published)
        # Step 3: begin staging again if it does not build on the published commit
        self._resume(table, published, staged)
        # Step 4: bring the metastore up to date
        if staged is None or published is None or not staged.visible:
            return staged  # nothing is published, or staging is ahead: the next publish updates the metastore
        if self._metastore.is_up_to_date(table, published.time):
            return staged
        # a publish sweeps staging only after it has updated the metastore
        if self._staging(table).is_swept(published.version):
            return staged
        return self.mark(staged, staged.progress)

    @names_storage_errors
    def look(self, table: TableId) -> Looked | None:
        """Look at the table, and at the properties of the commit that readers see."""
        published = self._published(table)
        if (staged := self._resume_point(table, published)) is None:
            return None
        return Looked(staged, {} if published is None else published.properties)

    @names_storage_errors
    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Begin staging. The first publish makes the Hudi table.

        Raises:
            UnsupportedTable: Hudi does not allow a name of the table or of a column, or the table cannot have the
                partitions of pipeline.yml.
            StaleWriter: another run has published the table, or has begun its staging.
            NotOurCopy: another pipeline makes the copy.

        """
        self.types(schema)  # raises UnsupportedTable
        fields = self._partitions_of(schema.table) if self._partitions_of is not None else ()
        if (reason := refusal(fields, schema)) is not None:
            raise UnsupportedTable(f"{schema.table}: {reason}")
        partitions = Partitions.of_new(fields).named
        if self._published(schema.table) is not None:
            raise stale(schema.table)
        self._folder_of(schema.table).claim()  # raises NotOurCopy before anything is staged
        no_rows = lake_schema(schema).empty_table()
        commit = self._staging(schema.table).begin(progress, schema.key, no_rows, partitions)
        return Staged(progress, commit.version, published=None)

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The Spark types of the columns. Raises UnsupportedTable if Hudi does not allow a name of table or column."""
        return hudi_types(self.settings, schema)

    def storage_errors(self) -> AbstractContextManager[None]:
        """Raise failures of the warehouse in the block as our errors."""
        return storage_errors(str(self.settings.warehouse))

    @names_storage_errors
    def publish(
        self,
        staged: Staged,
        schema: TableSchema,  # noqa: ARG002 - readers see no comments
        properties: Mapping[str, str],
        audit: Auditing = unaudited,
    ) -> Staged:
        """Make the staged commit visible by one commit of Hudi. lakeingest writes this commit if it can, else Hudi.

        Then the metastore is updated, and published commits are swept from staging.
        """
        table, folder = staged.progress.table, self._folder_of(staged.progress.table)
        taken_back: list[str] = []  # `_write_commit` adds to it
        # Step 1: write the commit. If Hudi writes it, Hudi may archive old commits, whose files `clean` later deletes
        if not self._write_commit(staged, folder, properties, audit, taken_back, spark=None):
            self._write_commit(staged, folder, properties, audit, taken_back, spark=self._open_spark())
            clean(folder.current, waiting_of(self._removals, table, self.settings.history))
        # Step 2: update the metastore
        if self._metastore.is_configured:  # otherwise no session of Spark is opened
            self._metastore.register(table, folder.final, self._open_spark())
        # Step 3: sweep staging, by which `recover` knows that step 2 was done
        self._staging(table).sweep(staged.version)
        return Staged(staged.progress, staged.version, published=staged.version, taken_back=tuple(taken_back))

    @names_storage_errors
    def batch_readers(
        self,
        table: TableId,
        version: int,
        names: Sequence[str],
        bounds: Bounds | None = None,
        flag: str = "",  # noqa: ARG002 - files of Hudi have rows of both kinds
    ) -> list[HudiRows] | None:
        """Readers of the newest file of each bucket. None if the commit is not the published one.

        None also if others have clustered the table, because readers see other files then, or changed its form.
        """
        published = self._published(table)
        if published is None or published.version != version or published.read_at != published.time:
            return None
        return batch_readers(self._folder_of(table).current, published, names, bounds)

    @names_storage_errors
    def properties(self, table: TableId) -> Mapping[str, str]:
        """The properties of the commit that readers see; none if nothing is published."""
        published = self._published(table)
        return {} if published is None else published.properties

    @names_storage_errors
    def maintain(self, staged: Staged) -> Staged:
        """Make a staging commit of progress alone. Hudi itself writes its publish, and then archives old commits.

        Nothing is done while this machine's clock is behind the timeline, because Hudi could not write the publish.
        """
        is_behind = clock_lag(self._folder_of(staged.progress.table).current) > timedelta(0)
        return staged if is_behind else self.mark(staged, staged.progress)

    @names_storage_errors
    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete leftovers in the staging folder. Those in the table's folder are deleted by the table's next writer.

        Returns the numbers of deleted files and bytes.
        """
        return self._staging(table).remove_leftovers(age)

    @names_storage_errors
    def inventory(self, table: TableId) -> Inventory:
        """The data files in the table's folder, and the commits in its timeline.

        Files of older commits that are not deleted yet are included.
        """
        folder = self._folder_of(table).current
        sizes = [file.size() for file in data_files(folder)]
        return Inventory(files=len(sizes), deletes=0, bytes=sum(sizes), snapshots=len(writes(folder)))

    def _resume_point(self, table: TableId, published: Instant | None) -> Staged | None:
        """The commit from which a run continues; None if there is neither a `published` commit nor staging.

        Raises StateUnreadable if a file that readers need is missing or damaged, and NotOurTable if something else has
        the table's name in the metastore.
        """
        self._metastore.assert_ours(table)
        if published is not None:
            assert_whole(table, self._folder_of(table).current)
        return self._staged(table, published)

    def _assert_form(self, table: TableId, partitions: Named) -> None:
        if self._partitions_of is not None:
            Partitions.of(partitions).assert_wanted(table, self._partitions_of(table))

    def _partitions_after(self, schema: TableSchema, origins: Origins | None) -> Named:
        present = self._staging(schema.table).last().partitions
        return Partitions.of(present).after(schema, origins).named if present else ()

    def _published(self, table: TableId) -> Instant | None:
        """The commit that readers see or, after an interrupted first publish, will see; None: nothing is published."""
        return self._folder_of(table).published()

    def _visible_files(self, table: TableId, published: Instant) -> list[File]:
        return visible_files(self._folder_of(table).current, published.time)

    def _visible_rows(self, table: TableId, published: Instant, spark: "SparkSession") -> "DataFrame":
        return rows_at(self._folder_of(table).current, published.read_at, spark)

    def _write_commit(
        self,
        staged: Staged,
        folder: TableFolder,
        properties: Mapping[str, str],
        audit: Auditing,
        taken_back: list[str],
        spark: "SparkSession | None",
    ) -> bool:
        """Publish with the session `spark`, or without Spark if `spark` is None. The call holds the lock of the table.

        Adds the clusterings that it takes back to `taken_back`.

        Returns False, and readers see no difference, if the publish needs Spark and `spark` is None. Raises StaleWriter
        if another run publishes, or has rolled back the commit.
        """
        table = folder.table
        with publish_lock(table, folder.final, spark):
            taken_back += _make_ready(folder, archives=spark is not None)
            publication = self._publication(staged, folder, properties, audit)
            published = publication.published
            if published is None:
                folder.clear_building(spark)  # an interrupted first publish may have left files
            began = time.time()  # the files of earlier commits are durable already
            try:
                if spark is not None:
                    publication.publish_by_spark(spark, lambda: self._read(table, staged.version, spark))
                elif not publication.publish_by_files():
                    return False
            except Exception as error:
                if folder.published() == published:  # nothing was committed
                    raise
                if not folder.shows(staged.version):
                    raise published_by_another(table) from error
                # readers see our commit: only the answer to the commit was lost, so the publish goes on
            if not folder.shows(staged.version):  # another run has rolled back the commit, or has published after it
                raise stale(table)
            if published is None:
                self._give_name(folder)
            if is_started_over(publication.commits):
                folder.declare_record_key_of(folder.published())
            # readers see the commit already, but a power loss could undo it: staging and the spool are kept until here
            folder.make_durable(began)
            folder.clear_building(spark)  # in an object store, the first publish has left its files there
        return True

    def _publication(
        self, staged: Staged, folder: TableFolder, properties: Mapping[str, str], audit: Auditing
    ) -> Publication:
        """The publish of the commits of staging up to `staged`.

        Raises StaleWriter if readers no longer see the commit on which `staged` builds, and StateUnreadable if a file
        of the table or of staging is missing or damaged.
        """
        table, staging = folder.table, self._staging(folder.table)
        published = folder.published()
        visible_version = None if published is None else published.version
        if staged.published != visible_version:
            raise published_by_another(table)
        # a late run that has lost its lease may have declared the record key of an older commit
        folder.declare_record_key_of(published)
        if published is not None:
            assert_whole(table, folder.current)
        commits = staging.between(visible_version, staged.version)
        names, merges = files_of(commits)
        staging.assert_whole([*names, *(name for merge in merges for name in merge)])
        return Publication(
            table,
            folder,
            published,
            staging.path,
            commits,
            way_of_merging=self.settings.way_of_merging,
            history=self.settings.history,
            properties=properties,
            audit=audit,
        )

    def _give_name(self, folder: TableFolder) -> None:
        """Let readers find the table. This is the last step of a first publish."""
        folder.give_name()

    def _folder_of(self, table: TableId) -> TableFolder:
        return TableFolder.of(table, files.at(self.settings.folder(table), self.settings.storage), self._ownership)


def _make_ready(folder: TableFolder, *, archives: bool) -> Sequence[str]:
    """Take back clusterings of others before a publish, and return their instants.

    `archives`: Hudi makes the publish, and may archive commits. So stray files are deleted, too.
    """
    taken_back = folder.take_back_clusterings()
    if archives:
        remove_strays(folder.current)
    return taken_back
