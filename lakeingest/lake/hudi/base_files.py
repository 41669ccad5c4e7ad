"""The data files of a Hudi table that lakeingest writes: rows with Hudi's own columns, and Hudi's footer.

Source: Hudi's technical specification, "Base files". A file's name is `<group>_<token>_<instant>.parquet`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.tables.change import DELETED
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.commit import Commit
from lakeingest.lake.hudi.file_groups import relative_name
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.table_form import Unfit, make_partition

RECORD, FILE_NAME = "_hoodie_record_key", "_hoodie_file_name"
_PARTITION_PATH = "_hoodie_partition_path"
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", RECORD, _PARTITION_PATH, FILE_NAME)
# columns of META with one value, or with few: Arrow keeps them as numbers, so that no text is copied for each row
_FEW_VALUES = ("_hoodie_commit_time", _PARTITION_PATH, FILE_NAME)
_NUMBERED = pa.dictionary(pa.int32(), pa.string())
_BUCKET_DIGITS = 8
_GROUPS = uuid.UUID("6c1d4e0a-0b1c-5f7e-9a43-52f0f3a1d9b7")  # the namespace of the UUIDs in names of groups
Place = tuple[str, int]  # a partition, and a bucket in it
# entries that say the calendar of dates before 1582, and the form of INT96; other entries may be of an older schema
_CALENDAR_ENTRIES = {
    f"org.apache.spark.{name}".encode() for name in ("version", "legacyDateTime", "legacyINT96", "timeZone")
}
_SPARK_VERSION = {b"org.apache.spark.version": b"3.5.0"}  # tells Spark the calendar of dates before 1582 in the file


@dataclass(frozen=True, slots=True)
class FileGroup:
    """A file group: the versions of a bucket's file. `newest` is the last version; None if no version exists yet.

    `partition` is the folder of the group; '' in a table without partitions.
    """

    bucket: int
    name: str
    newest: File | None
    partition: str = ""

    @classmethod
    def new(cls, bucket: int, partition: str = "") -> Self:
        """A group without files. Its name begins with the bucket's number, as the bucket index requires."""
        return cls(bucket, _group_name(bucket, uuid.uuid4()), None, partition)

    @classmethod
    def first_of(cls, partition: str, bucket: int, instant: str) -> Self:
        """As `new`, for the commit of this instant: a task of Spark that is repeated gets the same group again."""
        return cls(bucket, _group_name(bucket, uuid.uuid5(_GROUPS, f"{instant}/{partition}/{bucket}")), None, partition)

    @classmethod
    def of(cls, file: File, folder: File) -> Self:
        """The group whose newest file is `file`. Raises ValueError if the file's name does not begin with a bucket."""
        name = file.name.partition("_")[0]
        partition = relative_name(file, folder).rpartition("/")[0]
        return cls(int(name[:_BUCKET_DIGITS]), name, file, partition)

    @property
    def place(self) -> "Place":
        """The partition and the bucket."""
        return self.partition, self.bucket


def groups_of(newest_files: Sequence[File], folder: File, buckets: int) -> dict[Place, FileGroup]:
    """The file groups by their places. `newest_files` has the newest file of each group of the table in `folder`.

    Raises Unfit if a group has no bucket, if its bucket is not below `buckets`, or if two groups have the same place.
    """
    try:
        groups = {group.place: group for group in (FileGroup.of(file, folder) for file in newest_files)}
    except ValueError as error:
        raise Unfit from error
    have_same_place = len(groups) < len(newest_files)
    if have_same_place or any(bucket >= buckets for _, bucket in groups):
        raise Unfit
    return groups


def _group_name(bucket: int, number: uuid.UUID) -> str:
    """The text of the UUID, with the bucket's number in place of its first digits."""
    return f"{bucket:0{_BUCKET_DIGITS}}{str(number)[_BUCKET_DIGITS:]}"


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a data file: its rows, with Hudi's own columns, and the metadata in its footer."""

    rows: pa.Table
    footer: Mapping[bytes, bytes]

    @classmethod
    def of(cls, file: File) -> Self:
        """Read a data file of the table."""
        with files.parquet(file, _FEW_VALUES) as opened:
            # several files are read at a time, so threads within each of them only wait for one another
            return cls(opened.read(use_threads=False), opened.metadata.metadata or {})

    def without_rows(self) -> "Contents":
        """The same columns and footer without rows, as `write_next_file` needs them for a group without files."""
        return Contents(self.rows.slice(0, 0), self.footer)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written as the newest file of its group.

    `size` is in bytes, and `rows` is the number of rows in the file. `inserted`, `updated` and `deleted` are the
    numbers of rows that changes have inserted, updated and deleted. In the first file of a group, all rows count as
    `inserted`.
    """

    group: FileGroup
    name: str
    size: int
    rows: int
    inserted: int
    updated: int
    deleted: int

    @property
    def path(self) -> str:
        """The name relative to the table's folder."""
        return f"{self.group.partition}/{self.name}" if self.group.partition else self.name

    @property
    def stat(self) -> dict[str, Any]:
        """The commit's entry for the file: the fields of Hudi's `HoodieWriteStat` for which the file has a value."""
        previous = self.group.newest
        return {
            "fileId": self.group.name,
            "path": self.path,
            "partitionPath": self.group.partition,
            "prevCommit": "null" if previous is None else previous.stem.rpartition("_")[2],  # Hudi writes this "null"
            "prevBaseFile": None if previous is None else previous.name,
            "numWrites": self.rows,
            "numInserts": self.inserted,
            "numUpdateWrites": self.updated,
            "numDeletes": self.deleted,
            "totalWriteBytes": self.size,
            "fileSizeInBytes": self.size,
        }


def write_next_file(
    commit: Commit, group: FileGroup, previous: Contents, changes: pa.Table | None, gone: pa.Array | None = None
) -> WrittenFile:
    """Apply the changes to the `previous` contents, and write the result as the newest file of the group.

    `previous` has the columns of the new file, and the rows to which the changes are applied: those of the group's
    newest file, or rows that replace all of these. `changes` have the columns RECORD and DELETED; None: no
    changes. `gone` are the record keys whose old rows are left out; None: the keys in `changes`. DELETED is written
    only if the table itself has that column. The new file is durable once `commit.finish` has finished it, but belongs
    to the table only when the commit is completed. Raises Unfit as `rows_for_file`.
    """
    old_rows = previous.rows
    unchanged = old_rows
    new_rows = old_rows.slice(0, 0)  # none
    updated = 0
    if changes is not None:
        changed_keys = changes[RECORD].combine_chunks() if gone is None else gone
        is_changed = pc.is_in(old_rows[RECORD], value_set=changed_keys)
        unchanged = old_rows.filter(pc.invert(is_changed))
        new_rows = rows_for_file(changes, commit.instant, group.place, old_rows.schema, first=len(unchanged))
        replaced_keys = old_rows[RECORD].filter(is_changed).combine_chunks()
        is_update = pc.is_in(new_rows[RECORD], value_set=replaced_keys)
        updated = pc.sum(is_update).as_py() or 0  # the sum is None if there are no new rows
    # Hudi's token has the numbers of a task, of its stage and of its attempt
    name = f"{group.name}_{group.bucket}-0-0_{commit.instant}.parquet"
    rows = pa.concat_tables([unchanged, new_rows]).unify_dictionaries()
    name_column = rows.schema.get_field_index(FILE_NAME)  # in each row, Hudi stores the name of its file
    rows = rows.set_column(
        name_column,
        rows.schema.field(name_column),
        _repeated(name, len(rows)).cast(rows.schema.field(name_column).type),
    )
    relative_path = f"{group.partition}/{name}" if group.partition else name
    if group.partition and group.newest is None:
        make_partition(commit.folder, group.partition, commit.instant)
    commit.mark(relative_path, "CREATE" if group.newest is None else "MERGE")
    with files.written(commit.folder / relative_path, commit.finish) as path:
        # without `store_schema`, PyArrow leaves out the metadata of the schema, too
        dictionaries = commit.dictionaries.columns_of(rows)
        with pq.ParquetWriter(
            path, rows.schema, compression="zstd", store_schema=False, use_dictionary=dictionaries
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata(_footer(previous.footer, rows[RECORD]))
        size = path.stat().st_size
    if group.newest is None:  # without a previous file, all rows count as inserted
        return WrittenFile(group, name, size, len(rows), inserted=len(rows), updated=0, deleted=0)
    inserted = len(new_rows) - updated
    changed = len(old_rows) - len(unchanged)  # the old rows that have a change: it updates or deletes the row
    deleted = changed - updated
    return WrittenFile(group, name, size, len(rows), inserted=inserted, updated=updated, deleted=deleted)


def rows_for_file(rows: pa.Table, instant: str, place: Place, schema: pa.Schema, first: int = 0) -> pa.Table:
    """The rows with all columns of `schema`, the schema of a data file of this place. FILE_NAME is still empty.

    `rows` have the column RECORD. `first` is the number of the first row in Hudi's `_hoodie_commit_seqno`. Rows that
    are DELETED are left out, unless the schema has DELETED. Raises Unfit if `rows` have a column that the schema does
    not have, or a value that does not fit the column's type.
    """
    if DELETED in rows.column_names and DELETED not in schema.names:
        rows = rows.filter(pc.invert(rows[DELETED])).drop_columns(DELETED)
    numbers = pa.array(np.arange(first, first + len(rows))).cast(pa.string())
    partition, bucket = place
    sequence = pc.binary_join_element_wise(f"{instant}_{bucket}_", numbers, "")  # '' is the separator
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    columns |= {"_hoodie_commit_time": _repeated(instant, len(rows)), "_hoodie_commit_seqno": sequence}
    columns |= {_PARTITION_PATH: _repeated(partition, len(rows)), FILE_NAME: _repeated("", len(rows))}
    if partition:
        columns[PARTITION] = columns[_PARTITION_PATH]
    if RECORD_KEY in schema.names:
        columns[RECORD_KEY] = rows[RECORD]
    if set(columns) - set(schema.names):
        raise Unfit
    nulls = pa.nulls(len(rows))  # for columns that the source has dropped and the copy keeps
    values = [columns.get(name, nulls) for name in schema.names]
    try:
        return pa.table(values, schema.names).cast(schema)
    except pa.ArrowInvalid as error:
        raise Unfit from error


def meta_fields() -> list[pa.Field]:
    """The fields of Hudi's own columns, as `Contents` has them."""
    return [pa.field(name, _NUMBERED if name in _FEW_VALUES else pa.string()) for name in META]


def _repeated(text: str, count: int) -> pa.DictionaryArray:
    """A column with this text in each row."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([text], pa.string()))


def _footer(previous: Mapping[bytes, bytes], keys: pa.ChunkedArray) -> dict[bytes, bytes]:
    """The footer of a new file: the calendar of the previous file, and the least and the greatest of `keys`."""
    entries = {name: value for name, value in previous.items() if name in _CALENDAR_ENTRIES}
    extremes = pc.min_max(keys).as_py() if len(keys) else {}
    key_entries = {f"hoodie_{name}_record_key".encode(): key.encode() for name, key in extremes.items()}
    # `entries` wins over _SPARK_VERSION: it has the calendar of the old rows
    return _SPARK_VERSION | entries | key_entries
