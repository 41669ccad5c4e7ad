"""Publishes a Hudi table: lakeingest itself writes the commit where it can, else Hudi writes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.config import History
from lakeingest.config.target import MergeName
from lakeingest.core.change import DELETED
from lakeingest.core.schema import TableId
from lakeingest.errors import SchemaChanged
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.all_rows import AllRows
from lakeingest.lake.hudi.commit import await_clock, behind
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.options import buckets_for, marks_of, most_commits, write_options
from lakeingest.lake.hudi.row_delta import RowDelta
from lakeingest.lake.hudi.statement import (
    GONE,
    completed,
    configured,
    insert_into,
    merge_folder,
    no_changes,
    replacing,
    rows_at,
)
from lakeingest.lake.hudi.timeline import Instant, retained, writes
from lakeingest.lake.staged.effects import rows_in
from lakeingest.lake.staged.rows import last_changes
from lakeingest.lake.staged.staging import StagingCommit, files_of, is_started_over, since_restart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Publication:
    """The commits of staging after `published`, which readers see. `staging` is the folder of their files."""

    table: TableId
    folder: TableFolder
    published: Instant | None
    staging: File
    commits: Sequence[StagingCommit]
    way: MergeName
    history: History
    properties: Mapping[str, str]

    def by_files(self) -> bool:
        """Write the table's files, without Spark.

        Returns False where Hudi must or shall do it; readers then see nothing. Hudi does it for a commit without
        changes, and when it is time to archive. Archiving waits while the clock is behind the timeline.
        """
        if self._has_all_rows:
            return self._with_all_rows()
        if self.published is None or self.way == "statement":
            return False
        place, (_, merges), added = self.folder.place, self._files, self._added
        if added is None or not merges:
            return False
        is_full = len(writes(place)) >= most_commits(self._retained)
        if is_full and not behind(place):
            return False
        key, buckets = self.commits[-1].key, int(self._buckets)
        return RowDelta(self.table, place, self.published, merges, key, buckets, added).publish(self._marks)

    def by_spark(self, spark: "SparkSession", rows: "Callable[[], DataFrame]") -> None:
        """Write all files of the table in tasks, or let Hudi write: a bulk insert at first, then a MERGE INTO.

        The statement merges the changes. If the copy was started over, these are all `rows`, and the keys that readers
        see and the copy does not have.
        """
        if self._has_all_rows and self._with_all_rows(spark):
            return
        last, place = self.commits[-1], self.folder.place
        options = write_options(self._buckets, self._retained, self._marks)
        if self.published is None:
            self.folder.clear_building(spark)  # the tasks may have left files
            insert_into(self.folder.building, self.table.name, rows(), last.key, options)
            return
        await_clock(self.table, place)
        old_rows = rows_at(place, self.published.time, spark)
        deleted, changes = DELETED, last_changes(self.staging, files_of(self.commits)[1], last.key, spark)
        if is_started_over(self.commits):
            new_rows = rows()
            if old_rows.columns != new_rows.columns or self.published.key != list(last.key):
                raise SchemaChanged(
                    f"{self.table}: its copy cannot get other columns or another key, because it is not as lakeingest"
                    f" made it; remove {place} to copy the table again"
                )
            deleted, changes = GONE, replacing(old_rows, new_rows, last.key)
        elif changes is None:  # the commit is only for its progress
            changes = no_changes(old_rows)
        with configured(spark, options):
            merge_folder(place, completed(changes, old_rows), last.key, spark, deleted)

    @property
    def _has_all_rows(self) -> bool:
        """Whether all files of the table are to be written, and not by a statement."""
        return is_started_over(self.commits) or (self.published is None and self.way != "statement")

    def _with_all_rows(self, spark: "SparkSession | None" = None) -> bool:
        """Write all files of the table. False as `AllRows.publish`."""
        (rows, merges), added = self._files, self._added
        if added is None:
            return False
        place = self.folder.building if self.published is None else self.folder.place
        key, buckets, count = self.commits[-1].key, int(self._buckets), rows_in(rows) + added
        all_rows = AllRows(self.table, place, self.published, rows, merges, key, buckets, count)
        return all_rows.publish(self._marks, spark)

    @property
    def _files(self) -> tuple[list[File], list[list[File]]]:
        """The files of rows, and the files of the changes of each merge."""
        names, merges = files_of(self.commits)
        return [self.staging / name for name in names], [[self.staging / name for name in merge] for merge in merges]

    @property
    def _added(self) -> int | None:
        """The number of rows that the changes add; None if a commit of an earlier version did not count them."""
        added = [commit.added for commit in since_restart(self.commits) if commit.changes]
        return None if None in added else sum(filter(None, added))

    @property
    def _retained(self) -> int:
        return retained(self.folder.place, self.history)

    @property
    def _buckets(self) -> str:
        if self.published is not None:
            return str(self.published.buckets)
        return buckets_for(files.total(self.staging / name for name in files_of(self.commits)[0]))

    @property
    def _marks(self) -> dict[str, str]:
        owner = {} if self.folder.ownership is None else self.folder.ownership.marks({})
        return marks_of(self.table, self.commits[-1], self.published, self._buckets, {**self.properties, **owner})
