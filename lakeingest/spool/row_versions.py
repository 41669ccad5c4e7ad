"""Rows of the spool for foreign keys: removed or changed rows of a parent, and versions of rows of a child."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascades import Row, RowChange
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.errors import SpoolGap
from lakeingest.files.file import File
from lakeingest.spool.errors import opened_file

Filter = Callable[[pa.Table], pa.Table]


def removed_rows(files: Iterable[File], columns: Sequence[str], after: Place, stop: Place) -> list[RowChange]:
    """The deletes, and the updates that change a value in `columns`, after the place `after` and up to `stop`.

    Raises SpoolGap if a file lacks one of the columns, and so do `has_removed` and `versions`.
    """
    removed: list[RowChange] = []
    for file in files:
        rows = _read(file, [*columns, change.KIND, *change.PLACE])
        kinds = rows[change.KIND].to_numpy()
        places = [rows[name].to_numpy() for name in change.PLACE]
        delete_numbers = np.flatnonzero(kinds == RowKind.DELETE.value)
        old_numbers = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE.value)
        new_numbers = old_numbers + 1  # the new version of an updated row is in the next row
        values = rows.select(list(columns))
        removed += _changes(values, delete_numbers, None, places, after, stop)
        removed += _changes(values, old_numbers, new_numbers, places, after, stop)
    return removed


def has_removed(
    files: Iterable[File], columns: Sequence[str] | None, after: Place, stop: Place, *, deletes: bool, updates: bool
) -> bool:
    """Whether a row was deleted (if `deletes`) or updated (if `updates`) after the place `after` and up to `stop`.

    An update counts only if it changes a value in `columns`; if `columns` is None, each update counts.
    """
    if columns is not None:
        # a file is read only if the files before it have no such change; `row_change.after` is None for a delete
        removed = (row_change for file in files for row_change in removed_rows([file], columns, after, stop))
        return any(deletes if row_change.after is None else updates for row_change in removed)
    # each update counts, so the values of columns need not be read
    counted = {RowKind.DELETE: deletes, RowKind.UPDATE_BEFORE: updates}
    kinds = pa.array([kind.value for kind, is_counted in counted.items() if is_counted], pa.int8())
    for file in files:
        rows = _read(file, [change.KIND, *change.PLACE])
        places = rows.filter(pc.is_in(rows[change.KIND], kinds)).select(change.PLACE)
        if any(after < Place(*parts) <= stop for parts in zip(*places.to_pydict().values(), strict=True)):
            return True
    return False


def versions(files: Iterable[File], columns: Sequence[str], select: Filter) -> set[Row]:
    """The rows of all changes in these files, old and new, that the filter `select` keeps, as tuples of `columns`."""
    rows: set[Row] = set()
    for file in files:
        rows |= rows_of(select(_read(file, columns)), columns)
    return rows


def rows_of(rows: pa.Table, columns: Sequence[str]) -> set[Row]:
    """The rows of an Arrow table as tuples of these columns."""
    return set(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def _changes(
    rows: pa.Table,
    old_numbers: "np.ndarray",
    new_numbers: "np.ndarray | None",
    places: "Sequence[np.ndarray]",
    after: Place,
    stop: Place,
) -> Iterable[RowChange]:
    """The deletes, or the updates that change a value in `rows`, after the place `after` and up to `stop`.

    `old_numbers` and `new_numbers` are the row numbers of each change's old and new row. If `new_numbers` is None, the
    changes are deletes. `places` has the three parts of each row's place.
    """
    old = rows.take(pa.array(old_numbers)).to_pylist()
    new = [None] * len(old) if new_numbers is None else rows.take(pa.array(new_numbers)).to_pylist()
    for number, old_row, new_row in zip(old_numbers.tolist(), old, new, strict=True):
        place = Place(*(int(part[number]) for part in places))
        if after < place <= stop and old_row != new_row:
            yield RowChange(place, tuple(old_row.values()), None if new_row is None else tuple(new_row.values()))


def _read(file: File, columns: Sequence[str]) -> pa.Table:
    """These columns of a file of change rows. Raises SpoolGap if the file lacks a column."""
    with opened_file(file) as opened:
        if missing := set(columns) - set(opened.schema_arrow.names):
            raise SpoolGap(f"{file} has no {', '.join(sorted(missing))}")
        return opened.read(list(columns))
