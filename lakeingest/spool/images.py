"""The last image of each changed key: the row that a copy must have, by the spool alone.

A copy as of a place has the row of each key's last change up to this place, whichever chunks and merges brought it
there. So this module needs neither marks of splits nor patches: it is a second way to the same rows, for audits. It
does not use the code of `collapse` that orders or takes rows, because audits must find a fault of that code. It may
read only the newest part of the spool, because the last change of a key in this part is the key's last change at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables import change
from lakeingest.core.tables.change import DELETED, RowKind
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files.file import File, is_large
from lakeingest.rows import THREADS_ROWS, few_integers, last_of_each
from lakeingest.spool import archive
from lakeingest.spool.errors import opened_file
from lakeingest.spool.reread_files import RereadFolder, RereadRows
from lakeingest.spool.spool import Spool

# columns: the number of a row's file, the row's number in it, its place among all rows, and whether it is a reread row
_PART, _ROW, _ORDER, _IS_REREAD = (f"_lakeingest_{name}" for name in ("part", "row", "order", "is_reread"))


@dataclass(frozen=True, slots=True)
class LastImages:
    """The last change of each changed key.

    `keys` has the columns of the key, and DELETED: whether the change deletes the row. `parts` are files, and for each
    key `at` has the number of its file in `parts`, and `rows` the number of its row in this file.
    """

    keys: pa.Table
    parts: Sequence[File]
    at: "np.ndarray"
    rows: "np.ndarray"

    def images(self, numbers: "np.ndarray", names: Sequence[str]) -> pa.Table:
        """The last images of the keys with these row numbers in `keys`, at least one, in the order of the numbers.

        They have the columns `names`, and DELETED.
        """
        tables, indexes = [], []  # of each part: its rows, and for each row its index in `numbers`
        for part in np.unique(self.at[numbers]).tolist():
            unsorted = np.flatnonzero(self.at[numbers] == part)
            of_part = unsorted[np.argsort(self.rows[numbers[unsorted]])]  # in the order of the file's rows
            with opened_file(self.parts[part]) as opened:
                tables.append(_rows(opened, self.rows[numbers[of_part]], list(dict.fromkeys([*names, change.KIND]))))
            indexes.append(of_part)
        # the rows of all parts, put into the order of `numbers`
        rows = pa.concat_tables(tables, promote_options="default").take(pa.array(np.argsort(np.concatenate(indexes))))
        return rows.select(list(names)).append_column(DELETED, _are_deletes(rows[change.KIND]))


def reread_files(spool: Spool, table: TableId, after: Place, stop: Place) -> list[RereadRows]:
    """The files with rows of the table that were read again, as of places after `after` and up to `stop`."""
    since = ReadTo(after, log=archive.name_of(spool.folder))
    files_from = RereadFolder.of(spool.folder, table).files_after(since, stop)
    return [rows for rows in files_from if rows.first.place > after]


def last_images(
    changed: Sequence[File],
    rereads: Sequence[RereadRows],
    schema: TableSchema,
    after: Place,
    stop: Place,
    most: int,
) -> LastImages | None:
    """The last image of each key that was changed after `after` and up to `stop`; None if no key was changed.

    `changed` are the files of the spool, in order, that have the table's changes between these places (`Spool.files`).
    If there are more than about `most` change rows, only the newest row groups are read. A file that lacks a column of
    `schema`, and all files before it, are left out. `rereads` are images, too: each is the row of its key as of its
    place.
    """
    tables: list[pa.Table] = []  # of the newest files
    is_whole, remaining = True, most
    for file in reversed(changed):
        rows, is_whole = _changes(file, schema, after, stop, remaining)
        if rows is not None:
            tables.append(rows)
            remaining -= rows.num_rows
        if not is_whole:  # an older change may not be the last one of its key
            break
    parts = list(changed[::-1][: len(tables)])  # the files of `tables`, the newest first
    if not is_whole:  # reread rows from before the changes that were read do not count: a change left out may be later
        after = min((_first_place(rows) for rows in tables if rows.num_rows), default=stop)
    for reread in rereads:
        counts = reread.first.place >= after  # also at `after`: reread rows come after all changes of their place
        rows, _ = _changes(reread.path, schema, None, stop) if counts else (None, False)
        if rows is not None:
            tables.append(rows)
            parts.append(reread.path)
    return _last_of(tables, parts, schema.key) if any(map(len, tables)) else None


def _changes(
    file: File, schema: TableSchema, after: Place | None, stop: Place, most: int | None = None
) -> tuple[pa.Table | None, bool]:
    """The key, kind and order of the changes in a file after `after` and up to `stop`, and whether all rows were read.

    The changes are None if the file lacks a column. If the file has more than `most` rows, only its last row groups are
    read. If `after` is None, the file has reread rows, and all of them up to `stop` are wanted.
    """
    with opened_file(file) as opened:
        if set(schema.names) - set(opened.schema_arrow.names):
            return None, False
        first_group, first_row = _newest(opened, most)
        groups = range(first_group, opened.num_row_groups)
        rows = opened.read_row_groups(
            list(groups), [*schema.key, change.KIND, *change.ORDER], use_threads=is_large(opened)
        )
    is_wanted = ~_is_after(rows, stop)
    if after is not None:
        is_wanted &= _is_after(rows, after)
    numbered = rows.append_column(_ROW, pa.array(np.arange(first_row, first_row + rows.num_rows)))
    numbered = numbered.append_column(_IS_REREAD, pa.array(np.full(rows.num_rows, int(after is None))))
    return numbered.filter(pa.array(is_wanted)), first_group == 0


def _newest(opened: pq.ParquetFile, most: int | None) -> tuple[int, int]:
    """The number of the first row group that is needed for the last `most` rows, and the number of its first row."""
    group, row = opened.num_row_groups, opened.metadata.num_rows
    first_wanted = 0 if most is None else max(0, row - most)
    while group and row > first_wanted:
        group -= 1
        row -= opened.metadata.row_group(group).num_rows
    return group, row


def _last_of(tables: Sequence[pa.Table], parts: Sequence[File], key: Sequence[str]) -> LastImages:
    """The last change of each key. Each table has the changes of one of the `parts`."""
    changes = pa.concat_tables(
        (rows.append_column(_PART, pa.array(np.full(len(rows), part))) for part, rows in enumerate(tables)),
        promote_options="default",
    )
    # the most significant part of the order comes last; reread rows come after all changes of their place
    order = np.lexsort([changes[name].to_numpy() for name in (change.ORDINAL, _IS_REREAD, *reversed(change.PLACE))])
    ordered = changes.take(pa.array(order))
    last = ordered.take(_last_rows(ordered.select(list(key))))
    keys = last.select(list(key)).append_column(DELETED, _are_deletes(last[change.KIND]))
    return LastImages(keys, parts, last[_PART].to_numpy(), last[_ROW].to_numpy())


def _last_rows(keys: pa.Table) -> pa.ChunkedArray | pa.Array:
    """The number of the last row of each key."""
    if (integers := few_integers(keys.columns)) is not None:
        return pa.array(last_of_each(integers))
    numbered = keys.append_column(_ORDER, pa.array(np.arange(len(keys))))
    of_keys = numbered.group_by(keys.column_names, use_threads=len(keys) >= THREADS_ROWS)
    return of_keys.aggregate([(_ORDER, "max")])[f"{_ORDER}_max"]


def _are_deletes(kinds: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each change, by its kind, whether it deletes a row."""
    return pc.is_in(kinds, pa.array([kind.value for kind in RowKind if kind.is_delete], pa.int8()))


def _first_place(changes: pa.Table) -> Place:
    """The place of the first of these changes, which are in order."""
    return Place(*(changes[name][0].as_py() for name in change.PLACE))


def _is_after(changes: pa.Table, place: Place) -> "np.ndarray":
    """For each change, whether it is after the place."""
    epoch, file, pos = (changes[name].to_numpy() for name in change.PLACE)
    is_after_in_epoch = (file > place.file) | ((file == place.file) & (pos > place.pos))
    is_after: np.ndarray = (epoch > place.epoch) | ((epoch == place.epoch) & is_after_in_epoch)
    return is_after


def _rows(opened: pq.ParquetFile, numbers: "np.ndarray", names: Sequence[str]) -> pa.Table:
    """The columns `names` of the rows with these numbers, which ascend."""
    sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
    ends = np.cumsum(sizes)
    groups = np.searchsorted(ends, numbers, side="right")  # for each row, the number of its row group
    # `ends - sizes` has the number of each group's first row, so the difference is the number of a row in its group
    in_threads = is_large(opened)
    return pa.concat_tables(
        opened.read_row_group(group, list(names), use_threads=in_threads).take(
            pa.array(numbers[groups == group] - (ends[group] - sizes[group]))
        )
        for group in np.unique(groups).tolist()
    )
