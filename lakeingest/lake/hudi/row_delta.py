"""Publishes changes without Spark: one commit rewrites the file of each bucket that has a changed key.

Hudi's own upsert with a bucket index makes the same commit. If lakeingest does not know the form of the table, or if
Hudi has to archive commits, Hudi publishes by a statement instead of this module.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from lakeingest.core.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.hudi.base_files import RECORD, Contents, FileGroup, WrittenFile, groups_of, write_next_file
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.by_bucket import rows_by_bucket
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.held import BucketKeys, held_by
from lakeingest.lake.hudi.record_texts import record_texts
from lakeingest.lake.hudi.table_form import Unfit, record_key_of
from lakeingest.lake.hudi.timeline import Instant, metadata_of, writes
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.changes import last_changes

MOST_BYTES = 4 << 30  # the largest total size of the files to rewrite; a large cluster is faster with more
MOST_CHANGES_BYTES = 128 << 20  # the largest total size of the files of changes, which are all in memory at once
_CHECKED_ROWS = 1_000  # the number of rows of each file whose record keys are checked


@dataclass(frozen=True, slots=True)
class RowDelta:
    """The changes of a publish to a table in `folder`. `published` is the commit that readers see.

    `merges` are the files of changes of each merge, the oldest merge first. `key` are the columns of the primary key,
    and `buckets` is the table's number of buckets. `added` is the number of rows that the changes insert, minus the
    number of rows that they delete.
    """

    table: TableId
    folder: File
    published: Instant
    merges: Sequence[Sequence[File]]
    key: tuple[str, ...]
    buckets: int
    added: int

    def publish(self, properties: Mapping[str, str], audit: Auditing = unaudited) -> bool:
        """Commit the changes with these properties, once `audit` has seen the files.

        Returns False, and readers see no difference, if only Hudi can publish the changes, if there are too many
        changes, or if they do not add `added` rows. The next writer then deletes the files that were already written.
        Raises StaleWriter if another run has rolled back the commit.
        """
        roll_back(self.folder)  # first, because `record_key_of` raises Unfit if a write is incomplete
        try:
            # Step 1: find the file groups with changed keys
            record_key = record_key_of(self.folder)
            groups = groups_of(visible_files(self.folder, self.published.time), self.buckets)
            _assert_at_most(MOST_CHANGES_BYTES, [file for merge in self.merges for file in merge])
            changes = last_changes(self.merges, self.key)
            if changes is None or not groups:  # nothing to merge, or no file from which new files can get their columns
                return False
            changes_by_bucket = rows_by_bucket(changes, self.key, record_key, self.buckets)
            changed_groups = [groups.get(bucket) or FileGroup.new(bucket) for bucket in changes_by_bucket]
            _assert_at_most(MOST_BYTES, [group.newest for group in changed_groups if group.newest is not None])
            # Step 2: write the next file of each of these groups
            commit = Commit.begin(self.folder)
            group_with_file = next(iter(groups.values()))

            def write(group: FileGroup) -> WrittenFile:
                # the first file of a group gets its columns from a file of another group
                previous = _contents(group_with_file).without_rows() if group.newest is None else _contents(group)
                self._assert_same_record_keys(previous.rows, group.bucket, record_key)
                return write_next_file(commit, group, previous, changes_by_bucket[group.bucket])

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                written = list(pool.map(write, changed_groups))
        except Unfit:
            return False
        if sum(file.inserted - file.deleted for file in written) != self.added:
            return False
        # Step 3: audit the files, and complete the commit
        unchanged = [group for group in groups.values() if group.bucket not in changes_by_bucket]
        audit(held_by(self.folder, written, BucketKeys(self.key, record_key, self.buckets), unchanged))
        if not commit.complete("UPSERT", [file.stat for file in written], {SCHEMA: self._schema(), **properties}):
            raise stale(self.table)
        return True

    def _assert_same_record_keys(self, rows: pa.Table, bucket: int, record_key: Sequence[str]) -> None:
        """Raises Unfit unless the first rows of a file have the record keys and the bucket that lakeingest computes."""
        sample = rows.slice(0, _CHECKED_ROWS)
        texts = record_texts(sample, self.key, record_key)
        have_same_keys = sample[RECORD].combine_chunks().equals(texts.keys)
        are_of_bucket = bool((buckets_of(texts.parts, self.buckets) == bucket).all())
        if not (have_same_keys and are_of_bucket):
            raise Unfit

    def _schema(self) -> str:
        """The table's Avro schema, from the `published` commit."""
        [published_file] = [file for _, begun, file in writes(self.folder) if begun == self.published.time]
        with metadata_of(published_file) as metadata:
            return str(metadata["extraMetadata"][SCHEMA])


def _assert_at_most(most_bytes: int, data_files: Sequence[File]) -> None:
    """Raises Unfit if the files are together larger than `most_bytes`."""
    if files.total(data_files) > most_bytes:
        raise Unfit


def _contents(group: FileGroup) -> Contents:
    """The contents of the newest file of a group that has files."""
    assert group.newest is not None  # noqa: S101 - the group has files
    with parse_errors(str(group.newest)):
        return Contents.of(group.newest)
