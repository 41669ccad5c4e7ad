"""Writes the files of some buckets, for a commit that replaces all rows of a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.lake.hudi.base_files import (
    RECORD,
    Contents,
    FileGroup,
    Place,
    WrittenFile,
    rows_for_file,
    write_next_file,
)
from lakeingest.lake.hudi.by_bucket import new_rows_by_partition, rows_by_bucket
from lakeingest.lake.hudi.commit import Commit
from lakeingest.lake.hudi.partitions import by_partition

_Part = tuple[FileGroup, pa.Table | None, pa.Table | None]  # a group, its rows, and its changes


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """Writes files of buckets for a commit.

    `groups` has the file groups of the table; without partitions, also a new group for each bucket that has none.
    `buckets` is the table's number of buckets. `schema` is the schema of the data files. `key` and `record_key` are
    names of columns. `fields` are the partitions.
    """

    commit: Commit
    groups: Mapping[Place, FileGroup]
    buckets: int
    schema: pa.Schema
    key: tuple[str, ...]
    record_key: tuple[str, ...]
    fields: tuple[PartitionField, ...] = ()

    def write(
        self, buckets: range, rows_of_buckets: Mapping[int, pa.Table], changes_by_bucket: Mapping[int, pa.Table]
    ) -> list[WrittenFile]:
        """Write the files of a range of buckets: the rows of each bucket that has any, with the changes applied.

        The rows and changes are as `rows_by_bucket` returns them. A repeated call writes files with the same names and
        rows. Raises Unfit as `write_next_file`.
        """
        written = []
        for bucket in buckets:
            for group, rows_of_group, changes in self._parts(
                bucket, rows_of_buckets.get(bucket), changes_by_bucket.get(bucket)
            ):
                if rows_of_group is not None:
                    new_rows = rows_for_file(rows_of_group, self.commit.instant, group.place, self.schema)
                else:
                    new_rows = self.schema.empty_table()  # all old rows are gone; the changes may insert some
                written.append(write_next_file(self.commit, group, Contents(new_rows, footer={}), changes))
        return written

    def rows_by_bucket(self, rows: pa.Table) -> dict[int, pa.Table]:
        """The rows, or changes, of each bucket that has any. Raises Unfit as `record_texts`."""
        return rows_by_bucket(rows, self.key, self.record_key, self.buckets)

    def _parts(self, bucket: int, rows: pa.Table | None, changes: pa.Table | None) -> Iterator[_Part]:
        """The groups of the bucket that need a file, each with its part of the bucket's rows and changes.

        A group needs a file if there are rows or changes of it, or if it has a file with old rows. With partitions, a
        change may put its row into another partition than the one where `rows` has the old row. So the `rows`
        that have a change are left out of the parts.
        """
        if not self.fields:
            group = self.groups["", bucket]
            if rows is not None or changes is not None or group.newest is not None:
                yield group, rows, changes
            return
        if rows is not None and changes is not None:
            rows = rows.filter(pc.invert(pc.is_in(rows[RECORD], value_set=changes[RECORD].combine_chunks())))
        unchanged = {} if rows is None else by_partition(rows, self.fields)
        keeps_deleted = DELETED in self.schema.names
        changed = {} if changes is None else new_rows_by_partition(changes, self.fields, keeps_deleted=keeps_deleted)
        present = {partition for partition, number in self.groups if number == bucket}
        for partition in sorted({*unchanged, *changed, *present}):
            group = self.groups.get((partition, bucket)) or FileGroup.first_of(partition, bucket, self.commit.instant)
            yield group, unchanged.get(partition), changed.get(partition)
