"""Writes the files of some buckets, for a commit that has all rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeingest.lake.hudi.base_files import Contents, FileGroup, WrittenFile, stored, write_next
from lakeingest.lake.hudi.by_bucket import by_bucket
from lakeingest.lake.hudi.commit import Commit


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """Writes files of buckets for a commit.

    It has each bucket's file group, the files' columns, the key and the record key.
    """

    commit: Commit
    groups: Sequence[FileGroup]
    schema: pa.Schema
    key: tuple[str, ...]
    record_key: tuple[str, ...]

    def write(self, within: range, rows: pa.Table | None, changed: Mapping[int, pa.Table]) -> list[WrittenFile]:
        """Write the files of these buckets: their `rows`, with the changes in `changed` by bucket.

        It may be repeated: the files have the same names and rows. Raises Unfit as `write_next`.
        """
        rows_by_bucket = {} if rows is None else self.by_bucket(rows)
        written = []
        for bucket in within:
            group, previous = self.groups[bucket], self.schema.empty_table()
            if group.newest is None and bucket not in rows_by_bucket and bucket not in changed:
                continue  # a bucket that has no rows needs no file
            if bucket in rows_by_bucket:
                previous = stored(rows_by_bucket[bucket], self.commit.instant, bucket, self.schema)
            written.append(write_next(self.commit, group, Contents(previous, {}), changed.get(bucket)))
        return written

    def by_bucket(self, rows: pa.Table) -> dict[int, pa.Table]:
        """The rows or changes of each bucket. Raises Unfit as `record_texts`."""
        return by_bucket(rows, self.key, self.record_key, len(self.groups))
