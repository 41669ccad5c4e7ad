"""Patches: rows that were read again, as change rows in files of their own until a merge has applied them.

patches/<database>.<table>/<name>.parquet   a patch: `+I` for rows of the read view, `-D` for keys that it lacks

The files of a re-snapshot begin with the number of its signal. They stay until the signal has ended, because they tell
which keys it has read.
"""

import datetime as dt
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.change import RowKind
from lakeingest.core.file_names import file_name
from lakeingest.core.schema import TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.rows import INSTANT, change_schema, table_schema
from lakeingest.spool.errors import spool_errors

BY_FOREIGN_KEYS = 999_999  # instead of a signal: rows are read again because of their foreign keys
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
        """Write a durable patch of keys that a read view has no row of. Returns its name.

        Columns of `keys` beside the key have the last values of the rows.
        """
        fields = table_schema(self.schema)
        columns = [
            keys[field.name].cast(field.type) if field.name in keys.column_names else _empty(field, keys.num_rows)
            for field in fields
        ]
        return self._write(signal, self._changes(pa.table(columns, schema=fields), RowKind.DELETE))

    def file(self, name: str) -> File:
        """The file of a patch. Raises StateUnreadable where it is lost or damaged."""
        path = self.path / f"{name}.parquet"
        try:
            files.parquet_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise StateUnreadable(
                f"{self.schema.table}: {path}, which holds rows that were read again, is gone or damaged: {error};"
                " restore it, or drop the table to copy it again"
            ) from error
        return path

    def rows(self, names: Iterable[str]) -> int:
        """How many rows these patches have."""
        return sum(int(files.parquet_metadata(self.file(name)).num_rows) for name in names)

    def of_signal(self, signal: int) -> list[File]:
        """The files of all patches of a signal."""
        return self.path.listed(f"{signal:06d}-*.parquet")

    def remove(self, signal: int) -> None:
        """Remove the patches of a signal that has ended."""
        with spool_errors(self.path):
            for path in self.path.listed(f"{signal:06d}-*"):
                path.delete()

    def sweep(self, age: dt.timedelta, needed: Collection[int]) -> tuple[int, int]:
        """Delete files that are older than `age` and whose signal is not `needed`. Returns how many files and bytes.

        A run that was killed leaves such files, if its signal ended without it.
        """
        with spool_errors(self.path):
            patches = self.path.listed("*.parquet")
            return files.sweep((path for path in patches if int(path.name.partition("-")[0]) not in needed), age)

    def _write(self, signal: int, changes: pa.Table) -> str:
        name = f"{signal:06d}-{uuid.uuid4().hex}"
        path, bounds = self.path / f"{name}.parquet", list(self.schema.key)
        with spool_errors(self.path):
            self.path.make_folder()
            with files.written(path) as local:
                pq.write_table(
                    changes,
                    local,
                    row_group_size=_GROUP_ROWS,
                    compression="lz4",
                    use_dictionary=False,
                    write_statistics=bounds,
                )
            path.parent.sync()
        return name

    def _changes(self, rows: pa.Table, kind: RowKind) -> pa.Table:
        """Rows as change rows. Their place is empty: the merge knows it, as the patch's low watermark."""
        count = rows.num_rows
        zeros = np.zeros(count, np.int64)
        columns = [
            pa.array(np.full(count, kind.value, np.int8)),
            pa.array(zeros.astype(np.int32)),
            *[pa.array(zeros)] * 3,
            pa.array([_NEVER], INSTANT).take(pa.array(zeros)),
            pa.nulls(count, pa.string()),
        ]
        fields = change_schema(self.schema)
        return pa.table([*columns, *(rows[name] for name in self.schema.names)], schema=fields)


def absent(keys: pa.Table, key: Sequence[str], patches: Iterable[File]) -> pa.Table:
    """Those of these keys that no row of the patches has."""
    remaining = keys
    for file in patches:
        if not remaining.num_rows:
            break
        ends = pc.min_max(remaining[key[0]]).as_py()
        patch = _read(file, key)
        near = pc.and_(pc.greater_equal(patch[key[0]], ends["min"]), pc.less_equal(patch[key[0]], ends["max"]))
        remaining = remaining.join(patch.filter(near), keys=list(key), join_type="left anti", use_threads=False)
    return remaining


def _read(path: File, columns: Sequence[str] | None = None) -> pa.Table:
    try:
        with files.parquet(path) as file:
            return file.read(columns)
    except (OSError, pa.ArrowException) as error:
        raise StateUnreadable(f"{path}, which holds rows that were read again, cannot be read: {error}") from error


def _empty(field: pa.Field, count: int) -> pa.Array:
    """Values without meaning, for columns of a row that is deleted."""
    if field.nullable:
        return pa.nulls(count, field.type)
    if pa.types.is_list(field.type):
        return pa.array([[]] * count, field.type)
    if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
        return pa.array([""] * count).cast(field.type)
    return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(bytes(field.type.bit_width // 8 * count + 1))])
