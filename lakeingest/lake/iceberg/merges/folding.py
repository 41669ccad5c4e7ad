"""Folding: `maintain` writes the rows of small files back into the large files that their keys lie between.

A publish writes the new values of updated rows to a small file, and marks the old ones as deleted in large files. If
each file were only written anew, the small file would stay beside large ones with fewer rows: one file more to open
than in a fresh copy, with keys of the whole table, so that each merge would read it. Folding takes no more rewriting:
`maintain` writes large files with deleted rows anew in any case. Nothing relies on it: a row may be in any file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakeingest.lake.iceberg.files.data_files import are_within, bounds_of, write_rows
from lakeingest.lake.iceberg.storage.metadata import TableFiles

SMALL_ROWS = 50_000  # a data file with fewer rows is small
ROWS_AT_ONCE = 500_000  # a commit combines at most so many rows of a partition, which are in memory together


@dataclass(frozen=True, slots=True)
class Group:
    """Data files of a partition whose living rows are written to new files.

    `files`: their rows become one file, but a row goes to the first of `homes` whose keys are around its own. `homes`:
    each of them becomes a file of its own.
    """

    files: Sequence[DataFile]
    homes: Sequence[DataFile] = ()

    @property
    def all_files(self) -> tuple[DataFile, ...]:
        """Every file that is written anew."""
        return (*self.files, *self.homes)


def write_groups(
    table: TableFiles, groups: Sequence[Group], living: Callable[[DataFile], Sequence[pa.Table]]
) -> list[DataFile]:
    """Write the living rows of each group to new files; no file if there are none.

    `living` reads the rows of a file that are not deleted, in one table; in none if all are deleted. Homes are read one
    after the other.
    """
    return [made for group in groups for made in _write(table, group, living)]


def _write(table: TableFiles, group: Group, living: Callable[[DataFile], Sequence[pa.Table]]) -> list[DataFile]:
    parts = [part for file in group.files for part in living(file)]
    moving = pa.concat_tables(parts) if parts else None
    key = _key_of(table.metadata.schema())
    made: list[DataFile] = []
    for home in group.homes:
        rows = list(living(home))
        if moving is not None:
            is_home = _has_keys_of(home, key, moving)
            taken, moving = moving.filter(is_home), moving.filter(pc.invert(is_home))
            if taken.num_rows:
                rows = _files_of(_in_order(pa.concat_tables([*rows, taken]), key), home.record_count)
        for part in rows:
            made += write_rows(table, part)
    if moving is not None:
        made += write_rows(table, _in_order(moving, key) if len(group.files) > 1 else moving)
    return made


def groups_by_key(schema: Schema, files: Sequence[DataFile], dead: Mapping[str, int]) -> list[Group]:
    """The files of a partition that `maintain` rewrites: all small files, and large files with dead rows.

    `dead` has the number of dead rows of each file. A large file around the keys of another one counts as a small one:
    it is from commits that changed rows of the whole table. Rows of up to ROWS_AT_ONCE such files go to the other large
    files that are rewritten. A single small file is rewritten only if it has dead rows, or keys of one of those.
    """
    ranges = {file.file_path: _range(file, _key_of(schema)) for file in files}
    large = [file for file in files if file.record_count >= SMALL_ROWS and dead.get(file.file_path)]
    [small, *more_small] = _small_groups(files) or [[]]
    around = sorted(_around_others(large, ranges), key=lambda file: file.record_count)
    rows = accumulate((file.record_count for file in around), initial=sum(file.record_count for file in small))
    wide = [file for file, most in zip(around, islice(rows, 1, None), strict=True) if most <= ROWS_AT_ONCE]
    # rows go to the first home that their keys are in: one with few other keys
    homes = [file for file in large if ranges[file.file_path] is not None and file not in around]
    homes += [file for file in around if file not in wide]
    is_left = len(small) == 1 and not wide and not dead.get(small[0].file_path)
    if is_left and not any(_overlap(ranges[small[0].file_path], ranges[home.file_path]) for home in homes):
        small = []
    groups = [Group((*small, *wide), homes)] if small or homes else []
    groups += [Group(group) for group in more_small if len(group) > 1 or dead.get(group[0].file_path)]
    return groups + [Group((file,)) for file in large if ranges[file.file_path] is None]


def _small_groups(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """The small files, in groups of up to ROWS_AT_ONCE rows."""
    groups: list[list[DataFile]] = []
    group_rows = 0
    for file in (file for file in files if file.record_count < SMALL_ROWS):
        if not groups or group_rows + file.record_count > ROWS_AT_ONCE:
            groups.append([])
            group_rows = 0
        groups[-1].append(file)
        group_rows += file.record_count
    return groups


@dataclass(frozen=True, slots=True)
class _Range:
    """The bounds of a file's keys: of each column of the key, the least and the greatest value."""

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]

    @classmethod
    def of(cls, bounds: Sequence[tuple[Any, Any]]) -> Self:
        """The range with these bounds of each column."""
        return cls(tuple(least for least, _ in bounds), tuple(greatest for _, greatest in bounds))


def _range(file: DataFile, key: Sequence[NestedField]) -> _Range | None:
    """The range of a file's keys; None if the table has no key, or the file has no bounds of a column of the key."""
    bounds = [found for field in key if (found := bounds_of(file, field)) is not None]
    return _Range.of(bounds) if bounds and len(bounds) == len(key) else None


def _overlap(one: _Range | None, other: _Range | None) -> bool:
    """Whether the ranges of two files' keys may overlap; True if a range is unknown."""
    if one is None or other is None:
        return True
    columns = range(len(one.least))
    return all(one.least[c] <= other.greatest[c] and other.least[c] <= one.greatest[c] for c in columns)


def _around_others(files: Sequence[DataFile], ranges: Mapping[str, _Range | None]) -> list[DataFile]:
    """The files whose range has the range of another file in it. Of files with the same range, the last is left out."""
    known = [(file, found) for file in files if (found := ranges[file.file_path]) is not None]
    if not known:
        return []
    # for each end of the ranges and column, the places of the files' values among all values of the column
    least, greatest = [], []
    for column in range(len(known[0][1].least)):
        ends = [(found.least[column], found.greatest[column]) for _, found in known]
        place = {value: number for number, value in enumerate(sorted({value for pair in ends for value in pair}))}
        least.append([place[low] for low, _ in ends])
        greatest.append([place[high] for _, high in ends])
    lows, highs = np.array(least), np.array(greatest)
    around = []
    for number, (file, _) in enumerate(known):
        low, high = lows[:, number, None], highs[:, number, None]
        is_in = ((lows >= low) & (highs <= high)).all(axis=0)
        is_same = ((lows == low) & (highs == high)).all(axis=0)
        is_same[number + 1 :] = False  # of those with the same range, the later ones are in it
        if (is_in & ~is_same).any():
            around.append(file)
    return around


def _key_of(schema: Schema) -> list[NestedField]:
    """The columns of the key; none for a table without a key."""
    return [schema.find_field(field_id) for field_id in schema.identifier_field_ids]


def _has_keys_of(file: DataFile, key: Sequence[NestedField], rows: pa.Table) -> pa.ChunkedArray:
    """For each row, whether its key is within the bounds of the file's keys. A key with NULL is not."""
    is_within = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
    for field in key:
        is_within = pc.and_(is_within, are_within(rows[field.name], bounds_of(file, field)))
    return pc.fill_null(is_within, False)


def _files_of(rows: pa.Table, former: int) -> list[pa.Table]:
    """The rows of each new file of a home that had so many rows: of several files if it has become too large."""
    count = 1 if rows.num_rows <= max(ROWS_AT_ONCE, former) else -(-rows.num_rows // ROWS_AT_ONCE)  # rounded up
    ends = [rows.num_rows * number // count for number in range(count + 1)]
    return [rows.slice(start, stop - start) for start, stop in pairwise(ends)]


def _in_order(rows: pa.Table, key: Sequence[NestedField]) -> pa.Table:
    """The rows in the order of their keys; as they are, if the table has no key."""
    return rows.sort_by([(field.name, "ascending") for field in key]) if key else rows
