"""Publishes all rows of a table: one commit writes a file for each bucket that has rows.

The first publish of a table is such a commit, with the same result as Hudi's own bulk insert. A later publish of this
kind replaces all rows of a copy that was read again or lifted to other columns. This process writes the files of a
small table, and tasks of Spark write those of a large table. The buckets are divided into ranges, which are called
passes: a thread or a task has the rows of one pass in memory.
"""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.finishing import finishing
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.hudi.avro_schema import avro_schema
from lakeingest.lake.hudi.base_files import RECORD, FileGroup, Place, WrittenFile, groups_of, meta_fields
from lakeingest.lake.hudi.bucket_tasks import write_in_tasks
from lakeingest.lake.hudi.bucket_writer import BucketWriter
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.file_groups import data_files, visible_files
from lakeingest.lake.hudi.held import BucketKeys, held_by
from lakeingest.lake.hudi.options import RECORD_KEY_COLUMNS
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.pass_files import pass_files
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.record_texts import record_key_for, record_texts
from lakeingest.lake.hudi.table_form import Unfit, make_table, record_key_of
from lakeingest.lake.hudi.timeline import PREFIX, Instant
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.changes import groups_of_size, last_changes, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 512 << 20  # if the files of staging are larger in total, tasks of Spark write the table
# About so many bytes of the files of staging are rows of one pass. A thread of this process has the rows of a pass in
# memory several times. With Spark, each pass is one of Spark's partitions, and these must not be too many
_PASS_BYTES, _PASS_BYTES_OF_TASKS = 8 << 20, 32 << 20
# If the files of staging are larger in total, the rows of passes are compressed on the disk of this machine. Without
# compression, which would take a tenth of the publish, they have about four times as many bytes
_PLAIN_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class AllRows:
    """All rows of a table: the rows of some files of staging, with the changes of some merges applied.

    `folder` is the table's folder, and `published` the commit that readers see; None if the folder has no table yet.
    `rows` are the files of rows. `merges` are the files of changes of each merge, the oldest merge first. `buckets` is
    the table's number of buckets, and `count` the number of rows that the table must have afterwards. `fields` are the
    partitions.
    """

    table: TableId
    folder: File
    published: Instant | None
    rows: Sequence[File]
    merges: Sequence[Sequence[File]]
    key: tuple[str, ...]
    buckets: int
    count: int
    fields: tuple[PartitionField, ...] = ()

    def publish(
        self, properties: Mapping[str, str], audit: Auditing = unaudited, spark: "SparkSession | None" = None
    ) -> bool:
        """Commit the rows with these properties, once `audit` has seen the files.

        Tasks of `spark` write the files; if `spark` is None, this process writes them.

        Returns False, and readers see no difference, if the rows are too many for this process, if only Hudi can write
        them, or if the number of written rows is not `count`. Raises StaleWriter if another run has rolled back the
        commit.
        """
        if spark is None and files.total(chain(self.rows, *self.merges)) > MOST_BYTES:
            return False
        staged_columns = pa.unify_schemas([_columns(file) for file in self.rows])
        if self.published is not None:
            roll_back(self.folder)  # first, because `record_key_of` raises Unfit if a write is incomplete
        try:
            # Step 1: find out the record key, the file groups and the columns of the files
            record_key, groups = self._record_key(staged_columns), self._groups()
            has_own_key = RECORD_KEY in record_key  # a column that the files of staging do not have
            columns = staged_columns.append(pa.field(RECORD_KEY, pa.string())) if has_own_key else staged_columns
            columns = columns.append(pa.field(PARTITION, pa.string())) if self.fields else columns
            schema = pa.schema([*meta_fields(), *columns])
            # Step 2: write the files
            if self.published is None:
                make_table(self.folder, self.table.name, record_key, divided=bool(self.fields))
            commit = Commit.begin(self.folder)
            writer = BucketWriter(commit, groups, self.buckets, schema, self.key, record_key, self.fields)
            if spark is None:
                written = self._write(writer, staged_columns)
            else:
                written = write_in_tasks(
                    spark,
                    writer,
                    groups_of_size(self.rows, _PASS_BYTES_OF_TASKS),
                    self.merges,
                    self._passes(_PASS_BYTES_OF_TASKS),
                )
        except Unfit:  # of step 1 or 2: only Hudi can write the table or these rows
            return False
        if sum(file.rows for file in written) != self.count:
            return False  # the commit stays incomplete, so that readers do not see it
        # Step 3: delete files that tasks of a killed run wrote late: after the commit, readers would see them
        group_names = {group.name for group in (*groups.values(), *(file.group for file in written))}
        present = data_files(self.folder)
        if late_files := [file for file in present if file.name.partition("_")[0] not in group_names]:
            files.delete_all(late_files)
        # Step 4: audit and complete the commit. It names its record key, because the table may have had another one
        record_key_property = {f"{PREFIX}{RECORD_KEY_COLUMNS}": json.dumps(record_key)}
        metadata_properties = {SCHEMA: avro_schema(self.table.name, columns), **properties, **record_key_property}
        audit(held_by(self.folder, written, BucketKeys(self.key, record_key, self.buckets)))
        operation = "BULK_INSERT" if self.published is None else "UPSERT"
        if not commit.complete(operation, [file.stat for file in written], metadata_properties):
            raise stale(self.table)
        return True

    def _record_key(self, columns: pa.Schema) -> tuple[str, ...]:
        """The columns of the record key. A published table that has RECORD_KEY keeps RECORD_KEY.

        Every other table gets the columns that a new table would get. Raises Unfit if the published table does not have
        the form to which lakeingest can write.
        """
        if self.published is not None and record_key_of(self.folder, divided=bool(self.fields)) == (RECORD_KEY,):
            return (RECORD_KEY,)
        return record_key_for(columns, self.key)

    def _groups(self) -> dict[Place, FileGroup]:
        """The file groups of the table. Without partitions, each bucket that has no group gets a new one.

        Raises Unfit as `groups_of`.
        """
        present_files = [] if self.published is None else visible_files(self.folder, self.published.time)
        groups = groups_of(present_files, self.folder, self.buckets)
        if self.fields:
            return groups
        return {("", bucket): groups.get(("", bucket)) or FileGroup.new(bucket) for bucket in range(self.buckets)}

    def _write(self, writer: BucketWriter, staged: pa.Schema) -> list[WrittenFile]:
        """Write the files of all buckets in this process, in threads. Each thread has a file or a pass in memory.

        `staged` has the columns of the files of staging.
        """
        changes = last_changes(self.merges, self.key)
        changes_by_bucket = {} if changes is None else writer.rows_by_bucket(changes)
        passes = self._passes(_PASS_BYTES)

        def divide(numbered: tuple[int, File]) -> None:
            """Write the rows of a file of staging in the order of their buckets."""
            number, file = numbered
            rows = read_rows(file, in_threads=False)
            texts = record_texts(rows, self.key, writer.record_key)
            divided.add(number, rows.append_column(RECORD, texts.keys), buckets_of(texts.parts, self.buckets))

        def write_pass(number: int) -> list[WrittenFile]:
            """Write the files of the pass with this number."""
            return finishing_writer.write(passes[number], divided.rows_by_bucket(number), changes_by_bucket)

        columns = staged.append(pa.field(RECORD, pa.string()))
        are_many = files.total(self.rows) > _PLAIN_BYTES
        with (
            pass_files(columns, passes, are_many=are_many) as divided,
            finishing() as finish,
            ThreadPoolExecutor(os.cpu_count()) as pool,
        ):
            finishing_writer = replace(writer, commit=replace(writer.commit, finish=finish))
            list(pool.map(divide, enumerate(self.rows)))
            return [file for written in pool.map(write_pass, range(len(passes))) for file in written]

    def _passes(self, size: int) -> list[range]:
        """The ranges of buckets: one for each `size` bytes of staged files, but at least one for each processor."""
        passes = max(os.cpu_count() or 1, files.total(self.rows) // size)
        step = max(1, -(-self.buckets // passes))  # the number of buckets in a pass, rounded up
        return [range(at, min(at + step, self.buckets)) for at in range(0, self.buckets, step)]


def _columns(file: File) -> pa.Schema:
    """The columns of a file as Spark reads them: each column, and each element of a list, can be null."""
    with files.parquet(file) as opened:
        schema = opened.schema_arrow
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same type. If it is a list, its elements can be null."""
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind
