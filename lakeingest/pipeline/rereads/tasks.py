"""Tasks of executors in a re-snapshot: read rows again, and find the rows and keys in which the copy differs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakeingest.config import Source
from lakeingest.core.chunks import Cost
from lakeingest.core.keys import KeyRange
from lakeingest.core.position import FilePosition, Low
from lakeingest.core.schema import TableSchema
from lakeingest.errors import of_table
from lakeingest.files.file import File
from lakeingest.lake.target import RowReader
from lakeingest.mysql.chunk_reader import Cap, read_rows, read_stable
from lakeingest.mysql.key_values import key_table
from lakeingest.pipeline.rereads.differences import differences
from lakeingest.rows import source_rows, table_schema
from lakeingest.spool.collapse import within
from lakeingest.spool.patch_files import PatchFolder, keys_not_in

_NUMBER = "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows that one task reads again: they meet one of the conditions, and their keys are within the range.

    `listed` are their keys, if they are listed.
    """

    conditions: tuple[str, ...]
    within: KeyRange
    listed: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Patched:
    """Patches that one task has written, all of one read view.

    `written` is the number of rows in them. `gone` are keys of the copy without a row in the view. `to_mark` are listed
    keys: if the view has no row for one, its row stays in the copy, marked as deleted.
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


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The task of one executor: read rows in one view, and write them, and listed keys without a row, to patches.

    `copy` reads the copy's rows with the chunk's keys: rows that are the same there are not written. None: all rows are
    written. The copy has every change from before the request. So a row that is the same there needs no patch: the next
    merges take later changes of it from the binlog.
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

    def run(self) -> Patched:
        """Read and write the rows. The patches are durable when this returns, and nothing refers to them."""
        began = time.monotonic()
        with of_table():
            chunk = self.source, self.schema, self.chunk.conditions, self.server_uuid, self.epoch
            read = read_stable(lambda: read_rows(*chunk, cap=self.cap, settled=self.settled))
        rows, gone = (read.rows, None) if self.copy is None else self._differences(read.rows, self.copy)
        names = [] if self.copy is not None and not rows.num_rows else [self.patches.write_rows(self.signal, rows)]
        if self.chunk.listed and not self.schema.keeps_deleted:
            missing = _without(key_table(self.schema, self.chunk.listed), read.rows, self.schema.key)
            if missing.num_rows:
                names.append(self.patches.write_absent(self.signal, missing))
        cost = Cost(read.rows.num_rows, read.rows.nbytes, time.monotonic() - began)
        to_mark = self.chunk.listed if self.schema.keeps_deleted else ()
        nulled = read.nulled if names else 0
        return Patched(tuple(names), self.chunk.within, read.low, read.high, cost, nulled, rows.num_rows, gone, to_mark)

    def _differences(self, rows: pa.Table, readers: Sequence[RowReader]) -> tuple[pa.Table, pa.Table]:
        """The rows that differ from the copy's rows, and the keys of the chunk that only the copy has."""
        parts = [source_rows(reader.read(), self.schema) for reader in readers]
        copy, key = pa.concat_tables([table_schema(self.schema).empty_table(), *parts]), self.schema.key
        is_within = np.broadcast_to(within(copy, key, self.chunk.within), copy.num_rows)
        return differences(rows, copy.filter(pa.array(is_within)), key)


@dataclass(frozen=True, slots=True)
class FindAbsent:
    """The task of one executor: find the keys in a part of the copy that have no row in these files of patches."""

    reader: RowReader
    files: tuple[File, ...]
    key: tuple[str, ...]
    types: pa.Schema

    def run(self) -> pa.Table:
        """The keys, with the types of the source."""
        keys = self.reader.read().select(list(self.key)).cast(self.types)
        return keys_not_in(self.files, keys, self.key).cast(self.types)


@dataclass(frozen=True, slots=True)
class FindPresent:
    """The task of one executor: find rows in a part of the copy that have these keys and are not marked as deleted."""

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


def _without(keys: pa.Table, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys that no row has."""
    return keys.join(rows.select(list(key)), keys=list(key), join_type="left anti", use_threads=False)
