"""The parts of `lake.target.Target` that staging answers, for a format without branches.

The format adds the commit that readers see, and the publish. Its publish takes the commits of staging after the one
that readers see, and sweeps them afterwards (`StagingFolder.sweep`).
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lakeingest.core.change import DELETED
from lakeingest.core.file_names import file_name
from lakeingest.core.lift import Lift
from lakeingest.core.origins import Origins
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import names_storage_errors
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.effects import effects_of, rows_in
from lakeingest.lake.staged.rewriting import StagedRewriter, rewriters
from lakeingest.lake.staged.rows import rows_after_commits
from lakeingest.lake.staged.staging import StagingFolder, since_restart
from lakeingest.lake.staged.writer import StagedMerger, StagedRows, StagedWriter
from lakeingest.lake.target import Bounds, Capabilities, Effects, OpenSpark, Staged, Target, Written
from lakeingest.rows import lake_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Visible(Protocol):
    """The commit of the format that readers see."""

    @property
    def version(self) -> int:
        """The commit of staging that it made visible."""

    @property
    def key(self) -> Sequence[str]:
        """The columns of the table's key."""

    @property
    def seconds(self) -> float:
        """The time when it was made, in seconds since 1970."""

    def progress(self, table: TableId) -> Progress:
        """The progress that it carries."""


Seen = TypeVar("Seen", bound=Visible)


class StagedTarget(Target, Generic[Seen]):
    """A target with a staging folder for each table. A commit's rows are in that folder, or in what readers see."""

    capabilities = Capabilities(merges_by="changes")
    added_columns: frozenset[str] = frozenset()  # the format's own columns in the files that readers see

    def __init__(self, staging: File, open_spark: OpenSpark, *, keeps_dropped: bool) -> None:
        self._folder, self._open_spark, self._keeps_dropped = staging, open_spark, keeps_dropped

    @abstractmethod
    def _published(self, table: TableId) -> Seen | None:
        """The commit that readers see, or will see when the first publish is finished."""

    @abstractmethod
    def _visible_files(self, table: TableId, seen: Seen) -> list[File]:
        """The Parquet files that have the rows of that commit."""

    @abstractmethod
    def _visible_rows(self, table: TableId, seen: Seen, spark: "SparkSession") -> "DataFrame":
        """The rows of that commit, with the columns of the copy."""

    @names_storage_errors
    def discard(self, table: TableId) -> None:
        """Drop staging. Raises StaleWriter when another run has published or dropped it."""
        if self._published(table) is not None:
            raise stale(table)
        self._staging(table).drop()

    @names_storage_errors
    def writer(self, table: TableId) -> StagedWriter:
        """A writer for the executors."""
        staging = self._staging(table)
        staging.last()  # raises StaleWriter where staging was dropped
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
    ) -> StagedMerger:
        """A merger for the executors."""
        return StagedMerger(self._staging(staged.progress.table))

    @names_storage_errors
    def commit_merge(
        self, staged: Staged, merged: Sequence[Written], after: Callable[[Effects], Progress]
    ) -> tuple[Staged, Effects]:
        """Make one commit of staging with the changes. `read` applies them from now on; the publish merges them."""
        table, names = staged.progress.table, [written.decode() for written in merged if written]
        staging, effects = self._staging(table), Effects(0, 0, 0)
        if names:
            rows, merges = self._files(table, staged.version)
            # an empty table has no files
            columns = files.parquet_metadata(rows[0]).schema.names if rows else self.read(table, staged.version).columns
            changes = [staging.path / name for name in names]
            effects = effects_of(changes, staging.last().key, rows, merges, keeps_deleted=DELETED in columns)
        added = effects.inserted - effects.deleted
        return self._commit(staged, after(effects), changes=names, added=added), effects

    @names_storage_errors
    def readers(self, staged: Staged, names: Sequence[str], bounds: Sequence[Bounds | None]) -> list[list[StagedRows]]:
        """The same reader for all bounds, of files into which Spark has written the columns."""
        table = staged.progress.table
        rows, folder = self.read(table, staged.version), self._staging(table)
        return [[StagedRows.written(rows, names, bounds, folder.new_compared_folder())]] * len(bounds)

    @names_storage_errors
    def mark(self, staged: Staged, progress: Progress) -> Staged:
        """Make a commit of staging with progress alone."""
        return self._commit(staged, progress)

    @names_storage_errors
    def earlier(self, staged: Staged) -> list[Staged]:
        """The commits in the staging folder."""
        table = staged.progress.table
        commits = self._staging(table).between(_version(self._published(table)), staged.version)
        older = reversed(commits[:-1])
        return [replace(staged, progress=commit.progress, version=commit.version) for commit in older]

    @names_storage_errors
    def go_back(self, staged: Staged, version: int, progress: Progress) -> Staged:
        """Remove the later commits, and make a new one.

        An interruption leaves one of the removed commits as the last.
        """
        self._staging(progress.table).remove_commits_after(staged.version, version)
        return self._commit(replace(staged, version=version), progress)

    @names_storage_errors
    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:  # noqa: ARG002
        """Make a commit of staging with one file without rows. From it on, only staging has rows."""
        empty = self.writer(progress.table).write(lake_schema(schema).empty_table())
        return self._replace_rows(staged, schema, progress, [empty])

    @names_storage_errors
    def rewriters(self, staged: Staged, lift: Lift) -> list[StagedRewriter]:
        """Rewriters for the executors: all rows are written anew."""
        self.types(lift.after)
        staging, rows = self._staging(lift.after.table), self._files(lift.after.table, staged.version)
        return rewriters(staging, lift, *rows, self.added_columns, keeps_dropped=self._keeps_dropped)

    @names_storage_errors
    def lift(self, staged: Staged, lift: Lift, progress: Progress, rewritten: Sequence[Written]) -> Staged:
        """Make a commit of staging. From it on, only staging has rows."""
        return self._replace_rows(staged, lift.after, progress, rewritten)

    def read(self, table: TableId, version: int) -> "DataFrame":
        """The rows of one commit: the rows that readers see, or those of the waves, with all later changes applied.

        The rows are those of the waves before the first publish, and where the copy was started over.
        """
        spark = self._open_spark()  # outside of the block: a failure to start Spark is no failure of the storage
        with self.storage_errors():
            return self._read(table, version, spark)

    def _read(self, table: TableId, version: int, spark: "SparkSession") -> "DataFrame":
        seen = self._published(table)
        if seen is None:
            visible = None
        elif seen.version == version:
            return self._visible_rows(table, seen, spark)
        else:
            visible = partial(self._visible_rows, table, seen, spark)
        staging = self._staging(table)
        return rows_after_commits(visible, staging.path, staging.between(_version(seen), version), spark)

    @names_storage_errors
    def count(self, table: TableId, version: int, expected: int | None = None) -> int | None:  # noqa: ARG002
        """The rows of files, plus those that merges on staging add; None if an earlier version made such a merge."""
        published = _version(self._published(table))
        commits = [] if published == version else self._staging(table).between(published, version)
        added = [commit.added for commit in since_restart(commits) if commit.changes]
        return None if None in added else rows_in(self._files(table, version)[0]) + sum(filter(None, added))

    def _staged(self, table: TableId, seen: Seen | None) -> Staged | None:
        """The state from which a run continues: the last commit of staging, if that builds on what readers see.

        Otherwise it is the commit that readers see; None where there is none.
        """
        staging = self._staging(table)
        if seen is None:
            commits = staging.commits()
            if not commits or commits[0].base is not None:  # staging built on a table that was dropped since
                return None
            return Staged(commits[-1].progress, commits[-1].version, None)
        if commits := staging.commits(seen.version):
            return Staged(commits[-1].progress, commits[-1].version, seen.version, changed=seen.seconds)
        return Staged(seen.progress(table), seen.version, seen.version, changed=seen.seconds)

    def _resume(self, table: TableId, seen: Seen | None, staged: Staged | None) -> None:
        """Drop staging that does not build on what readers see, and begin it again from there."""
        staging = self._staging(table)
        if staged is not None and staging.commits(staged.version):
            return
        if staging.path.is_there():
            staging.drop()
        if staged is not None and seen is not None:
            staging.resume(staged.progress, seen.key, staged.version)

    def _files(self, table: TableId, version: int) -> tuple[list[File], list[list[File]]]:
        """The files with the rows of a commit, and the files of the merges that change these rows."""
        seen = self._published(table)

        def visible() -> list[File]:
            return [] if seen is None else self._visible_files(table, seen)

        return self._staging(table).files_at(version, _version(seen), visible)

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

    def _replace_rows(self, staged: Staged, schema: TableSchema, progress: Progress, rows: Sequence[Written]) -> Staged:
        """Make a commit of staging after which these files have all rows."""
        names = [name.decode() for name in rows]
        return self._commit(staged, progress, rows=names, restarts=True, key=schema.key)

    def _staging(self, table: TableId) -> StagingFolder:
        return StagingFolder(table, self._folder / file_name(str(table)))


def _version(seen: Visible | None) -> int | None:
    return None if seen is None else seen.version
