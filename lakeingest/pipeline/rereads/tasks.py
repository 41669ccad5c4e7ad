"""Tasks of executors in a re-snapshot: read rows again, and find the rows and keys in which the copy differs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, Low
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Cost
from lakeingest.errors import of_table
from lakeingest.files.file import File
from lakeingest.lake.target import RowReader
from lakeingest.mysql.chunk_reader import Cap, read_rows, read_stable
from lakeingest.mysql.key_values import key_table
from lakeingest.pipeline.rereads.differences import differences
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.rows import optional, source_rows, table_schema
from lakeingest.spool.collapse import within
from lakeingest.spool.patch_files import PatchFolder, keys_not_in

_NUMBER = "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows that one task reads again: each row meets one of the `conditions`, and its key is in the range `within`.

    `listed`: the keys of these rows, if they were chosen by a list of keys; else empty.
    """

    conditions: tuple[str, ...]
    within: KeyRange
    listed: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Patched:
    """Patches that one task has written, all from one read view.

    `written`: the number of rows of the view in these patches. `gone`: the keys of the copy that have no row in the
    view; None if the rows were not compared with the copy. `to_mark`: listed keys of a copy that keeps deleted rows: if
    a key has no row in the view, the copy's row of this key is marked as deleted. `sound`: the rows of the view were
    checked and agree with the table's definition; True also if they were not to be checked.
    """

    names: tuple[str, ...]
    within: KeyRange
    low: Low
    high: FilePosition
    cost: Cost
    nulled: int
    written: int
    gone: pa.Table | None = None
    to_mark: tuple[Mapping[str, Any], ...] = ()
    sound: bool = True


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The task of one executor: read the rows of a chunk in one read view, and write them to patches.

    Listed keys that have no row in the view are written to a patch, too.

    `copy`: what reads the copy's rows that have keys of the chunk. Each row is compared with the copy, and only rows
    that differ are written: of an equal row, the copy has every change from before the request, and the next merges
    take later changes from the binlog. None: the rows are not compared, and all rows are written.

    `checks`: the rows of the view are checked, because the rows of the copy never were.
    """

    source: Source
    schema: TableSchema
    chunk: Chunk
    signal: int
    server_uuid: str
    epoch: int
    settled: FilePosition
    cap: Cap
    patches: PatchFolder
    copy: tuple[RowReader, ...] | None = None
    checks: bool = False

    def run(self) -> Patched:
        """Read and write the rows. When this returns, the patches are durable, and nothing refers to them yet."""
        began = time.monotonic()
        with of_table():
            what = self.source, self.schema, self.chunk.conditions, self.server_uuid, self.epoch
            read = read_stable(lambda: read_rows(*what, cap=self.cap, settled=self.settled))
        # Step 1: write the rows to a patch, even if there are none; but if rows were compared and none differs, there
        # is no patch. The run itself makes the patch of `gone`, the keys that only the copy has
        rows, gone, are_all_same = read.rows, None, False
        if self.copy is not None:
            rows, gone = self._differences(read.rows, self.copy)
            are_all_same = not rows.num_rows
        names = [] if are_all_same else [self.patches.write_rows(self.signal, rows)]
        # Step 2: listed keys without a row are deleted from the copy, or marked by the run if it keeps deleted rows
        if self.chunk.listed and not self.schema.keeps_deleted:
            absent = _keys_not_in(read.rows, key_table(self.schema, self.chunk.listed), self.schema.key)
            if absent.num_rows:
                names.append(self.patches.write_absent(self.signal, absent))
        return Patched(
            tuple(names),
            self.chunk.within,
            read.low,
            read.high,
            cost=Cost(read.seen.rows, read.seen.bytes, time.monotonic() - began),
            nulled=read.nulled if names else 0,  # without a patch, no value gets into the copy
            written=rows.num_rows,
            gone=gone,
            to_mark=self.chunk.listed if self.schema.keeps_deleted else (),
            sound=not self.checks or is_sound(default_suite(self.schema, read.rows.num_rows), read.rows),
        )

    def _differences(self, rows: pa.Table, readers: Sequence[RowReader]) -> tuple[pa.Table, pa.Table]:
        """The rows that differ from the copy's rows, and the keys of the chunk that only the copy has."""
        types, key = table_schema(self.schema), self.schema.key
        keys = pa.schema([types.field(name).with_nullable(True) for name in key])
        parts = []
        for reader in readers:
            found = reader.read()  # maybe of a large file, of which the chunk has a small part
            is_within = within(found.select(list(key)).cast(keys), key, self.chunk.within)
            chosen = _chosen(found, np.broadcast_to(is_within, found.num_rows))  # `is_within` may be a single True
            parts.append(source_rows(chosen, self.schema, nullable=True))
        copy = pa.concat_tables([optional(types).empty_table(), *parts])
        differing, gone = differences(rows.cast(optional(types)), copy, key)
        return differing.cast(types), gone


def _chosen(rows: pa.Table, is_chosen: "np.ndarray") -> pa.Table:
    """The chosen rows. If they follow each other without a gap, they are a slice, and nothing is copied."""
    numbers = np.flatnonzero(is_chosen)
    if not len(numbers):
        return rows.slice(0, 0)
    first, count = int(numbers[0]), len(numbers)
    return rows.slice(first, count) if numbers[-1] - first + 1 == count else rows.take(numbers)


@dataclass(frozen=True, slots=True)
class FindAbsent:
    """The task of one executor: find the keys of a part of the copy that have no row in these files of patches."""

    reader: RowReader
    files: tuple[File, ...]
    key: tuple[str, ...]
    types: pa.Schema

    def run(self) -> pa.Table:
        """The keys of the copy that no patch has, with the types `types`."""
        keys = self.reader.read().select(list(self.key)).cast(self.types)
        # cast again, because the caller concatenates tables of exactly these types, and a join has made this table
        return keys_not_in(self.files, keys, self.key).cast(self.types)


@dataclass(frozen=True, slots=True)
class FindPresent:
    """The task of one executor: find rows with these keys in a part of the copy, without rows marked as deleted."""

    reader: RowReader
    keys: pa.Table
    schema: TableSchema

    def run(self) -> pa.Table:
        """The rows, with the types of the source."""
        rows = source_rows(self.reader.read(), self.schema)
        key = list(self.schema.key)
        numbered = rows.select(key).append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
        matching = numbered.join(self.keys.select(key), keys=key, join_type="left semi", use_threads=False)
        return rows.take(matching[_NUMBER].sort())


def _keys_not_in(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """The `keys` that no row has. `key`: the names of the key columns."""
    return keys.join(rows.select(list(key)), keys=list(key), join_type="left anti", use_threads=False)
