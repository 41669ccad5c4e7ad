"""Collapse of the spooled changes in Arrow: the fast form of `core.waves.wave`'s filter, and of `core.waves.collapse`.

A property test holds this module equal to the core. At first only the keys are read. Then the complete rows of the last
changes are taken from the files by their row numbers. Files and their rows are in binlog order, so a later row is a
later change.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables import change
from lakeingest.core.tables.change import DELETED, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.wave import Mark
from lakeingest.errors import UnsupportedValue
from lakeingest.files.file import File, is_large
from lakeingest.rows import few_integers, last_of_each, with_change_metadata
from lakeingest.spool.errors import opened_file

_ORDER = "_lakeingest_order"  # a column with each row's number, counted over all files
_WIDE = pa.decimal128(20)  # holds every integer key, signed and unsigned
_PART_ROWS = 500_000  # rows of a file whose keys are in memory at the same time
_SAMPLES = 16  # at most how many row groups `cut` reads
_SAMPLE_VALUES = 2_000  # at most how many values are kept of a row group: one of a large transaction has a million
_DELETES = [kind.value for kind in RowKind if kind.is_delete]


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of values of a column, in Arrow's order: `lower` is included, `upper` is not. None means no bound."""

    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None

    def has(self, column: pa.ChunkedArray) -> "np.ndarray | bool":
        """For each value of a column, whether it is in the slice. A single True if the slice has no bounds."""
        is_from_lower = self.lower is None or pc.greater_equal(column, self.lower).to_numpy()
        is_below_upper = self.upper is None or pc.less(column, self.upper).to_numpy()
        return is_from_lower & is_below_upper


@dataclass(frozen=True, slots=True)
class Collapsed:
    """The last change of each key: `changes` has the key's columns, and whether the change deletes the row.

    `files` and `rows` have, for each change, the number of its file and its row number in that file. `read` and
    `applied` count change rows before and after the filter.
    """

    changes: pa.Table
    files: "np.ndarray"
    rows: "np.ndarray"
    read: int
    applied: int


def collapsed(
    files: Sequence[File],
    key: Sequence[str],
    marks: Sequence[Mark],
    stop: Place,
    part: Slice,
    patches: Sequence[Place] = (),
) -> Collapsed:
    """The last needed change of each key in the files, of which there is at least one, up to `stop`.

    A change is needed if it is after the mark of its key's split. Raises UnsupportedValue if a key is NULL.

    `part` is a slice of the first column of `key`: keys outside of the slice are left out. `patches` has the places of
    patches, in order; their files are the first ones of `files`. A patch has the effect of every change of its keys up
    to its place. So of a patched key only the row in the patch and the changes after the patch's place are needed.
    """
    earliest = min([*patches, *(mark for _, mark in marks)])  # no change up to this place is needed
    read_count = 0
    starts = [0]  # the number of each file's first row, and of the row after the last file
    needed: list[pa.Table] = []
    patched: list[tuple[Place, pa.Table]] = []  # the place and the keys of each part of a patch
    for number, file in enumerate(files):
        is_patch = number < len(patches)  # all rows of a patch are needed
        end = starts[-1]
        for rows in _keys_of_changes(file, key, end):  # only the needed rows of each part stay in memory
            end += rows.num_rows
            in_part = np.broadcast_to(part.has(rows[key[0]]), rows.num_rows)  # `has` can give a single True
            if is_patch:
                changes = rows.filter(in_part)
                patched.append((patches[number], changes.select(list(key))))
                is_needed = np.ones(changes.num_rows, bool)
            else:
                changes = rows.filter(in_part & _is_after(rows, earliest) & ~_is_after(rows, stop))
                is_needed = _is_after_mark(changes, key, marks)
                for place, keys in patched:  # for a patched key, the place of its last patch decides, not the mark
                    is_needed = np.where(_is_among(changes, key, keys), _is_after(changes, place), is_needed)
            read_count += changes.num_rows
            needed.append(changes.filter(is_needed))
        starts.append(end)
    # the last row of each key is the row with the greatest `_ORDER`
    applied = pa.concat_tables(needed)
    row_orders = applied[_ORDER].to_numpy()  # ascending
    if (integers := few_integers(applied.select(list(key)).columns)) is not None:
        places = last_of_each(integers)
    else:
        last = applied.group_by(list(key), use_threads=False).aggregate([(_ORDER, "max")])
        places = np.searchsorted(row_orders, np.sort(last[f"{_ORDER}_max"].to_numpy()))
    orders, last_rows = row_orders[places], applied.take(pa.array(places))
    file_numbers = np.searchsorted(starts, orders, side="right") - 1  # the last file that starts at or before the row
    row_numbers = orders - np.array(starts)[file_numbers]  # within each row's file
    last_changes = last_rows.select(list(key)).append_column(DELETED, _deletes(last_rows))
    return Collapsed(last_changes, file_numbers, row_numbers, read_count, applied.num_rows)


def cut(files: Sequence[File], name: str, parts: int) -> list[Slice]:
    """At most `parts` slices of the column `name`, with about equally many change rows, estimated from a sample.

    The files have rows, unless `parts` is 1. The slices together have all values.
    """
    if parts == 1:  # a slice without bounds needs no sample
        return [Slice()]
    groups = [(file, index) for file in files for index in range(_metadata(file).num_row_groups)]
    sampled = groups[:: -(-len(groups) // _SAMPLES)]  # the step is rounded up, so at most `_SAMPLES` groups are read
    column = pa.concat_tables(_sample(file, index, name) for file, index in sampled)[name]
    ordered = column.take(pc.sort_indices(column))
    count = len(ordered)
    cuts = [ordered[count * part // parts] for part in range(1, parts)]  # the first value of each later slice
    bounds = dict.fromkeys(cuts)  # fewer slices if several bounds are equal
    return [Slice(lower, upper) for lower, upper in pairwise([None, *bounds, None])]


def bounds_of(files: Sequence[File], name: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a key column in the files, from the statistics of their row groups.

    None if a row group has no statistics of the column: Parquet records no values of more than 4 KB. There is at least
    one row group.
    """
    ends: list[Any] = []
    for file in files:
        metadata = _metadata(file)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            # exactly one column has this name
            [statistics] = [column.statistics for column in columns if column.path_in_schema == name]
            if statistics is None or not statistics.has_min_max:
                return None
            ends += (statistics.min, statistics.max)
    return min(ends), max(ends)


def row_bytes(file: File) -> float:
    """The bytes of a row, on average in the row group whose rows are the largest; 0 without a row group."""
    metadata = _metadata(file)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0.0)


def take(file: File, rows: "np.ndarray", stop: Place, *, deleted: bool, schema: TableSchema | None = None) -> pa.Table:
    """The rows of a file with these ascending numbers, at least one, and the metadata columns of a copy of `schema`.

    With `deleted`, another column says whether each row deletes its key. In metadata columns, rows of a patch
    have the place `stop`, because their own place is not known.
    """
    has_metadata = schema is not None and bool(schema.metadata)
    origin = [change.KIND, *change.PLACE, change.COMMITTED_AT] if has_metadata else [change.KIND]
    changes = rows_at(file, rows, origin)
    names = [name for name in changes.column_names if name not in change.ORIGIN]
    taken = changes.select(names)
    if schema is not None and has_metadata:
        taken = with_change_metadata(taken, schema, changes, stop)
    return taken.append_column(DELETED, _deletes(changes)) if deleted else taken


def rows_at(file: File, rows: "np.ndarray", origin: Sequence[str]) -> pa.Table:
    """The rows of a file with these ascending numbers, at least one: the table's columns, then the columns `origin`.

    `origin` names some columns of `core.tables.change.ORIGIN`.
    """
    with opened_file(file) as opened:
        names = [name for name in opened.schema_arrow.names if name not in change.ORIGIN]
        starts = _starts(opened.metadata.row_group(index).num_rows for index in range(opened.num_row_groups))
        groups = np.searchsorted(starts, rows, side="right") - 1  # for each row, the number of its row group
        in_threads = is_large(opened)
        parts = [
            opened.read_row_group(index, [*names, *origin], use_threads=in_threads).take(
                pa.array(rows[groups == index] - starts[index])
            )
            for index in np.unique(groups).tolist()
        ]
    return pa.concat_tables(parts)


def _keys_of_changes(file: File, key: Sequence[str], start: int) -> Iterator[pa.Table]:
    """The key, kind and place of each change in a file, in parts, and the column `_ORDER`, which counts from `start`.

    A large transaction is a single file, so a part has about _PART_ROWS rows. Raises UnsupportedValue if a key is NULL.
    """
    with opened_file(file) as opened:
        in_threads = is_large(opened)
        for groups in _parts(opened.metadata):
            rows = opened.read_row_groups(groups, [*key, change.KIND, *change.PLACE], use_threads=in_threads)
            for name in key:
                if rows[name].null_count:
                    raise UnsupportedValue(f"the key column {name} is NULL in a change; correct the row")
            yield rows.append_column(_ORDER, pa.array(np.arange(start, start + rows.num_rows)))
            start += rows.num_rows


def _parts(metadata: pq.FileMetaData) -> list[list[int]]:
    """The row groups of a file, in parts of at least _PART_ROWS rows; the last part has the rest, and may be empty."""
    parts: list[list[int]] = [[]]
    row_count = 0
    for index in range(metadata.num_row_groups):
        parts[-1].append(index)
        row_count += metadata.row_group(index).num_rows
        if row_count >= _PART_ROWS:
            parts.append([])
            row_count = 0
    return parts


def _deletes(changes: pa.Table) -> pa.ChunkedArray:
    """For each change, whether it deletes its row."""
    return pc.is_in(changes[change.KIND], value_set=pa.array(_DELETES, pa.int8()))


def _starts(sizes: Iterable[int]) -> "np.ndarray":
    """The number of the first row of each row group with these sizes, and the number of all rows."""
    return np.cumsum(np.array([0, *sizes], np.int64))


def _metadata(file: File) -> pq.FileMetaData:
    with opened_file(file) as opened:
        return opened.metadata


def _sample(file: File, index: int, name: str) -> pa.Table:
    """At most _SAMPLE_VALUES values of a column, from all over a row group."""
    with opened_file(file) as opened:
        values = opened.read_row_group(index, [name])
    # the step is rounded up; `or 1`: it would be 0 for an empty row group, and `arange` refuses that
    return values.take(pa.array(np.arange(0, len(values), -(-len(values) // _SAMPLE_VALUES) or 1)))


def _is_after_mark(changes: pa.Table, key: Sequence[str], marks: Sequence[Mark]) -> "np.ndarray":
    """For each change, whether it is after the mark of the range that has its key. False if no range has the key."""
    is_after_mark = np.zeros(changes.num_rows, bool)
    for keys, mark in marks:
        is_after_mark |= _is_after(changes, mark) & within(changes, key, keys)
    return is_after_mark


def _is_among(changes: pa.Table, key: Sequence[str], keys: pa.Table) -> "np.ndarray":
    """For each change, whether `keys` has its key."""
    is_among = np.zeros(changes.num_rows, bool)
    matches = changes.select([*key, _ORDER]).join(keys, keys=list(key), join_type="left semi", use_threads=False)
    # `changes` are sorted by `_ORDER`, so a binary search finds the matches in them
    is_among[np.searchsorted(changes[_ORDER].to_numpy(), matches[_ORDER].to_numpy())] = True
    return is_among


def _is_after(changes: pa.Table, place: Place) -> "np.ndarray":
    """For each change, whether it is after the place."""
    epoch, file, pos = (changes[name].to_numpy() for name in change.PLACE)
    is_after_in_epoch = (file > place.file) | ((file == place.file) & (pos > place.pos))
    is_after: np.ndarray = (epoch > place.epoch) | ((epoch == place.epoch) & is_after_in_epoch)
    return is_after


def within(changes: pa.Table, key: Sequence[str], keys: KeyRange) -> "np.ndarray | bool":
    """For each change, whether its key is in the range, as `KeyRange.__contains__`. A single True without bounds."""
    if len(key) == 1 and pa.types.is_signed_integer(changes[key[0]].type) and not changes[key[0]].null_count:
        values = changes[key[0]].to_numpy()  # machine integers are compared thirty times as fast as decimals
        is_after = keys.lower is None or values >= int(keys.lower[0])
        return is_after & (keys.upper is None or values < int(keys.upper[0]))
    # the range of all keys needs no comparison, and its keys may be no integers
    columns = [changes[name].cast(_WIDE) for name in key] if keys != KeyRange() else []
    is_from_lower = keys.lower is None or _at_least(columns, keys.lower).to_numpy()
    is_below_upper = keys.upper is None or ~_at_least(columns, keys.upper).to_numpy()
    return is_from_lower & is_below_upper


def _at_least(columns: Sequence[pa.ChunkedArray], bound: Key) -> pa.ChunkedArray:
    """For each key, whether it is at or after the bound. If the bound has fewer columns, other ones do not count."""
    column, value = columns[0], pa.scalar(Decimal(int(bound[0])), _WIDE)
    if len(bound) == 1:
        return pc.greater_equal(column, value)
    is_decided_later = pc.and_(pc.equal(column, value), _at_least(columns[1:], bound[1:]))
    return pc.or_(pc.greater(column, value), is_decided_later)
