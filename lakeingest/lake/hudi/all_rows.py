"""Publishes all rows of a table: it puts them into buckets, and writes the file of each bucket, in one commit.

The first publish makes the table that Hudi's own bulk insert makes. A later one replaces the rows of a copy that was
read again, or lifted to other columns. Tasks of Spark write a table that is too large for this process.
"""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeingest.core.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.avro_schema import avro_schema
from lakeingest.lake.hudi.base_files import META, FileGroup, WrittenFile, groups_of
from lakeingest.lake.hudi.bucket_tasks import write_in_tasks
from lakeingest.lake.hudi.bucket_writer import BucketWriter
from lakeingest.lake.hudi.by_bucket import bucket_numbers
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.options import RECORD_KEY_MARK
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.record_texts import record_key_for
from lakeingest.lake.hudi.table_form import Unfit, record_key_of, write_form
from lakeingest.lake.hudi.timeline import PREFIX, Instant
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.changes import in_groups, last_changes, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 512 << 20  # the largest size of the files of staging that this process writes
_PASS_BYTES = 32 << 20  # a thread or task has the rows of so many bytes of these files in memory at the same time


@dataclass(frozen=True, slots=True)
class AllRows:
    """The rows of these files of staging after the changes of these merges, the oldest first. They are `count` rows.

    `buckets` is the number of buckets that they are put into. `published` is the commit that readers of the table in
    the `folder` see; None where the folder has no table yet.
    """

    table: TableId
    folder: File
    published: Instant | None
    rows: Sequence[File]
    merges: Sequence[Sequence[File]]
    key: tuple[str, ...]
    buckets: int
    count: int

    def publish(self, properties: Mapping[str, str], spark: "SparkSession | None" = None) -> bool:
        """Commit the rows, with these properties. Returns False where only Hudi can; readers then see nothing of it.

        Without a session this process writes them; it returns False where they are too large for it. Raises StaleWriter
        where another run has rolled the commit back meanwhile.
        """
        if spark is None and files.total(chain(self.rows, *self.merges)) > MOST_BYTES:
            return False
        columns = pa.unify_schemas([_columns(file) for file in self.rows])
        if self.published is not None:
            roll_back(self.folder)
        try:
            record_key, groups = self._record_key(columns), self._groups()
            if RECORD_KEY in record_key:
                columns = columns.append(pa.field(RECORD_KEY, pa.string()))
            schema = pa.schema([*(pa.field(name, pa.string()) for name in META), *columns])
            if self.published is None:
                write_form(self.folder, self.table.name, record_key)
            commit = Commit.begin(self.folder)
            writer = BucketWriter(commit, groups, schema, self.key, record_key)
            if spark is None:
                written = self._write(writer)
            else:
                written = write_in_tasks(spark, writer, in_groups(self.rows, _PASS_BYTES), self.merges, self._passes())
        except Unfit:
            return False
        if sum(file.rows for file in written) != self.count:
            return False
        # late tasks of a killed run may have left files, which readers would see after the commit
        names, present = {group.name for group in groups}, self.folder.listed("*.parquet")
        if late := [file for file in present if file.name.partition("_")[0] not in names]:
            files.delete_all(late)
        mark = {f"{PREFIX}{RECORD_KEY_MARK}": json.dumps(record_key)}
        extra = {SCHEMA: avro_schema(self.table.name, columns), **properties, **mark}
        operation = "BULK_INSERT" if self.published is None else "UPSERT"
        if not commit.complete(operation, [file.stat for file in written], extra):
            raise stale(self.table)
        return True

    def _record_key(self, columns: pa.Schema) -> tuple[str, ...]:
        """The columns of the record key: RECORD_KEY if the table has it already, else those of a new table."""
        if self.published is not None and record_key_of(self.folder) == (RECORD_KEY,):
            return (RECORD_KEY,)
        return record_key_for(columns, self.key)

    def _groups(self) -> list[FileGroup]:
        """The file group of each bucket."""
        newest = [] if self.published is None else visible_files(self.folder, self.published.time)
        groups = groups_of(newest, self.buckets)
        return [groups.get(bucket) or FileGroup.new(bucket) for bucket in range(self.buckets)]

    def _write(self, writer: BucketWriter) -> list[WrittenFile]:
        """Write the files of all buckets in this process. All changes are in memory at the same time."""
        changes = last_changes(self.merges, self.key)
        changed = {} if changes is None else writer.by_bucket(changes)
        keys = (read_rows(file, self.key) for file in self.rows)
        numbers = [bucket_numbers(table, self.key, writer.record_key, self.buckets) for table in keys]

        def write(within: range) -> list[WrittenFile]:
            return writer.write(within, self._rows_within(within, numbers), changed)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [file for written in pool.map(write, self._passes()) for file in written]

    def _passes(self) -> list[range]:
        """Ranges of buckets. The rows of one range are in memory at the same time."""
        passes = max(os.cpu_count() or 1, files.total(self.rows) // _PASS_BYTES)
        step = max(1, -(-self.buckets // passes))
        return [range(at, min(at + step, self.buckets)) for at in range(0, self.buckets, step)]

    def _rows_within(self, within: range, numbers: Sequence[np.ndarray]) -> pa.Table:
        """The rows whose bucket is in this range. Columns that the source has dropped are NULL in new rows."""
        parts = []
        for file, buckets in zip(self.rows, numbers, strict=True):
            mask = (buckets >= within.start) & (buckets < within.stop)
            parts.append(read_rows(file).filter(pa.array(mask)))
        return pa.concat_tables(parts, promote_options="default")


def _columns(file: File) -> pa.Schema:
    """The columns of a file as Spark reads them: each column, and each element of one, can be null."""
    with files.parquet(file) as opened:
        schema = opened.schema_arrow
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind
