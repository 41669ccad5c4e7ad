"""Publishes changes without Spark: one commit rewrites the file of each bucket that has a changed key.

Hudi's own upsert with a bucket index makes the same commit. If lakeingest does not know the form of the table, or if
Hudi has to archive commits, Hudi publishes by a statement instead of this module.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.finishing import finishing
from lakeingest.lake.errors import parse_errors
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.hudi.base_files import (
    RECORD,
    Contents,
    FileGroup,
    Place,
    WrittenFile,
    groups_of,
    write_next_file,
)
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.by_bucket import new_rows_by_partition, rows_by_bucket
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.held import BucketKeys, held_by
from lakeingest.lake.hudi.partitions import by_partition
from lakeingest.lake.hudi.record_texts import record_texts
from lakeingest.lake.hudi.table_form import Unfit, record_key_of
from lakeingest.lake.hudi.timeline import Instant, metadata_of, writes
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.changes import last_changes

MOST_BYTES = 4 << 30  # the largest total size of the files to rewrite; a large cluster is faster with more
MOST_CHANGES_BYTES = 128 << 20  # the largest total size of the files of changes, which are all in memory at once
_AT_ONCE = 16  # the number of threads that look for old rows
_CHECKED_ROWS = 1_000  # the number of rows of each file whose record keys are checked


@dataclass(frozen=True, slots=True)
class RowDelta:
    """The changes of a publish to a table in `folder`. `published` is the commit that readers see.

    `merges` are the files of changes of each merge, the oldest merge first. `key` are the columns of the primary key,
    and `buckets` is the table's number of buckets. `added` is the number of rows that the changes insert, minus the
    number of rows that they delete. `fields` are the partitions.
    """

    table: TableId
    folder: File
    published: Instant
    merges: Sequence[Sequence[File]]
    key: tuple[str, ...]
    buckets: int
    added: int
    fields: tuple[PartitionField, ...] = ()

    def publish(self, properties: Mapping[str, str], audit: Auditing = unaudited) -> bool:
        """Commit the changes with these properties, once `audit` has seen the files.

        Returns False, and readers see no difference, if only Hudi can publish the changes, if there are too many
        changes, or if they do not add `added` rows. The next writer then deletes the files that were already written.
        Raises StaleWriter if another run has rolled back the commit.
        """
        roll_back(self.folder)  # first, because `record_key_of` raises Unfit if a write is incomplete
        try:
            # Step 1: find the file groups with changed keys
            record_key = record_key_of(self.folder, divided=bool(self.fields))
            groups = groups_of(visible_files(self.folder, self.published.time), self.folder, self.buckets)
            _assert_at_most(MOST_CHANGES_BYTES, [file for merge in self.merges for file in merge])
            changes = last_changes(self.merges, self.key)
            if changes is None or not groups:  # nothing to merge, or no file from which new files can get their columns
                return False
            changes_by_bucket = rows_by_bucket(changes, self.key, record_key, self.buckets, os.cpu_count() or 1)
            changed = list(self._changed_groups(groups, changes_by_bucket))
            _assert_at_most(MOST_BYTES, [one.group.newest for one in changed if one.group.newest is not None])
            # Step 2: write the next file of each of these groups
            commit = Commit.begin(self.folder)
            group_with_file = next(iter(groups.values()))

            def write(one: _Changed) -> WrittenFile:
                """Write the next file of a changed group."""
                group = one.group
                # the first file of a group gets its columns from a file of another group
                previous = _contents(group_with_file).without_rows() if group.newest is None else _contents(group)
                self._assert_same_record_keys(previous.rows, group, record_key)
                return write_next_file(finishing_commit, group, previous, one.changes, one.gone)

            with finishing() as finish, ThreadPoolExecutor(os.cpu_count()) as pool:
                finishing_commit = replace(commit, finish=finish)
                written = list(pool.map(write, changed))
        except Unfit:
            return False
        if sum(file.inserted - file.deleted for file in written) != self.added:
            return False
        # Step 3: audit the files, and complete the commit
        written_places = {file.group.place for file in written}
        unchanged = [group for place, group in groups.items() if place not in written_places]
        audit(held_by(self.folder, written, BucketKeys(self.key, record_key, self.buckets), unchanged))
        if not commit.complete("UPSERT", [file.stat for file in written], {SCHEMA: self._schema(), **properties}):
            raise stale(self.table)
        return True

    def _changed_groups(
        self, groups: Mapping[Place, FileGroup], changes_by_bucket: Mapping[int, pa.Table]
    ) -> "Iterator[_Changed]":
        """The groups that get a new file, with their changes.

        With partitions, these are the groups to which a row comes, and those that have the old row of a changed key. An
        old row can be in any partition, so the keys of each file of its bucket are looked at.
        """
        if not self.fields:
            for bucket, changes in changes_by_bucket.items():
                yield _Changed(groups.get(("", bucket)) or FileGroup.new(bucket), changes, gone=None)
            return
        keeps_deleted = DELETED in _columns(next(iter(groups.values())))  # all files have the same columns
        of_bucket: dict[int, list[FileGroup]] = {}
        for group in groups.values():
            of_bucket.setdefault(group.bucket, []).append(group)
        looked_at: list[_Changed] = []
        for bucket, changes in changes_by_bucket.items():
            gone = changes[RECORD].combine_chunks()
            new = new_rows_by_partition(changes, self.fields, keeps_deleted=keeps_deleted)
            for partition, rows in new.items():
                group = groups.get((partition, bucket)) or FileGroup.new(bucket, partition)
                yield _Changed(group, rows, gone)
            others = (group for group in of_bucket.get(bucket, ()) if group.partition not in new)
            # slice(0, 0): no row comes to these groups
            looked_at += (_Changed(group, changes.slice(0, 0), gone) for group in others)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            has_old_rows = list(pool.map(_Changed.has_old_rows, looked_at))
        yield from (one for one, has_any in zip(looked_at, has_old_rows, strict=True) if has_any)

    def _assert_same_record_keys(self, rows: pa.Table, group: FileGroup, record_key: Sequence[str]) -> None:
        """Raises Unfit unless the first rows of a file have the record keys and the place that lakeingest computes."""
        sample = rows.slice(0, _CHECKED_ROWS)
        texts = record_texts(sample, self.key, record_key)
        have_same_keys = sample[RECORD].combine_chunks().equals(texts.keys)
        are_of_bucket = bool((buckets_of(texts.parts, self.buckets) == group.bucket).all())
        are_of_partition = set(by_partition(sample, self.fields)) <= {group.partition}
        if not (have_same_keys and are_of_bucket and are_of_partition):
            raise Unfit

    def _schema(self) -> str:
        """The table's Avro schema, from the `published` commit."""
        [published_file] = [file for _, begun, file in writes(self.folder) if begun == self.published.time]
        with metadata_of(published_file) as metadata:
            return str(metadata["extraMetadata"][SCHEMA])


@dataclass(frozen=True, slots=True)
class _Changed:
    """A group that gets a new file. `changes`: the changes whose rows it gets. `gone`: as in `write_next_file`."""

    group: FileGroup
    changes: pa.Table
    gone: pa.Array | None

    def has_old_rows(self) -> bool:
        """Whether the newest file has a row with one of the keys in `gone`."""
        file = self.group.newest
        assert file is not None  # noqa: S101 - only groups with files are looked at
        assert self.gone is not None  # noqa: S101 - only groups in partitions are looked at
        with parse_errors(str(file)), files.parquet(file) as opened:
            footer = opened.metadata.metadata or {}
            least, greatest = (footer.get(f"hoodie_{end}_record_key".encode()) for end in ("min", "max"))
            # Hudi orders texts by UTF-16, and Arrow by UTF-8: both agree on how any text compares with one of ASCII
            if least is not None and greatest is not None and (least + greatest).isascii():
                in_bounds = pc.and_(
                    pc.greater_equal(self.gone, least.decode()), pc.less_equal(self.gone, greatest.decode())
                )
                if not pc.any(in_bounds).as_py():
                    return False
            keys = opened.read([RECORD])[RECORD]
            return bool(pc.any(pc.is_in(keys, value_set=self.gone)).as_py())


def _columns(group: FileGroup) -> list[str]:
    """The columns of the newest file of a group that has files."""
    assert group.newest is not None  # noqa: S101 - the group has files
    with parse_errors(str(group.newest)):
        return list(files.parquet_metadata(group.newest).schema.names)


def _assert_at_most(most_bytes: int, data_files: Sequence[File]) -> None:
    """Raises Unfit if the files are together larger than `most_bytes`."""
    if files.total(data_files) > most_bytes:
        raise Unfit


def _contents(group: FileGroup) -> Contents:
    """The contents of the newest file of a group that has files."""
    assert group.newest is not None  # noqa: S101 - the group has files
    with parse_errors(str(group.newest)):
        return Contents.of(group.newest)
