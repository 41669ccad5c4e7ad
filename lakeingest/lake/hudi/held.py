"""What a commit of Hudi holds, for the audit before it is completed: the newest file of each bucket."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.errors import parse_errors, storage_errors
from lakeingest.lake.hudi.base_files import FileGroup, WrittenFile
from lakeingest.lake.hudi.by_bucket import bucket_numbers


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """How the bucket of a key is found: the columns of the key and of the record key, and the number of buckets."""

    key: tuple[str, ...]
    record_key: tuple[str, ...]
    buckets: int


@dataclass(frozen=True, slots=True)
class HudiFile:
    """`lake.held.HeldFile` of the newest file of a bucket. `written`: its number of rows by the commit that is audited.

    `written` is None for the file of an earlier commit.
    """

    path: File
    bucket: int
    written: int | None
    by: BucketKeys

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self.path)

    @property
    def is_new(self) -> bool:
        """Whether the commit has written the file."""
        return self.written is not None

    @property
    def rows(self) -> int:
        """The number of rows by the commit; by the footer, if an earlier commit has written the file."""
        return self.count() if self.written is None else self.written

    def count(self) -> int:
        """The number of rows by the footer."""
        with storage_errors(self.name), parse_errors(self.name):
            return int(files.parquet_metadata(self.path).num_rows)

    def may_have(self, keys: pa.Table) -> "np.ndarray":
        """For each key, whether it belongs to the file's bucket."""
        numbers = bucket_numbers(keys, self.by.key, self.by.record_key, self.by.buckets)
        return np.asarray(numbers == self.bucket, bool)

    def keys(self, names: Sequence[str]) -> pa.Table:
        """The columns `names` of all rows."""
        with storage_errors(self.name), parse_errors(self.name), files.parquet(self.path) as opened:
            return opened.read(list(names))

    def first_rows(self, names: Sequence[str], most: int) -> pa.Table:
        """The columns `names` of about the first `most` rows."""
        with storage_errors(self.name), parse_errors(self.name), files.parquet(self.path) as opened:
            return files.first_rows(opened, names, most)


@dataclass(frozen=True, slots=True)
class HudiHeld:
    """`lake.held.Held` of a commit: the newest file of each bucket. No file has a row that the commit deletes."""

    files: Sequence[HudiFile]

    def faulty_deletes(self) -> list[str]:
        """No faults: Hudi's copy-on-write tables have no files of deletes."""
        return []


def held_by(
    folder: File, written: Sequence[WrittenFile], by: BucketKeys, unchanged: Sequence[FileGroup] = ()
) -> HudiHeld:
    """The files that a commit has written, and the newest files of `unchanged` groups, which have no changed key."""
    new = [HudiFile(folder / file.path, file.group.bucket, file.rows, by) for file in written]
    old = [HudiFile(group.newest, group.bucket, written=None, by=by) for group in unchanged if group.newest is not None]
    return HudiHeld([*new, *old])
