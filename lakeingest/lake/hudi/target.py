"""Hudi: copy-on-write tables. Hudi has no branches: staging is a folder of ours, and a publish is one commit of Hudi.

Properties of that commit (its metadata), always complete: `lakeingest.progress` is everything that the next step
depends on · `lakeingest.version` the commit of staging that it made visible · `lakeingest.base` the version that
readers saw before · `lakeingest.table`, `.key`, `.buckets` are repeated by the next publish · `lakeingest.position`,
`.epoch` are for people. Readers would see a rollback of a commit, so the gates run before it, on its rows.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote as decode

from lakeingest import config
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import names_storage_errors, storage_errors
from lakeingest.lake.hudi.base_files import META
from lakeingest.lake.hudi.cleaning import clean
from lakeingest.lake.hudi.commit import behind
from lakeingest.lake.hudi.file_groups import assert_whole, visible_files
from lakeingest.lake.hudi.folder import TableFolder, is_table
from lakeingest.lake.hudi.lock import publishing
from lakeingest.lake.hudi.metastore import Metastore
from lakeingest.lake.hudi.publication import Publication
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.statement import rows_at
from lakeingest.lake.hudi.timeline import Instant, writes
from lakeingest.lake.hudi.types import hudi_types
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.refusals import published_by_another, stale
from lakeingest.lake.staged.staging import files_of, is_started_over, tables_in
from lakeingest.lake.staged.target import StagedTarget
from lakeingest.lake.target import Inventory, OpenSpark, Staged, no_spark
from lakeingest.lake.waiting import waiting_of
from lakeingest.rows import lake_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HudiTarget(StagedTarget[Instant]):
    """`lake.target.Target` on Hudi tables.

    A table's folder has the table's name; unpublished commits are in `staging`.
    """

    added_columns = frozenset({*META, RECORD_KEY})

    def __init__(
        self,
        settings: config.Target,
        staging: File,
        *,
        keeps_dropped: bool = True,
        ownership: Ownership | None = None,
        open_spark: OpenSpark = no_spark,
    ) -> None:
        super().__init__(staging, open_spark, keeps_dropped=keeps_dropped)
        self.settings, self._ownership = settings, ownership
        self._removals = staging.parent / "waiting"
        self._warehouse = files.at(settings.warehouse, settings.storage)
        self._metastore = Metastore(settings)

    def exists(self) -> bool:
        """Whether the warehouse, staging or a metastore exists.

        Raises CatalogAway when the metastore does not answer.
        """
        return self._metastore.answers() or self._warehouse.is_there() or self._folder.is_there()

    @names_storage_errors
    def names(self) -> set[tuple[str, str]]:
        """The names of all Hudi tables that have a folder, and of the tables in staging."""
        namespaces = self._warehouse.subfolders()
        folders = ((space, name) for space in namespaces for name in (self._warehouse / space).subfolders())
        tables = ((space, name) for space, name in folders if is_table(self._warehouse / space / name))
        return {
            *((decode(space), decode(name.removesuffix(BUILDING))) for space, name in tables),
            *map(self.settings.identifier, tables_in(self._folder)),
        }

    @names_storage_errors
    def recover(self, table: TableId) -> Staged | None:
        """The last commit of staging. An interrupted first publish is finished.

        Staging that does not build on what readers see is dropped, and begins again from there. If a publish ended
        before the metastore was updated, a commit of progress alone follows, and the publish of that updates the
        metastore.
        """
        # Step 1: refuse changes of others. Step 2: finish an interrupted publish. Step 3: begin staging again, if due
        published = self._published(table)
        staged = self._resume_point(table, published)
        if published is not None:
            self._folder_of(table).finish(published)
        self._resume(table, published, staged)
        # Step 4: a publish may have ended before the metastore was updated, and before staging was swept
        if staged is None or published is None or not staged.visible:
            return staged
        if self._metastore.follows(table, published.time) or self._staging(table).is_swept(published.version):
            return staged
        return self.mark(staged, staged.progress)

    @names_storage_errors
    def inspect(self, table: TableId) -> Staged | None:
        """The result that `recover` would have. It changes nothing."""
        return self._resume_point(table, self._published(table))

    @names_storage_errors
    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Begin staging. The first publish makes the table itself."""
        self.types(schema)
        if self._published(schema.table) is not None:
            raise stale(schema.table)
        self._folder_of(schema.table).claim()
        commit = self._staging(schema.table).begin(progress, schema.key, lake_schema(schema).empty_table())
        return Staged(progress, commit.version, None)

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The names of the Spark types. Raises UnsupportedTable where Hudi allows no such column, or no such name."""
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
    ) -> Staged:
        """Make one commit of the table. lakeingest writes it if `target.merge` is `row_delta` and it can, else Hudi."""
        table, folder = staged.progress.table, self._folder_of(staged.progress.table)
        # Step 1: the commit. Step 2: the metastore. Step 3: staging, whose sweep tells `recover` that step 2 was done
        if not self._write(staged, folder, properties, None):
            self._write(staged, folder, properties, self._open_spark())
            clean(folder.place, waiting_of(self._removals, table, self.settings.history))
        if self._metastore.is_there:
            self._metastore.register(table, folder.final, self._open_spark())
        self._staging(table).sweep(staged.version)
        return Staged(staged.progress, staged.version, staged.version)

    @names_storage_errors
    def properties(self, table: TableId) -> Mapping[str, str]:
        """The properties of the commit that readers see."""
        published = self._published(table)
        return {} if published is None else published.properties

    @names_storage_errors
    def maintain(self, staged: Staged) -> Staged:
        """Make a commit of progress alone: Hudi archives commits at its publish.

        None is made while the clock is behind.
        """
        return staged if behind(self._folder_of(staged.progress.table).place) else self.mark(staged, staged.progress)

    @names_storage_errors
    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete leftovers in the staging folder.

        Hudi itself rolls back incomplete writes in the table's own folder.
        """
        return self._staging(table).remove_leftovers(age)

    @names_storage_errors
    def inventory(self, table: TableId) -> Inventory:
        """All data files in the table's folder. They include files of older commits that are not deleted yet."""
        place = self._folder_of(table).place
        sizes = [file.size() for file in place.listed("*.parquet")]
        return Inventory(len(sizes), 0, sum(sizes), len(writes(place)))

    def _resume_point(self, table: TableId, published: Instant | None) -> Staged | None:
        """The state from which a run continues, as `_staged`.

        Raises StateUnreadable when a file that readers need is missing or damaged; NotOurTable when the metastore has
        something else under the table's name.
        """
        self._metastore.assert_ours(table)
        if published is not None:
            assert_whole(table, self._folder_of(table).place)
        return self._staged(table, published)

    def _published(self, table: TableId) -> Instant | None:
        """The commit that readers see, or will see when the first publish is finished."""
        return self._folder_of(table).published()

    def _visible_files(self, table: TableId, seen: Instant) -> list[File]:
        return visible_files(self._folder_of(table).place, seen.time)

    def _visible_rows(self, table: TableId, seen: Instant, spark: "SparkSession") -> "DataFrame":
        return rows_at(self._folder_of(table).place, seen.time, spark)

    def _write(
        self, staged: Staged, folder: TableFolder, properties: Mapping[str, str], spark: "SparkSession | None"
    ) -> bool:
        """Publish by a statement, or without a session by files of ours. Returns False if they cannot.

        Nothing is visible then. The process that commits holds a lock meanwhile, which is released when the process
        ends.
        """
        table = folder.table
        with publishing(table, folder.final, spark):
            publication = self._publication(staged, folder, properties)
            published = publication.published
            if published is None:
                folder.clear_building(spark)  # left by an interrupted first publish
            began = time.time()
            try:
                if spark is not None:
                    publication.by_spark(spark, lambda: self._read(table, staged.version, spark))
                elif not publication.by_files():
                    return False
            except Exception as error:
                present = folder.published()
                if present != published and not folder.shows(staged.version):
                    raise published_by_another(table) from error
                if present == published:  # otherwise the commit took effect, and only the answer was lost
                    raise
            if not folder.shows(staged.version):
                raise stale(table)
            if published is None:
                self._give_name(folder)
            if is_started_over(publication.commits):
                folder.name_record_key(folder.published())
            # readers see the commit before it is durable; staging and the spool are kept until it is
            folder.make_durable(began)
            folder.clear_building(spark)
        return True

    def _publication(self, staged: Staged, folder: TableFolder, properties: Mapping[str, str]) -> Publication:
        """The commits to publish on what readers see. Raises StaleWriter if that is not what the run has seen.

        Raises StateUnreadable where a file of the table, or of staging, is missing or damaged.
        """
        table, staging, published = folder.table, self._staging(folder.table), folder.published()
        if staged.published != (None if published is None else published.version):
            raise published_by_another(table)
        folder.name_record_key(published)  # again: a run that lost its lease may have done it late, for an older commit
        if published is not None:
            assert_whole(table, folder.place)
        way, history = self.settings.way_of_merging, self.settings.history
        commits = staging.between(None if published is None else published.version, staged.version)
        names, merges = files_of(commits)
        staging.assert_whole([*names, *(name for merge in merges for name in merge)])
        return Publication(table, folder, published, staging.path, commits, way, history, properties)

    def _give_name(self, folder: TableFolder) -> None:
        """Take the last step of a first publish."""
        folder.give_name()

    def _folder_of(self, table: TableId) -> TableFolder:
        return TableFolder(table, files.at(self.settings.folder(table), self.settings.storage), self._ownership)
