"""The methods of `lake.target.Target` that are the same for all formats without branches: those about staging.

A subclass for a format adds the commit that readers see, and the publish. A publish makes the commits of staging
visible that readers do not see yet, and then sweeps staging (`StagingFolder.sweep`).
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.file_names import file_name
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import names_storage_errors
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.effects import effects_of, rows_in
from lakeingest.lake.staged.rewriting import StagedRewriter, rewriters
from lakeingest.lake.staged.rows import rows_after_commits
from lakeingest.lake.staged.staging import Named, StagingFolder, since_restart
from lakeingest.lake.staged.writer import StagedMerger, StagedRows, StagedWriter
from lakeingest.lake.target import Bounds, Capabilities, Effects, OpenSpark, Staged, Target, Written
from lakeingest.rows import lake_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PublishedCommit(Protocol):
    """The format's commit that readers see."""

    @property
    def version(self) -> int:
        """The version of the commit of staging that this commit made visible."""

    @property
    def key(self) -> Sequence[str]:
        """The columns of the table's key."""

    @property
    def partitions(self) -> Named:
        """The partitions of the copy."""

    @property
    def seconds(self) -> float:
        """The time of the commit, in seconds since 1970."""

    def progress(self, table: TableId) -> Progress:
        """The progress that the commit carries."""


Published = TypeVar("Published", bound=PublishedCommit)


class StagedTarget(Target, Generic[Published]):
    """A target with a staging folder for each table. A staged commit has rows in this folder and in published files.

    A commit of staging can restart (`StagingCommit.restarts`): such a commit removes all earlier rows.
    """

    capabilities = Capabilities(merges_by="changes")
    joint = None  # no format without branches has a commit of several tables
    added_columns: frozenset[str] = frozenset()  # the format's own columns in the files that readers see

    def __init__(self, staging: File, open_spark: OpenSpark, *, keeps_dropped: bool) -> None:
        self._folder, self._open_spark, self._keeps_dropped = staging, open_spark, keeps_dropped

    @abstractmethod
    def _published(self, table: TableId) -> Published | None:
        """The commit that readers see or, after an interrupted first publish, will see; None: nothing is published."""

    @abstractmethod
    def _visible_files(self, table: TableId, published: Published) -> list[File]:
        """The Parquet files with the rows of the published commit."""

    @abstractmethod
    def _visible_rows(self, table: TableId, published: Published, spark: "SparkSession") -> "DataFrame":
        """The rows of the published commit, with the columns of the copy."""

    @names_storage_errors
    def discard(self, table: TableId) -> None:
        """Drop the staging of an unpublished table. Raises StaleWriter if another run has published or dropped it."""
        if self._published(table) is not None:
            raise stale(table)
        self._staging(table).drop()

    @names_storage_errors
    def writer(self, table: TableId) -> StagedWriter:
        """A writer for the executors."""
        staging = self._staging(table)
        staging.last()  # raises StaleWriter if staging was dropped
        return StagedWriter(staging)

    @names_storage_errors
    def commit_wave(self, staged: Staged, files: Sequence[Written], progress: Progress) -> Staged:
        """Make one commit of staging with a wave's files and its progress."""
        return self._commit(staged, progress, rows=[name.decode() for name in files])

    @names_storage_errors
    def merger(
        self,
        staged: Staged,
        key: Sequence[str],  # noqa: ARG002 - the publish finds the rows that are replaced
        bounds: Bounds | None,  # noqa: ARG002
        flag: str = "",  # noqa: ARG002
    ) -> StagedMerger:
        """A merger for the executors."""
        return StagedMerger(self._staging(staged.progress.table))

    @names_storage_errors
    def commit_merge(
        self, staged: Staged, merged: Sequence[Written], progress_of: Callable[[Effects], Progress]
    ) -> tuple[Staged, Effects]:
        """Make one commit of staging that names the files of changes. The publish merges the changes into the table.

        The effects are 0 if no merger has written a file.
        """
        table = staged.progress.table
        staging = self._staging(table)
        # the results of `StagedMerger.replace` are empty, because it writes no file
        names = [written.decode() for written in merged if written]
        effects = Effects(0, 0, 0)
        if names:
            rows, merges = self._files(table, staged.version)
            # an empty published table has no files, so its columns are found only by a read
            columns = files.parquet_metadata(rows[0]).schema.names if rows else self.read(table, staged.version).columns
            changes = [staging.path / name for name in names]
            effects = effects_of(changes, staging.last().key, rows, merges, keeps_deleted=DELETED in columns)
        added = effects.inserted - effects.deleted
        return self._commit(staged, progress_of(effects), changes=names, added=added), effects

    @names_storage_errors
    def readers(self, staged: Staged, names: Sequence[str], bounds: Sequence[Bounds | None]) -> list[list[StagedRows]]:
        """One reader, the same for all bounds. Spark writes the columns to files now; the reader reads these files."""
        table = staged.progress.table
        rows, folder = self.read(table, staged.version), self._staging(table)
        reader = StagedRows.write_columns(rows, names, bounds, folder.new_compared_folder())
        return [[reader]] * len(bounds)

    @names_storage_errors
    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """Make a commit of staging with progress alone."""
        return self._commit(staged, progress)

    @names_storage_errors
    def earlier(self, staged: Staged) -> list[Staged]:
        """The commits of staging after the published commit and before `staged`, the newest first."""
        table = staged.progress.table
        commits = self._staging(table).between(_version(self._published(table)), staged.version)
        older = reversed(commits[:-1])  # the last one is `staged`
        return [replace(staged, progress=commit.progress, version=commit.version) for commit in older]

    @names_storage_errors
    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Remove the commits after `version`, and make a new commit on this version.

        An interrupted call can leave the older of these commits, or remove all of them without making the new commit.
        Raises StaleWriter if `staged` is no longer the last commit.
        """
        self._staging(progress.table).remove_commits_after(version, last=staged.version)
        return self._commit(replace(staged, version=version), progress)

    @names_storage_errors
    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:
        """Make a commit of staging that restarts. Its one file has the new columns and no rows."""
        partitions = self._partitions_after(schema, known)
        empty = self.writer(progress.table).write(lake_schema(schema).empty_table())
        return self._replace_rows(staged, schema, progress, [empty], partitions)

    @names_storage_errors
    def rewriters(self, staged: Staged, lift: Lift) -> list[StagedRewriter]:
        """Rewriters for the executors. Together they write all rows of the table anew."""
        self.types(lift.after)  # raises UnsupportedTable before anything is written
        self._partitions_after(lift.after, origins_of(lift))  # raises PartitionsDiffer
        staging = self._staging(lift.after.table)
        rows, merges = self._files(lift.after.table, staged.version)
        return rewriters(staging, lift, rows, merges, self.added_columns, keeps_dropped=self._keeps_dropped)

    @names_storage_errors
    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[Written]) -> Staged:
        """Make a commit of staging that restarts: the rewritten rows replace all rows."""
        partitions = self._partitions_after(lift.after, origins_of(lift))
        return self._replace_rows(staged, lift.after, progress, rewritten, partitions)

    def read(self, table: TableId, version: int) -> "DataFrame":
        """The rows of the published commit, or of a commit of staging. Raises StaleWriter if `version` is neither."""
        spark = self._open_spark()  # before the block: a failure to start Spark is no failure of the storage
        with self.storage_errors():
            return self._read(table, version, spark)

    def _read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        """`read` with a session that is already open."""
        published = self._published(table)
        if published is not None and published.version == version:
            return self._visible_rows(table, published, spark)
        # a function, because the rows that readers see are not needed if a commit restarts
        visible = None if published is None else partial(self._visible_rows, table, published, spark)
        staging = self._staging(table)
        return rows_after_commits(visible, staging.path, staging.between(_version(published), version), spark)

    @names_storage_errors
    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:  # noqa: ARG002
        """The number of rows in the commit's files of rows, plus the number of rows that merges on staging have added.

        Returns None if an earlier version of lakeingest, which did not count the rows, made one of these merges.
        """
        published_version = _version(self._published(table))
        commits = [] if published_version == version else self._staging(table).between(published_version, version)
        merges = [commit for commit in since_restart(commits) if commit.changes]
        added_by_merges = 0
        for merge in merges:
            if merge.added is None:
                return None
            added_by_merges += merge.added
        rows, _ = self._files(table, version)
        return rows_in(rows) + added_by_merges

    def _staged(self, table: TableId, published: Published | None) -> Staged | None:
        """The commit from which a run continues: the first of these that exists; None if none exists.

        1. The last commit of staging. It counts only if staging builds on the `published` commit. If nothing is
           published, it counts only if the staging is that of a new table.
        2. The `published` commit.
        """
        staging = self._staging(table)
        if published is None:
            commits = staging.commits()
            is_of_new_table = bool(commits) and commits[0].base is None
            if not is_of_new_table:  # no staging, or staging of a published table that was dropped
                return None
            self._assert_form(table, commits[-1].partitions)
            return Staged(commits[-1].progress, commits[-1].version, published=None)
        commits = staging.commits(published.version)
        self._assert_form(table, commits[-1].partitions if commits else published.partitions)
        if commits:
            return Staged(commits[-1].progress, commits[-1].version, published.version, changed=published.seconds)
        return Staged(published.progress(table), published.version, published.version, changed=published.seconds)

    def _resume(self, table: TableId, published: Published | None, staged: Staged | None) -> None:
        """Do nothing if staging has the commit `staged`. Otherwise drop staging, and begin it again at this commit.

        In the second case, `staged` is the published commit, or None if nothing is published. With None, staging is
        only dropped.
        """
        staging = self._staging(table)
        if staged is not None and staging.commits(staged.version):
            return
        if staging.path.is_there():
            staging.drop()
        if staged is not None and published is not None:
            staging.begin_at(staged.version, staged.progress, published.key, published.partitions)

    def _files(self, table: TableId, version: int) -> tuple[list[File], list[list[File]]]:
        """The files with the rows of the commit `version`, and the files of each merge that changes these rows.

        Raises StaleWriter as `StagingFolder.between`.
        """
        published = self._published(table)

        def visible() -> list[File]:
            return [] if published is None else self._visible_files(table, published)

        return self._staging(table).files_at(version, _version(published), visible)

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
        partitions: Named | None = None,
    ) -> Staged:
        """Make a commit of staging on `staged`. The arguments after `staged` are as in `StagingFolder.append`."""
        commit = self._staging(progress.table).append(
            staged.version,
            progress,
            rows,
            changes,
            restarts=restarts,
            added=added,
            key=key,
            partitions=partitions,
        )
        return Staged(progress, commit.version, staged.published)

    def _replace_rows(
        self, staged: Staged, schema: TableSchema, progress: Progress, rows: Sequence[Written], partitions: Named
    ) -> Staged:
        """Make a commit of staging that restarts: the files `rows` have all rows of the table."""
        names = [name.decode() for name in rows]
        return self._commit(staged, progress, rows=names, restarts=True, key=schema.key, partitions=partitions)

    def _partitions_after(self, schema: TableSchema, origins: Origins | None) -> Named:  # noqa: ARG002
        """The partitions of the copy when all its rows are written anew with the columns of `schema`. Here, none.

        `origins`: for each of these columns its name in the present copy, or None for a new column. Without `origins`,
        columns keep their names. Raises PartitionsDiffer if the copy cannot have its partitions any more.
        """
        return ()

    def _assert_form(self, table: TableId, partitions: Named) -> None:
        """Raises PartitionsDiffer unless pipeline.yml asks for the partitions of the copy. Here, nothing is checked."""

    def _staging(self, table: TableId) -> StagingFolder:
        return StagingFolder(table, self._folder / file_name(str(table)))


def origins_of(lift: Lift) -> Origins:
    """For each column after a lift its name before; None: the column is new."""
    return dict(zip(lift.after.names, lift.origins, strict=True))


def _version(published: PublishedCommit | None) -> int | None:
    """The version of the published commit; None if nothing is published."""
    return None if published is None else published.version
