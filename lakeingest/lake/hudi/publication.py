"""Publishes a Hudi table. lakeingest itself writes the commit if it can. If it cannot, Hudi writes the commit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.config import History
from lakeingest.config.target import MergeName
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import SchemaChanged
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.held import Auditing
from lakeingest.lake.hudi.all_rows import AllRows
from lakeingest.lake.hudi.commit import await_clock, clock_lag
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.options import buckets_for, most_commits, publish_properties, write_options
from lakeingest.lake.hudi.partitions import PARTITION, Partitions, by_partition
from lakeingest.lake.hudi.row_delta import RowDelta
from lakeingest.lake.hudi.statement import (
    GONE,
    changes_between,
    changes_in_partitions,
    empty_changes,
    insert_into,
    merge_folder,
    rows_in_partitions_at,
    session_settings,
    with_dropped_columns,
    with_partition_column,
)
from lakeingest.lake.hudi.timeline import Instant, commits_to_retain, writes
from lakeingest.lake.staged.changes import read_rows
from lakeingest.lake.staged.effects import rows_in
from lakeingest.lake.staged.rows import last_changes
from lakeingest.lake.staged.staging import StagingCommit, files_of, is_started_over, since_restart

_SAMPLED_FILES = 64  # of about so many files of rows, partitions are counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Publication:
    """A publish: the `commits` of staging that readers do not see yet, and what the publish needs to know.

    `published` is the commit that readers see; None before the first publish. `staging` is the folder with the files of
    `commits`. `properties` are those that only this publish has; the commit also gets the ones that every publish has.
    `audit` is called before readers see files that lakeingest has written.
    """

    table: TableId
    folder: TableFolder
    published: Instant | None
    staging: File
    commits: Sequence[StagingCommit]
    way_of_merging: MergeName
    history: History
    properties: Mapping[str, str]
    audit: Auditing

    def publish_by_files(self) -> bool:
        """Publish without Spark: lakeingest writes the data files and the commit.

        Returns False, and readers see no difference, if only `publish_by_spark` can publish.
        """
        if self._replaces_all_files:
            return self._write_all_files()
        if self.published is None or self.way_of_merging == "statement":
            return False  # the user wants statements: all other first publishes have returned above
        path = self.folder.current
        _, merges = self._rows_and_merges
        added = self._added_rows
        if added is None or not merges:
            return False  # the number of rows afterwards cannot be checked, or the publish has only new properties
        is_archiving_due = len(writes(path)) >= most_commits(self._retained)
        if is_archiving_due and not clock_lag(path):
            return False  # only Hudi can archive. While the clock is behind, Hudi cannot write: then it archives later
        last = self.commits[-1]
        buckets = int(self._buckets)
        delta = RowDelta(
            self.table,
            path,
            self.published,
            merges,
            key=last.key,
            buckets=buckets,
            added=added,
            fields=self._fields,
        )
        return delta.publish(self._all_properties, self.audit)

    def publish_by_spark(self, spark: "SparkSession", rows: "Callable[[], DataFrame]") -> None:
        """Publish with Spark: tasks write all files, or Hudi writes the changes. `rows` returns the rows to publish.

        If Hudi writes, it makes the first commit by a bulk insert, and each later one by a MERGE INTO. The statement
        merges the changes of `commits`. If the copy was started over, the statement upserts all rows, and deletes the
        rows whose key is only in the old copy.

        Raises SchemaChanged if a copy that was started over has other columns or another key: the statement cannot
        change them; ClockBehind as `await_clock`.
        """
        if self._replaces_all_files and self._write_all_files(spark):
            return
        last = self.commits[-1]
        path = self.folder.current
        options = write_options(self._buckets, self._retained, self._all_properties)
        if self.published is None:
            self.folder.clear_building(spark)  # the tasks may have left files
            insert_into(self.folder.building, self.table.name, rows(), last.key, options, self._fields)
            return
        await_clock(self.table, path)
        fields, old_in_partitions = self._fields, rows_in_partitions_at(path, self.published.time, spark)
        old_rows = old_in_partitions.drop(PARTITION)
        _, merges = files_of(self.commits)
        staged_changes = last_changes(self.staging, merges, last.key, spark)
        replaces_all_rows = is_started_over(self.commits)  # if so, `_write_all_files` has returned False
        if replaces_all_rows:
            new_rows = rows()
            if old_rows.columns != new_rows.columns or self.published.key != list(last.key):
                raise SchemaChanged(
                    f"{self.table}: its copy cannot get other columns or another key, because it is not as lakeingest"
                    f" made it; remove {path} to copy the table again"
                )
            # for Hudi, a row that comes to another partition is another row
            by = [*last.key, PARTITION] if fields else last.key
            changes = changes_between(old_in_partitions, with_partition_column(new_rows, fields), by)
        elif staged_changes is None:  # the publish has only new properties
            changes = empty_changes(old_in_partitions)
        elif fields:
            changes = changes_in_partitions(old_in_partitions, staged_changes, last.key, fields)
        else:
            changes = staged_changes
        deleted_column = GONE if GONE in changes.columns else DELETED
        with session_settings(spark, options):
            merge_folder(path, with_dropped_columns(changes, old_in_partitions), last.key, spark, deleted_column)

    @property
    def _replaces_all_files(self) -> bool:
        """Whether lakeingest tries to write all files of the table.

        It does so if the copy was started over. It also does so for a first publish, unless the user wants statements.
        """
        return is_started_over(self.commits) or (self.published is None and self.way_of_merging != "statement")

    def _write_all_files(self, spark: "SparkSession | None" = None) -> bool:
        """Publish by `AllRows`, with tasks of `spark` or, if it is None, in this process.

        Returns False if `AllRows.publish` returns False, or if the number of rows to write is not known.
        """
        rows, merges = self._rows_and_merges
        added = self._added_rows
        if added is None:
            return False
        path = self.folder.building if self.published is None else self.folder.current
        last = self.commits[-1]
        count = rows_in(rows) + added
        buckets = int(self._buckets)
        all_rows = AllRows(
            self.table,
            path,
            self.published,
            rows,
            merges,
            key=last.key,
            buckets=buckets,
            count=count,
            fields=self._fields,
        )
        return all_rows.publish(self._all_properties, self.audit, spark)

    @property
    def _rows_and_merges(self) -> tuple[list[File], list[list[File]]]:
        """The files of rows of `commits`, and the files of changes of each merge."""
        names, merges = files_of(self.commits)
        return [self.staging / name for name in names], [[self.staging / name for name in merge] for merge in merges]

    @property
    def _added_rows(self) -> int | None:
        """The number of rows that the changes add; None if an earlier version of lakeingest did not count them."""
        added = [commit.added for commit in since_restart(self.commits) if commit.changes]
        return None if None in added else sum(filter(None, added))  # `filter` leaves out only zeros

    @property
    def _retained(self) -> int:
        """The number of commits that Hudi retains in the timeline."""
        return commits_to_retain(self.folder.current, self.history)

    @property
    def _buckets(self) -> str:
        """The number of buckets, as a text. A published table keeps its number; a new table gets one by its size."""
        if self.published is not None:
            return str(self.published.buckets)
        rows, _ = self._rows_and_merges
        return buckets_for(files.total(rows), self._count_partitions(rows))

    @property
    def _fields(self) -> tuple[PartitionField, ...]:
        """The partitions of the copy, by the names of its columns as of the last commit."""
        return Partitions.of(self.commits[-1].partitions).fields

    def _count_partitions(self, rows: Sequence[File]) -> int:
        """The number of partitions that the rows have, as far as some of their files tell; at least 1."""
        if not self._fields:
            return 1
        names = list(dict.fromkeys(field.column for field in self._fields))
        sample = rows[:: max(1, len(rows) // _SAMPLED_FILES)]
        found = {name for file in sample for name in by_partition(read_rows(file, names), self._fields)}
        return max(1, len(found))

    @property
    def _all_properties(self) -> dict[str, str]:
        """The properties of the commit: `properties`, the properties of each publish, and the owner of the copy."""
        # {}: whatever the owner is, the result has our property
        owner_mark = {} if self.folder.ownership is None else self.folder.ownership.marks({})
        return publish_properties(
            self.table, self.commits[-1], self.published, self._buckets, {**self.properties, **owner_mark}
        )
