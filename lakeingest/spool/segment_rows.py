"""The rows of one decoded segment, from its files: by transactions, and without reading whole files.

A segment may have tens of millions of rows. So of each file, at most one row group is in memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool.manifest import Manifest

Place = tuple[int, int]  # of a transaction: the number of its file, and its position

_BATCH_ROWS = 16_384  # of a row group, of which some rows are wanted


class _Places:
    """The places of the rows of a file, in order. Only the row group that was asked for last is in memory."""

    def __init__(self, path: File, names: tuple[str, str]) -> None:
        self._path, self._names = path, names
        metadata = files.parquet_metadata(path)
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *counts])  # of each row group: its first row; at the end: the number of all rows
        self._group = -1  # the number of the row group in memory; −1 if there is none
        self._file = self._pos = np.zeros(0, np.int64)  # of this row group

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Place:
        group = int(np.searchsorted(self._starts, index, side="right")) - 1  # the last one that starts at or before it
        if group != self._group:
            with files.parquet(self._path) as opened:
                columns = opened.read_row_group(group, list(self._names), use_threads=False)
            self._file, self._pos = (columns[name].to_numpy() for name in self._names)
            self._group = group
        within = index - int(self._starts[group])
        return int(self._file[within]), int(self._pos[within])


class SegmentRows:
    """The rows of a segment whose files are complete. All files have their rows in the order of the binlog."""

    def __init__(self, folder: File, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._places: dict[TableId, _Places] = {}

    @cached_property
    def transactions(self) -> "_Places":
        """The places of all transactions, in order."""
        return _Places(self._folder / self._manifest.transactions, ("file", "pos"))

    @property
    def changed(self) -> dict[TableId, int]:
        """The tables with rows, and how many rows they have."""
        return {table: file[1] for table, file in self._manifest.tables.items() if file is not None and file[1]}

    def first_transaction(self, tables: Collection[TableId]) -> int:
        """The number of the first transaction that changes one of the tables, which have rows."""
        return bisect_left(self.transactions, min(self._places_of(table)[0] for table in tables))

    def _places_of(self, table: TableId) -> _Places:
        """The places of the rows of a table that has rows."""
        file = self._manifest.tables[table]
        assert file is not None  # noqa: S101 - callers ask for tables with rows
        if table not in self._places:
            self._places[table] = _Places(self._folder / file[0], (change.FILE, change.POS))
        return self._places[table]

    def rows(self, table: TableId, first: Place, last: Place, most: int | None = None) -> pa.Table:
        """The change rows of a table with rows, from the transaction `first` to `last`, both included.

        At most the first `most` of them; None: all.
        """
        places, file = self._places_of(table), self._manifest.tables[table]
        begin, end = bisect_left(places, first), bisect_right(places, last)
        end = end if most is None else min(end, begin + most)
        assert file is not None  # noqa: S101 - see `_places_of`
        with files.parquet(self._folder / file[0]) as opened:
            groups = list[int]()  # the row groups with these rows
            at, skipped = 0, 0  # numbers of rows: before the next group, and before the first of `groups`
            for number in range(opened.metadata.num_row_groups):
                count = opened.metadata.row_group(number).num_rows
                if at + count <= begin:
                    skipped += count
                elif at < end:
                    groups.append(number)
                at += count
            wanted = list[pa.RecordBatch]()  # a slice would keep its whole row group in memory
            at = skipped  # the number of rows before the next batch
            for batch in opened.iter_batches(_BATCH_ROWS, groups, use_threads=False):
                if at + batch.num_rows > begin:
                    wanted.append(batch.slice(max(0, begin - at), end - max(begin, at)))
                at += batch.num_rows
                if at >= end:  # later pages are not decoded
                    break
            return pa.Table.from_batches(wanted, opened.schema_arrow)
