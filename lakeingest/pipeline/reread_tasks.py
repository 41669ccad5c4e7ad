"""Tasks of executors in a re-snapshot: read rows again, and find the keys of the copy that the source has no row of."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeingest.config import Source
from lakeingest.core.chunks import Cost
from lakeingest.core.keys import KeyRange
from lakeingest.core.position import FilePosition, Low
from lakeingest.core.schema import TableSchema
from lakeingest.errors import of_table
from lakeingest.lake.target import KeyReader
from lakeingest.mysql.chunk_reader import Cap, read_rows, read_stable
from lakeingest.mysql.key_values import key_table
from lakeingest.rows import source_rows
from lakeingest.spool.patch_files import PatchFolder, absent

_NUMBER = "_lakeingest_number"


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one task reads again: rows that meet the conditions, of keys within a range, and maybe listed keys."""

    conditions: tuple[str, ...]
    within: KeyRange
    listed: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Patched:
    """Patches that one task has written, all of one read view.

    `to_mark` are listed keys whose rows stay in the copy, marked as deleted, if the view has no row of them.
    """

    names: tuple[str, ...]
    within: KeyRange
    low: Low
    high: FilePosition
    cost: Cost
    nulled: int
    to_mark: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The task of one executor: read rows in one view, write them to a patch; and one of listed keys without a row."""

    source: Source
    schema: TableSchema
    chunk: Chunk
    signal: int
    server_uuid: str
    epoch: int
    cap: Cap
    patches: PatchFolder

    def run(self) -> Patched:
        """The patches are durable when this returns, and nothing refers to them."""
        began = time.monotonic()
        with of_table():
            asked = self.source, self.schema, self.chunk.conditions, self.server_uuid, self.epoch
            read = read_stable(lambda: read_rows(*asked, cap=self.cap))
        names = [self.patches.write_rows(self.signal, read.rows)]
        if self.chunk.listed and not self.schema.keeps_deleted:
            missing = _without(key_table(self.schema, self.chunk.listed), read.rows, self.schema.key)
            if missing.num_rows:
                names.append(self.patches.write_absent(self.signal, missing))
        cost = Cost(read.rows.num_rows, read.rows.nbytes, time.monotonic() - began)
        to_mark = self.chunk.listed if self.schema.keeps_deleted else ()
        return Patched(tuple(names), self.chunk.within, read.low, read.high, cost, read.nulled, to_mark)


@dataclass(frozen=True, slots=True)
class FindAbsent:
    """The task of one executor: of the keys of a part of the copy, those that patches have no row of.

    `files` has by range the files of the patches.
    """

    reader: KeyReader
    files: tuple[tuple[KeyRange, tuple[str, ...]], ...]
    key: tuple[str, ...]
    types: pa.Schema

    def run(self) -> list[pa.Table]:
        """The keys of each range, with the types of the source."""
        keys = self.reader.read().select(list(self.key)).cast(self.types)
        return [absent(keys, self.key, files, within).cast(self.types) for within, files in self.files]


@dataclass(frozen=True, slots=True)
class FindPresent:
    """The task of one executor: of a part of the copy the rows that have these keys, and are not marked as deleted."""

    reader: KeyReader
    keys: pa.Table
    schema: TableSchema

    def run(self) -> pa.Table:
        """The rows, with the types of the source."""
        rows = source_rows(self.reader.read(), self.schema)
        key = list(self.schema.key)
        numbered = rows.select(key).append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
        found = numbered.join(self.keys.select(key), keys=key, join_type="left semi", use_threads=False)
        return rows.take(found[_NUMBER].sort())


def _without(keys: pa.Table, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Of the keys those that no row has."""
    return keys.join(rows.select(list(key)), keys=list(key), join_type="left anti", use_threads=False)
