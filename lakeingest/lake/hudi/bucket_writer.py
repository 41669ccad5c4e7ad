"""Writes the files of some buckets, for a commit that replaces all rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeingest.lake.hudi.base_files import Contents, FileGroup, WrittenFile, rows_for_file, write_next_file
from lakeingest.lake.hudi.by_bucket import rows_by_bucket
from lakeingest.lake.hudi.commit import Commit


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """Writes files of buckets for a commit.

    `groups` has the file group of each bucket. `schema` is that of the data files. `key` and `record_key` are names of
    columns.
    """

    commit: Commit
    groups: Sequence[FileGroup]
    schema: pa.Schema
    key: tuple[str, ...]
    record_key: tuple[str, ...]

    def write(
        self, buckets: range, rows: pa.Table | None, changes_by_bucket: Mapping[int, pa.Table]
    ) -> list[WrittenFile]:
        """Write the files of a range of buckets: the `rows`, which are of these buckets, with the changes applied.

        `rows` is None if these buckets have no rows. A repeated call writes files with the same names and rows. Raises
        Unfit as `write_next_file`.
        """
        rows_of_buckets = {} if rows is None else self.rows_by_bucket(rows)
        written = []
        for bucket in buckets:
            group, changes = self.groups[bucket], changes_by_bucket.get(bucket)
            if bucket in rows_of_buckets:
                new_rows = rows_for_file(rows_of_buckets[bucket], self.commit.instant, bucket, self.schema)
            elif changes is None and group.newest is None:
                continue  # the bucket needs no file: there are neither rows nor changes, nor a file with old rows
            else:
                new_rows = self.schema.empty_table()  # all old rows are gone; the changes may insert some
            written.append(write_next_file(self.commit, group, Contents(new_rows, footer={}), changes))
        return written

    def rows_by_bucket(self, rows: pa.Table) -> dict[int, pa.Table]:
        """The rows, or changes, of each bucket that has any. Raises Unfit as `record_texts`."""
        return rows_by_bucket(rows, self.key, self.record_key, len(self.groups))
