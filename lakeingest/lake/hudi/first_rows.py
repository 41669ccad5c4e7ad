"""The first publish without Spark: all rows of staging are put into buckets, and written to a new table by a commit.

It makes the table that Hudi's own bulk insert makes. One that is too large for this process is left to Hudi.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from lakeingest.core.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.avro_schema import avro_schema
from lakeingest.lake.hudi.base_files import META, Contents, FileGroup, Written, stored, write_next
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.changes import by_bucket, last_changes, read_rows
from lakeingest.lake.hudi.commit import SCHEMA, Commit
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.record_texts import has_own_text, record_texts
from lakeingest.lake.hudi.table_form import Unfit, write_form
from lakeingest.lake.refusals import stale

MOST_BYTES = 512 << 20  # of the files of staging
_PASS_BYTES = 32 << 20  # of them, whose rows a thread has in memory at the same time


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The rows of these files of staging, under the changes of these merges, the oldest first: `count` rows.

    They are put into so many `buckets`. `folder` is where the table is built; nothing is there yet.
    """

    table: TableId
    folder: File
    rows: Sequence[File]
    merges: Sequence[Sequence[File]]
    key: tuple[str, ...]
    buckets: int
    count: int

    def publish(self, properties: Mapping[str, str]) -> bool:
        """Make the table, with these properties of its commit; False, and it has no commit, where only Hudi can."""
        if files.total(chain(self.rows, *self.merges)) > MOST_BYTES:
            return False
        columns = _columns(self.rows[0])
        record_key = self.key if has_own_text(columns, self.key) else (RECORD_KEY,)
        if record_key != self.key:
            columns = columns.append(pa.field(RECORD_KEY, pa.string()))
        try:
            changes = last_changes(self.merges, self.key)
            changed = {} if changes is None else by_bucket(changes, self.key, record_key, self.buckets)
            numbers = [self._numbers(file, record_key) for file in self.rows]
        except Unfit:
            return False
        write_form(self.folder, self.table.name, record_key)
        commit = Commit.begin(self.folder)
        schema = pa.schema([*(pa.field(name, pa.string()) for name in META), *columns])

        def write(within: range) -> list[Written]:
            found = by_bucket(self._rows_within(within, numbers), self.key, record_key, self.buckets)
            nothing = schema.empty_table()
            written = []
            for bucket in sorted({*found, *(number for number in changed if number in within)}):
                group, rows = FileGroup.new(bucket), found.get(bucket)
                before = nothing if rows is None else stored(rows, commit.instant, bucket, schema)
                after = changed.get(bucket)
                written.append(write_next(commit, group, Contents(before, {}), after))
            return written

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            written = [one for some in pool.map(write, self._passes()) for one in some]
        if sum(one.rows for one in written) != self.count:
            return False
        extra = {SCHEMA: avro_schema(self.table.name, columns), **properties}
        if not commit.complete("BULK_INSERT", [one.stat for one in written], extra):
            raise stale(self.table)
        return True

    def _numbers(self, file: File, record_key: Sequence[str]) -> np.ndarray:
        """The bucket of each row of a file."""
        return buckets_of(record_texts(read_rows(file, self.key), self.key, record_key).parts, self.buckets)

    def _passes(self) -> Iterator[range]:
        """The buckets whose rows are in memory at the same time."""
        passes = max(os.cpu_count() or 1, files.total(self.rows) // _PASS_BYTES)
        step = max(1, -(-self.buckets // passes))
        return (range(at, min(at + step, self.buckets)) for at in range(0, self.buckets, step))

    def _rows_within(self, within: range, numbers: Sequence[np.ndarray]) -> pa.Table:
        """The rows whose bucket is one of these."""
        parts = []
        for file, found in zip(self.rows, numbers, strict=True):
            mask = (found >= within.start) & (found < within.stop)
            parts.append(read_rows(file).filter(pa.array(mask)))
        return pa.concat_tables(parts)


def _columns(file: File) -> pa.Schema:
    """The columns of a file as Spark reads them: each can be null, and each element of one."""
    with files.parquet(file) as opened:
        found = opened.schema_arrow
    return pa.schema([pa.field(one.name, _nullable(one.type)) for one in found])


def _nullable(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind
