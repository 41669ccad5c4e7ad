"""Hudi: copy-on-write tables. It has no branches: staging is a folder of ours, and a publish is one commit of Hudi.

Properties of that commit (its metadata), always complete: `lakeingest.progress` all that the next step depends on ·
`lakeingest.version` the commit of staging that it made visible · `lakeingest.base` the version that readers saw before
· `lakeingest.table`, `.key`, `.buckets` what the next publish must repeat · `lakeingest.position`, `.epoch` for people.
Readers would see a rollback of a commit, so the gates run before it, on its rows.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote as decode

from lakeingest import config
from lakeingest.core.change import DELETED
from lakeingest.core.file_names import file_name
from lakeingest.core.lift import Lift
from lakeingest.core.origins import Origins
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import names_storage_errors, storage_errors
from lakeingest.lake.hudi.cleaning import clean
from lakeingest.lake.hudi.commit import behind
from lakeingest.lake.hudi.effects import effects_of, rows_in
from lakeingest.lake.hudi.file_groups import assert_whole
from lakeingest.lake.hudi.folder import TableFolder, is_table
from lakeingest.lake.hudi.lock import publishing
from lakeingest.lake.hudi.metastore import Metastore
from lakeingest.lake.hudi.publication import Publication
from lakeingest.lake.hudi.rewriting import HudiRewriter, rewriters
from lakeingest.lake.hudi.staging import StagingFolder, files_of, is_started_over, since_restart, tables_in
from lakeingest.lake.hudi.statement import rows_at, rows_with
from lakeingest.lake.hudi.timeline import Instant, writes
from lakeingest.lake.hudi.types import hudi_types
from lakeingest.lake.hudi.writer import HudiMerger, HudiRows, HudiWriter
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.ownership import Ownership
from lakeingest.lake.refusals import published_by_another, stale
from lakeingest.lake.target import Bounds, Effects, Inventory, Staged
from lakeingest.lake.waiting import waiting_of
from lakeingest.rows import lake_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HudiTarget:
    """`lake.target.Target` on Hudi tables. A table's folder has the table's name; unfinished work is in `staging`."""

    def __init__(
        self,
        settings: config.Target,
        staging: File,
        *,
        keeps_dropped: bool = True,
        ownership: Ownership | None = None,
    ) -> None:
        self.settings, self._folder, self._keeps_dropped, self._ownership = settings, staging, keeps_dropped, ownership
        self._removals = staging.parent / "waiting"
        self._warehouse = files.at(settings.warehouse, settings.storage)
        self._metastore = Metastore(settings)

    def exists(self) -> bool:
        """Whether the warehouse or staging exists, or there is a metastore; CatalogAway when that does not answer."""
        return self._metastore.answers() or self._warehouse.is_there() or self._folder.is_there()

    @names_storage_errors
    def names(self) -> set[tuple[str, str]]:
        """The folders of all Hudi tables, and of staging."""
        namespaces = self._warehouse.subfolders()
        found = ((one, name) for one in namespaces for name in (self._warehouse / one).subfolders())
        published = (one for one in found if is_table(self._warehouse / one[0] / one[1]))
        return {
            *((decode(namespace), decode(name.removesuffix(BUILDING))) for namespace, name in published),
            *map(self.settings.identifier, tables_in(self._folder)),
        }

    def storage_errors(self) -> AbstractContextManager[None]:
        """Names a failure of the warehouse."""
        return storage_errors(str(self.settings.warehouse))

    @names_storage_errors
    def recover(self, table: TableId) -> Staged | None:
        """The last commit of staging; an interrupted first publish is finished.

        Staging that does not build on what readers see is dropped, and begins again from that. Where a publish ended
        before the metastore knew of it, a commit of progress alone follows, whose publish tells it.
        """
        published, staging = self._published(table), self._staging(table)
        staged = self._resume_point(table, published)
        if published is not None:
            self._folder_of(table).finish(published)
        if staged is None or not staging.commits(staged.version):
            if staging.path.is_there():
                staging.drop()
            if staged is not None and published is not None:
                staging.resume(staged.progress, published.key, staged.version)
        if staged is None or published is None or not staged.visible:
            return staged
        if self._metastore.follows(table, published.time) or staging.is_swept(published.version):
            return staged
        return self.mark(staged, staged.progress)

    @names_storage_errors
    def inspect(self, table: TableId) -> Staged | None:
        """What `recover` would answer; it changes nothing."""
        return self._resume_point(table, self._published(table))

    @names_storage_errors
    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Begin staging; the first publish makes the table itself."""
        self.types(schema)
        if self._published(schema.table) is not None:
            raise stale(schema.table)
        self._folder_of(schema.table).claim()
        made = self._staging(schema.table).begin(progress, schema.key, lake_schema(schema).empty_table())
        return Staged(progress, made.version, None)

    @names_storage_errors
    def discard(self, table: TableId) -> None:
        """Drop staging; StaleWriter when another run has published or dropped it."""
        if self._published(table) is not None:
            raise stale(table)
        self._staging(table).drop()

    @names_storage_errors
    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:  # noqa: ARG002
        """A commit of staging with one file of no rows, from which on only staging has rows."""
        empty = self.writer(progress.table).write(lake_schema(schema).empty_table())
        return self._replace_rows(staged, schema, progress, [empty])

    @names_storage_errors
    def rewriters(self, staged: Staged, lift: Lift) -> list[HudiRewriter]:
        """For the executors: all rows are written anew."""
        self.types(lift.after)
        staging, rows = self._staging(lift.after.table), self._files(lift.after.table, staged.version)
        return rewriters(staging, lift, *rows, keeps_dropped=self._keeps_dropped)

    @names_storage_errors
    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[bytes]) -> Staged:
        """A commit of staging, from which on only staging has rows."""
        return self._replace_rows(staged, lift.after, progress, rewritten)

    @names_storage_errors
    def writer(self, table: TableId) -> HudiWriter:
        """For the executors."""
        staging = self._staging(table)
        staging.last()  # StaleWriter where it was dropped
        return HudiWriter(staging)

    @names_storage_errors
    def commit_wave(self, staged: Staged, files: Sequence[bytes], progress: Progress) -> Staged:
        """One commit of staging with a wave's files and its progress."""
        return self._commit(staged, progress, rows=[name.decode() for name in files])

    @names_storage_errors
    def merger(
        self,
        staged: Staged,
        key: Sequence[str],  # noqa: ARG002 - the publish finds the rows that are replaced
        bounds: Bounds | None,  # noqa: ARG002
    ) -> HudiMerger:
        """For the executors."""
        return HudiMerger(self._staging(staged.progress.table))

    @names_storage_errors
    def commit_merge(
        self,
        staged: Staged,
        open_spark: "Callable[[], SparkSession]",
        merged: Sequence[bytes],
        after: Callable[[Effects], Progress],
    ) -> tuple[Staged, Effects]:
        """One commit of staging with the changes, which `read` applies from now on; the publish is a MERGE INTO."""
        table, names = staged.progress.table, [one.decode() for one in merged if one]
        staging, effects = self._staging(table), Effects(0, 0, 0)
        if names:
            rows, merges = self._files(table, staged.version)
            if rows:
                columns = files.parquet_metadata(rows[0]).schema.names
            else:  # an empty table
                columns = self.read(table, staged.version, open_spark()).columns
            changes = [staging.path / name for name in names]
            effects = effects_of(changes, staging.last().key, rows, merges, keeps_deleted=DELETED in columns)
        added = effects.inserted - effects.deleted
        return self._commit(staged, after(effects), changes=names, added=added), effects

    @names_storage_errors
    def readers(
        self,
        staged: Staged,
        open_spark: "Callable[[], SparkSession]",
        names: Sequence[str],
        bounds: Sequence[Bounds | None],
    ) -> list[list[HudiRows]]:
        """For all bounds the same reader, of files that Spark has written the columns to."""
        table = staged.progress.table
        rows, folder = self.read(table, staged.version, open_spark()), self._staging(table)
        return [[HudiRows.written(rows, names, bounds, folder.new_compared())]] * len(bounds)

    @names_storage_errors
    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """A commit of staging with progress alone."""
        return self._commit(staged, progress)

    @names_storage_errors
    def earlier(self, staged: Staged) -> list[Staged]:
        """The commits in the staging folder."""
        table = staged.progress.table
        commits = self._staging(table).between(self._published(table), staged.version)
        return [replace(staged, progress=one.progress, version=one.version) for one in reversed(commits[:-1])]

    @names_storage_errors
    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Where it is interrupted, staging ends with one of the commits in between."""
        self._staging(progress.table).cut(staged.version, version)
        return self._commit(replace(staged, version=version), progress)

    @names_storage_errors
    def read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        """The rows of one commit: the visible rows, or those of the waves, with all later changes applied.

        They are those of the waves before the first publish, and where the copy was started over.
        """
        published = self._published(table)
        if published is not None and published.version == version:
            return rows_at(self._folder_of(table).place, published.time, spark)
        staging, instant = self._staging(table), None if published is None else published.time
        commits = staging.between(published, version)
        return rows_with(self._folder_of(table).place, instant, staging.path, commits, spark)

    @names_storage_errors
    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:  # noqa: ARG002
        """The rows of files, and those that merges on staging add; None where a merge of an earlier version does."""
        published = self._published(table)
        commits = [] if published and published.version == version else self._staging(table).between(published, version)
        added = [commit.added for commit in since_restart(commits) if commit.changes]
        return None if None in added else rows_in(self._files(table, version)[0]) + sum(filter(None, added))

    @names_storage_errors
    def publish(
        self,
        staged: Staged,
        schema: TableSchema,  # noqa: ARG002 - readers see no comments
        open_spark: "Callable[[], SparkSession]",
        properties: Mapping[str, str],
    ) -> Staged:
        """One commit of the table. lakeingest writes it if `target.merge` is `row_delta` and it can, else Hudi does."""
        table, folder = staged.progress.table, self._folder_of(staged.progress.table)
        if not self._write(staged, folder, properties, None):
            self._write(staged, folder, properties, open_spark())
            clean(folder.place, waiting_of(self._removals, table, self.settings.history))
        if self._metastore.is_there:
            self._metastore.register(table, folder.final, open_spark())
        self._staging(table).sweep(staged.version)
        return Staged(staged.progress, staged.version, staged.version)

    @names_storage_errors
    def maintain(self, staged: Staged) -> Staged:
        """A commit of progress alone, at whose publish Hudi archives commits; none while the clock is behind."""
        return staged if behind(self._folder_of(staged.progress.table).place) else self.mark(staged, staged.progress)

    @names_storage_errors
    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """In the staging folder; what a write left in the table's own folder, Hudi rolls back itself."""
        return self._staging(table).remove_leftovers(age)

    @names_storage_errors
    def inventory(self, table: TableId) -> Inventory:
        """All data files of the table's folder: those of older commits are among them until they are deleted."""
        place = self._folder_of(table).place
        sizes = [file.size() for file in place.listed("*.parquet")]
        return Inventory(len(sizes), 0, sum(sizes), len(writes(place)))

    @names_storage_errors
    def properties(self, table: TableId) -> Mapping[str, str]:
        """The properties of the commit that readers see."""
        published = self._published(table)
        return {} if published is None else published.properties

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The names of the Spark types; UnsupportedTable where Hudi has no such column, or no such name."""
        return hudi_types(self.settings, schema)

    def _resume_point(self, table: TableId, published: Instant | None) -> Staged | None:
        """Where a run continues: at the last commit of staging, if and only if that builds on what readers see.

        StateUnreadable when a file that readers need is gone or damaged; NotOurTable when the metastore has something
        else under its name.
        """
        staging = self._staging(table)
        self._metastore.assert_ours(table)
        if published is None:
            commits = staging.commits()
            if not commits or commits[0].base is not None:  # it built on a table that was dropped
                return None
            return Staged(commits[-1].progress, commits[-1].version, None)
        assert_whole(table, self._folder_of(table).place)
        if commits := staging.commits(published.version):
            return Staged(commits[-1].progress, commits[-1].version, published.version, changed=published.seconds)
        return Staged(published.progress(table), published.version, published.version, changed=published.seconds)

    def _published(self, table: TableId) -> Instant | None:
        """The commit that readers see, or will when the first publish is finished."""
        return self._folder_of(table).published()

    def _files(self, table: TableId, version: int) -> tuple[list[File], list[list[File]]]:
        """The files that have the rows of a commit, and the files of the merges that change them."""
        return self._staging(table).files_at(version, self._published(table), self._folder_of(table).place)

    def _commit(
        self,
        staged: Staged,
        progress: Progress,
        rows: Sequence[str] = (),
        changes: Sequence[str] = (),
        *,
        restarts: bool = False,
        added: int | None = None,
        key: Sequence[str] | None = None,
    ) -> Staged:
        staging = self._staging(progress.table)
        commit = staging.append(staged.version, progress, rows, changes, restarts=restarts, added=added, key=key)
        return Staged(progress, commit.version, staged.published)

    def _replace_rows(self, staged: Staged, schema: TableSchema, progress: Progress, rows: Sequence[bytes]) -> Staged:
        """A commit of staging from which on these files have the rows."""
        names = [name.decode() for name in rows]
        return self._commit(staged, progress, rows=names, restarts=True, key=schema.key)

    def _write(
        self, staged: Staged, folder: TableFolder, properties: Mapping[str, str], spark: "SparkSession | None"
    ) -> bool:
        """Publish by a statement, or without a session by files of ours; False, and nothing is visible, if they cannot.

        Who commits holds a lock meanwhile, which is released when its process ends.
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
                    publication.by_spark(spark, lambda: self.read(table, staged.version, spark))
                elif not publication.by_files():
                    return False
            except Exception as error:
                now = folder.published()
                if now != published and not folder.shows(staged.version):
                    raise published_by_another(table) from error
                if now == published:  # otherwise only the answer was lost
                    raise
            if not folder.shows(staged.version):
                raise stale(table)
            if published is None:
                self._give_name(folder)
            if is_started_over(publication.commits):
                folder.settle(folder.published())
            # readers see it before it is durable; until then staging and the spool stay
            folder.make_durable(began)
            folder.clear_building(spark)
        return True

    def _publication(self, staged: Staged, folder: TableFolder, properties: Mapping[str, str]) -> Publication:
        """What is to be written on what readers see; StaleWriter where that is not what the run has seen.

        StateUnreadable where a file of it, or of staging, is gone or damaged.
        """
        table, staging, published = folder.table, self._staging(folder.table), folder.published()
        if staged.published != (None if published is None else published.version):
            raise published_by_another(table)
        folder.settle(published)  # another run may have done it late, for an older commit, after it lost its lease
        if published is not None:
            assert_whole(table, folder.place)
        way, history = self.settings.way_of_merging, self.settings.history
        commits = staging.between(published, staged.version)
        names, merges = files_of(commits)
        staging.assert_whole([*names, *(name for merge in merges for name in merge)])
        return Publication(table, folder, published, staging.path, commits, way, history, properties)

    def _staging(self, table: TableId) -> StagingFolder:
        return StagingFolder(table, self._folder / file_name(str(table)))

    def _give_name(self, folder: TableFolder) -> None:
        """The last step of a first publish."""
        folder.give_name()

    def _folder_of(self, table: TableId) -> TableFolder:
        return TableFolder(table, files.at(self.settings.folder(table), self.settings.storage), self._ownership)
