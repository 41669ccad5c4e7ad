"""Patches: rows that were read again, as change rows in files of their own. A merge applies them to the copy.

patches/<database>.<table>/<name>.parquet   a patch: `+I` for rows of the read view, `-D` for keys without a row in it

The file names of a re-snapshot begin with the number of its signal. The files stay until the signal has ended, also
after a merge, because they tell which keys the re-snapshot has read.
"""

import datetime as dt
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.file_names import file_name
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.rows import INSTANT, change_schema, table_schema
from lakeingest.spool.errors import spool_errors

BY_FOREIGN_KEYS = 999_999  # stands for a signal's number if rows are read again because of foreign keys
FOR_QUARANTINE = 999_998  # the same for keys whose rows failed a gate; their file is removed after the commit
_GROUP_ROWS = 100_000
_NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # the rows of a read view have no commit time


@dataclass(frozen=True, slots=True)
class PatchFolder:
    """The patches of one table. It is pickled, so that executors can write patches."""

    path: File
    schema: TableSchema

    @classmethod
    def of(cls, state: File, schema: TableSchema) -> "PatchFolder":
        """The patches of the table in a state folder."""
        return cls(state / "patches" / file_name(str(schema.table)), schema)

    def write_rows(self, signal: int, rows: pa.Table) -> str:
        """Write a durable patch of rows that a read view has. Returns its name."""
        return self._write(signal, self._changes(rows, RowKind.INSERT))

    def write_absent(self, signal: int, keys: pa.Table) -> str:
        """Write a durable patch of keys without a row in a read view. Returns its name.

        `keys` may also have other columns, with the last values of the deleted rows. Each column of the table that
        `keys` lacks gets values without meaning.
        """
        fields = table_schema(self.schema)
        columns = [
            keys[field.name].cast(field.type) if field.name in keys.column_names else _fillers(field, keys.num_rows)
            for field in fields
        ]
        return self._write(signal, self._changes(pa.table(columns, schema=fields), RowKind.DELETE))

    def file(self, name: str) -> File:
        """The file of the patch with this name. Raises StateUnreadable if the file is lost or damaged."""
        path = self.path / f"{name}.parquet"
        try:
            files.parquet_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise StateUnreadable(
                f"{self.schema.table}: {path}, which holds rows that were read again, is gone or damaged: {error};"
                " restore it, or drop the table to copy it again"
            ) from error
        return path

    def count_rows(self, names: Iterable[str]) -> int:
        """The number of rows of these patches. Raises as `file`."""
        return sum(int(files.parquet_metadata(self.file(name)).num_rows) for name in names)

    def of_signal(self, signal: int) -> list[File]:
        """The files of all patches of a signal, in no certain order."""
        return self.path.listed(f"{signal:06d}-*.parquet")

    def remove(self, signal: int) -> None:
        """Remove the patches of a signal that has ended."""
        with spool_errors(self.path):
            for path in self.path.listed(f"{signal:06d}-*"):
                path.delete()

    def sweep(self, age: dt.timedelta, needed: Collection[int]) -> tuple[int, int]:
        """Delete files that are older than `age` and whose signal is not in `needed`. Returns how many files and bytes.

        Such files are left if a run is killed, and their signal then ends without that run.
        """
        with spool_errors(self.path):
            patches = self.path.listed("*.parquet")
            return files.sweep((path for path in patches if int(path.name.partition("-")[0]) not in needed), age)

    def _write(self, signal: int, changes: pa.Table) -> str:
        """Write change rows as a durable patch of a signal. Returns the patch's name."""
        name = f"{signal:06d}-{uuid.uuid4().hex}"
        path = self.path / f"{name}.parquet"
        with spool_errors(self.path):
            self.path.make_folder()
            with files.written(path) as local:
                pq.write_table(
                    changes,
                    local,
                    row_group_size=_GROUP_ROWS,
                    compression="lz4",
                    use_dictionary=False,
                    write_statistics=list(self.schema.key),  # `collapse` needs the bounds of keys
                )
            path.parent.sync()
        return name

    def _changes(self, rows: pa.Table, kind: RowKind) -> pa.Table:
        """Rows as change rows of one kind. Their places are zeros, because a merge uses the patch's low watermark."""
        count = rows.num_rows
        zeros = np.zeros(count, np.int64)
        columns = [  # the columns of `change.ORIGIN`
            pa.array(np.full(count, kind.value, np.int8)),
            pa.array(zeros.astype(np.int32)),  # the epoch
            *[pa.array(zeros)] * 3,  # file, position and ordinal
            pa.array([_NEVER], INSTANT).take(pa.array(zeros)),  # the commit time: `_NEVER` for each row
            pa.nulls(count, pa.string()),  # the GTID
        ]
        fields = change_schema(self.schema)
        return pa.table([*columns, *(rows[name] for name in self.schema.names)], schema=fields)


def keys_not_in(patches: Iterable[File], keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """Those rows of `keys` whose key is in no row of the patches. `key` names the columns of the key."""
    remaining = keys
    for file in patches:
        if not remaining.num_rows:  # no key is left, and `min_max` below needs one
            break
        # a cheap filter by the first column of the key makes the join small
        bounds = pc.min_max(remaining[key[0]]).as_py()
        patch_keys = _read(file, key)
        values = patch_keys[key[0]]
        is_in_bounds = pc.and_(pc.greater_equal(values, bounds["min"]), pc.less_equal(values, bounds["max"]))
        near_keys = patch_keys.filter(is_in_bounds)
        remaining = remaining.join(near_keys, keys=list(key), join_type="left anti", use_threads=False)
    return remaining


def _read(path: File, columns: Sequence[str] | None = None) -> pa.Table:
    """These columns of a patch; all its columns for None. Raises StateUnreadable if it cannot be read."""
    try:
        with files.parquet(path) as file:
            return file.read(columns)
    except (OSError, pa.ArrowException) as error:
        raise StateUnreadable(f"{path}, which holds rows that were read again, cannot be read: {error}") from error


def _fillers(field: pa.Field, count: int) -> pa.Array:
    """Values without meaning, for a column of deleted rows: NULL if the column allows it, else empty or zero."""
    if field.nullable:
        return pa.nulls(count, field.type)
    if pa.types.is_list(field.type):
        return pa.array([[]] * count, field.type)
    if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
        return pa.array([""] * count).cast(field.type)
    zeros = bytes((field.type.bit_width * count + 7) // 8)  # rounded up to bytes, because a Boolean takes one bit
    return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(zeros)])
