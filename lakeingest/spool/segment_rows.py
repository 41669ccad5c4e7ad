"""The rows of one decoded segment, from its files: by transactions, and without reading whole files."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from lakeingest.core import change
from lakeingest.core.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool.manifest import Manifest

Place = tuple[int, int]  # of a transaction: the number of its file, and its position


class SegmentRows:
    """The rows of a segment whose files are complete. All files have their rows in the order of the binlog."""

    def __init__(self, folder: File, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._places: dict[TableId, list[Place]] = {}

    @cached_property
    def transactions(self) -> list[Place]:
        """The places of all transactions, in order."""
        return _places(self._folder / self._manifest.transactions, "file", "pos")

    def first_transactions(self) -> Mapping[TableId, int]:
        """By table with rows, the index of its first transaction."""
        files_of_tables = {table: file[0] for table, file in self._manifest.tables.items() if file is not None}
        firsts = {}
        for table, name in files_of_tables.items():
            with files.parquet(self._folder / name) as opened:
                first = files.first_rows(opened, [change.FILE, change.POS], 1).slice(0, 1).to_pylist()
            if first:
                firsts[table] = bisect_left(self.transactions, (first[0][change.FILE], first[0][change.POS]))
        return firsts

    def rows(self, table: TableId, first: Place, last: Place, most: int | None = None) -> pa.Table | None:
        """The change rows of a table from one transaction up to another, at most so many; None if it has no file."""
        file = self._manifest.tables[table]
        if file is None:
            return None
        path = self._folder / file[0]
        if table not in self._places:
            self._places[table] = _places(path, change.FILE, change.POS)
        places = self._places[table]
        begin, end = bisect_left(places, first), bisect_right(places, last)
        end = end if most is None else min(end, begin + most)
        with files.parquet(path) as opened:
            groups = list[int]()  # the row groups with these rows
            at, skipped = 0, 0  # rows: before the next group, and before the first of `groups`
            for number in range(opened.metadata.num_row_groups):
                count = opened.metadata.row_group(number).num_rows
                if at + count <= begin:
                    skipped += count
                elif at < end or not groups:
                    groups.append(number)
                at += count
            return opened.read_row_groups(groups).slice(begin - skipped, end - begin)


def _places(path: File, *names: str) -> list[Place]:
    with files.parquet(path) as opened:
        columns = opened.read(list(names))
    file, pos = (columns[name].to_pylist() for name in names)
    return list(zip(file, pos, strict=True))
