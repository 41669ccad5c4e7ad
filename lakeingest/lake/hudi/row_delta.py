"""Publishes changes without Spark: the file of each bucket that has a changed key is rewritten, in one commit.

Hudi's own upsert with a bucket index makes the same commit. Hudi publishes, by a statement, when it has to archive, and
where the table has a form that lakeingest does not know.
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
from lakeingest.lake.hudi.base_files import RECORD, Contents, FileGroup, WrittenFile, groups_of, write_next
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.by_bucket import by_bucket
from lakeingest.lake.hudi.commit import SCHEMA, Commit, roll_back
from lakeingest.lake.hudi.file_groups import visible_files
from lakeingest.lake.hudi.record_texts import record_texts
from lakeingest.lake.hudi.table_form import Unfit, record_key_of
from lakeingest.lake.hudi.timeline import Instant, metadata_of, writes
from lakeingest.lake.refusals import stale
from lakeingest.lake.staged.changes import last_changes

MOST_BYTES = 4 << 30  # the largest size of the files that are rewritten; for more, a large cluster is faster
MOST_CHANGES_BYTES = 128 << 20  # the largest size of the files of changes, which are in memory together
_LOOKED_AT = 1_000  # so many rows of each file are checked


@dataclass(frozen=True, slots=True)
class RowDelta:
    """The changes of a publish after `published`, the commit that readers see.

    `merges` are the files of each merge's changes, the oldest first; they add `added` rows to the table. The table has
    `buckets` buckets.
    """

    table: TableId
    folder: File
    published: Instant
    merges: Sequence[Sequence[File]]
    key: tuple[str, ...]
    buckets: int
    added: int

    def publish(self, properties: Mapping[str, str]) -> bool:
        """Commit the changes, with these properties. Returns False where only Hudi can; readers then see nothing of it.

        Files that were written by then are rolled back by the next writer. Raises StaleWriter where another run has
        rolled back the commit meanwhile.
        """
        roll_back(self.folder)
        try:
            record_key = record_key_of(self.folder)
            groups = groups_of(visible_files(self.folder, self.published.time), self.buckets)
            _assert_small([file for merge in self.merges for file in merge], MOST_CHANGES_BYTES)
            changes = last_changes(self.merges, self.key)
            if changes is None or not groups:
                return False
            changed = by_bucket(changes, self.key, record_key, self.buckets)
            touched = [groups.get(bucket) or FileGroup.new(bucket) for bucket in changed]
            _assert_small([group.newest for group in touched if group.newest is not None], MOST_BYTES)
            commit, any_group = Commit.begin(self.folder), next(iter(groups.values()))

            def write(group: FileGroup) -> WrittenFile:
                previous = _contents(any_group).without_rows() if group.newest is None else _contents(group)
                self._assert_alike(previous.rows, group.bucket, record_key)
                return write_next(commit, group, previous, changed[group.bucket])

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                written = list(pool.map(write, touched))
        except Unfit:
            return False
        if sum(each.inserted - each.deleted for each in written) != self.added:
            return False
        if not commit.complete("UPSERT", [each.stat for each in written], {SCHEMA: self._schema(), **properties}):
            raise stale(self.table)
        return True

    def _assert_alike(self, rows: pa.Table, bucket: int, record_key: Sequence[str]) -> None:
        """Raises Unfit unless the first rows of a file have the record keys that we would give them.

        They must also be of the file's bucket.
        """
        sample = rows.slice(0, _LOOKED_AT)
        texts = record_texts(sample, self.key, record_key)
        buckets = buckets_of(texts.parts, self.buckets)
        if not sample[RECORD].combine_chunks().equals(texts.keys) or (buckets != bucket).any():
            raise Unfit

    def _schema(self) -> str:
        """The table's columns in Avro, as the last commit has them."""
        [last] = [file for _, begun, file in writes(self.folder) if begun == self.published.time]
        with metadata_of(last) as metadata:
            return str(metadata["extraMetadata"][SCHEMA])


def _assert_small(data_files: Sequence[File], most: int) -> None:
    if files.total(data_files) > most:
        raise Unfit


def _contents(group: FileGroup) -> Contents:
    assert group.newest is not None  # noqa: S101 - the group has files
    with parse_errors(str(group.newest)):
        return Contents.of(group.newest)
