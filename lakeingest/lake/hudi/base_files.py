"""The data files of a Hudi table that lakeingest writes: rows with Hudi's own columns, and Hudi's footer.

Source: Hudi's technical specification, "Base files". A file's name is `<group>_<token>_<instant>.parquet`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.change import DELETED
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.commit import Commit
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.table_form import Unfit

RECORD, FILE_NAME = "_hoodie_record_key", "_hoodie_file_name"
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", RECORD, "_hoodie_partition_path", FILE_NAME)
_BUCKET_DIGITS = 8
_OF_OTHER_INDEXES = {b"org.apache.hudi.bloomfilter", b"hoodie_bloom_filter_type_code"}
_DATES_AS_THEY_ARE = {b"org.apache.spark.version": b"3.5.0"}  # by this alone Spark reads dates before 1582


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files with the rows of a bucket. `newest` is None before the first file."""

    bucket: int
    name: str
    newest: File | None

    @classmethod
    def new(cls, bucket: int) -> Self:
        """A group without files. Its name begins with the bucket."""
        return cls(bucket, f"{bucket:0{_BUCKET_DIGITS}}{str(uuid.uuid4())[_BUCKET_DIGITS:]}", None)

    @classmethod
    def of(cls, file: File) -> Self:
        """The group that has this newest file."""
        name = file.name.partition("_")[0]
        return cls(int(name[:_BUCKET_DIGITS]), name, file)


def groups_of(newest: Sequence[File], buckets: int) -> dict[int, FileGroup]:
    """The file group of each bucket that has one.

    Raises Unfit where some group does not belong to a bucket below `buckets`, or two groups belong to the same one.
    """
    try:
        groups = {group.bucket: group for group in map(FileGroup.of, newest)}
    except ValueError as error:
        raise Unfit from error
    if len(groups) < len(newest) or any(bucket >= buckets for bucket in groups):
        raise Unfit
    return groups


@dataclass(frozen=True, slots=True)
class Contents:
    """The rows of a file with Hudi's columns, and the entries of its footer."""

    rows: pa.Table
    footer: Mapping[bytes, bytes]

    @classmethod
    def of(cls, file: File) -> Self:
        """The contents of a file of the table."""
        with files.parquet(file) as opened:
            return cls(opened.read(), opened.metadata.metadata or {})

    def without_rows(self) -> "Contents":
        """The contents with which the first file of another group begins."""
        return Contents(self.rows.slice(0, 0), self.footer)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The next file of a group: its size in bytes, its rows, and how many keys are new, changed and deleted in it."""

    group: FileGroup
    name: str
    size: int
    rows: int
    inserted: int
    updated: int
    deleted: int

    @property
    def stat(self) -> dict[str, Any]:
        """The entry for the file in the commit: the fields of Hudi's `HoodieWriteStat` that are not null."""
        previous = self.group.newest
        return {
            "fileId": self.group.name,
            "path": self.name,
            "partitionPath": "",
            "prevCommit": "null" if previous is None else previous.stem.rpartition("_")[2],
            "prevBaseFile": None if previous is None else previous.name,
            "numWrites": self.rows,
            "numInserts": self.inserted,
            "numUpdateWrites": self.updated,
            "numDeletes": self.deleted,
            "totalWriteBytes": self.size,
            "fileSizeInBytes": self.size,
        }


def write_next(commit: Commit, group: FileGroup, previous: Contents, changes: pa.Table | None) -> WrittenFile:
    """Apply changes to the `previous` contents of a group, and write the result as its next file.

    The changes have two more columns, RECORD and DELETED. If the table itself has a column DELETED, it is written like
    the others. `previous` is the newest file, or the contents with which the first file begins. The new file is
    durable, and not part of the table until the commit is completed. Raises Unfit where the changes have other columns
    or values than a file of the table can have.
    """
    kept, updated, rows = previous.rows, 0, previous.rows.slice(0, 0)
    if changes is not None:
        kept = kept.filter(pc.invert(pc.is_in(kept[RECORD], value_set=changes[RECORD].combine_chunks())))
        rows = stored(changes, commit.instant, group.bucket, previous.rows.schema, first=len(kept))
        updated = pc.sum(pc.is_in(rows[RECORD], value_set=previous.rows[RECORD].combine_chunks())).as_py() or 0
    name = f"{group.name}_{group.bucket}-0-0_{commit.instant}.parquet"
    whole = pa.concat_tables([kept, rows])
    place = whole.schema.get_field_index(FILE_NAME)
    whole = whole.set_column(place, whole.schema.field(place), pa.repeat(name, len(whole)))
    commit.mark(name, "CREATE" if group.newest is None else "MERGE")
    with files.written(commit.folder / name) as path:
        footer = _footer(previous.footer, whole[RECORD])
        pq.write_table(whole.replace_schema_metadata(footer), path, compression="zstd", store_schema=False)
        size = path.stat().st_size
    if group.newest is None:
        return WrittenFile(group, name, size, len(whole), len(whole), 0, 0)
    deleted = len(previous.rows) - len(kept) - updated
    return WrittenFile(group, name, size, len(whole), len(rows) - updated, updated, deleted)


def stored(rows: pa.Table, instant: str, bucket: int, schema: pa.Schema, first: int = 0) -> pa.Table:
    """Rows that have RECORD, in the form of a file with this schema, numbered from `first` on.

    Deleted rows are left out if the schema has no DELETED. Raises Unfit for other columns, or values that do not fit.
    """
    if DELETED in rows.column_names and DELETED not in schema.names:
        rows = rows.filter(pc.invert(rows[DELETED])).drop_columns(DELETED)
    sequence = pa.array([f"{instant}_{bucket}_{first + number}" for number in range(len(rows))], pa.string())
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    columns |= {"_hoodie_commit_time": pa.repeat(instant, len(rows)), "_hoodie_commit_seqno": sequence}
    columns |= dict.fromkeys(("_hoodie_partition_path", FILE_NAME), pa.repeat("", len(rows)))
    if RECORD_KEY in schema.names:
        columns[RECORD_KEY] = rows[RECORD]
    if set(columns) - set(schema.names):
        raise Unfit
    nulls = pa.nulls(len(rows))  # for dropped columns that the copy keeps
    try:
        return pa.table([columns.get(name, nulls) for name in schema.names], schema.names).cast(schema)
    except pa.ArrowInvalid as error:
        raise Unfit from error


def _footer(previous: Mapping[bytes, bytes], keys: pa.ChunkedArray) -> dict[bytes, bytes]:
    """The entries of the previous footer, with the least and the greatest of these record keys."""
    kept = {name: value for name, value in previous.items() if name not in _OF_OTHER_INDEXES}
    ends = pc.min_max(keys).as_py() if len(keys) else {}
    return _DATES_AS_THEY_ARE | kept | {f"hoodie_{end}_record_key".encode(): key.encode() for end, key in ends.items()}
