"""Rows as the spool has them, with some of their columns: changed rows of a parent, versions of rows of a child."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core import change
from lakeingest.core.cascades import Row, RowChange
from lakeingest.core.change import RowKind
from lakeingest.core.position import Place
from lakeingest.errors import SpoolGap, StateUnreadable
from lakeingest.files.file import File, parquet

Filter = Callable[[pa.Table], pa.Table]


def removed_rows(files: Iterable[File], columns: Sequence[str], after: Place, stop: Place) -> list[RowChange]:
    """The rows with these columns that are deleted, or that are another one after their update, between two places."""
    found: list[RowChange] = []
    for file in files:
        rows = _read(file, [*columns, change.KIND, *change.PLACE])
        kinds = rows[change.KIND].to_numpy()
        places = [rows[name].to_numpy() for name in change.PLACE]
        gone = np.flatnonzero(kinds == RowKind.DELETE.value)
        before = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE.value)  # each is followed by its other half
        names = list(columns)
        found += _changes(rows.select(names), gone, None, places, after, stop)
        found += _changes(rows.select(names), before, before + 1, places, after, stop)
    return found


def has_removed(
    files: Iterable[File], columns: Sequence[str] | None, after: Place, stop: Place, *, deletes: bool, updates: bool
) -> bool:
    """Whether `removed_rows` has a delete or an update, as is asked for; without columns every update is one."""
    asked = {RowKind.DELETE: deletes, RowKind.UPDATE_BEFORE: updates}
    for file in files:
        if columns is not None:
            found = removed_rows([file], columns, after, stop)
            if any(deletes if one.after is None else updates for one in found):
                return True
            continue
        rows = _read(file, [change.KIND, *change.PLACE])
        kinds = pa.array([kind.value for kind, is_asked in asked.items() if is_asked], pa.int8())
        places = rows.filter(pc.is_in(rows[change.KIND], kinds)).select(change.PLACE)
        if any(after < Place(*parts) <= stop for parts in zip(*places.to_pydict().values(), strict=True)):
            return True
    return False


def versions(files: Iterable[File], columns: Sequence[str], wanted: Filter) -> set[Row]:
    """The rows in these files, as they were before and after each change, as far as they are `wanted`."""
    found: set[Row] = set()
    for file in files:
        found |= rows_of(wanted(_read(file, columns)), columns)
    return found


def rows_of(rows: pa.Table, columns: Sequence[str]) -> set[Row]:
    """Rows of Arrow as tuples of these columns."""
    return set(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def _changes(
    rows: pa.Table,
    before: "np.ndarray",
    after: "np.ndarray | None",
    places: "Sequence[np.ndarray]",
    since: Place,
    stop: Place,
) -> Iterable[RowChange]:
    old = rows.take(pa.array(before)).to_pylist()
    new = [None] * len(old) if after is None else rows.take(pa.array(after)).to_pylist()
    for number, one, other in zip(before.tolist(), old, new, strict=True):
        place = Place(*(int(part[number]) for part in places))
        if since < place <= stop and one != other:
            yield RowChange(place, tuple(one.values()), None if other is None else tuple(other.values()))


def _read(file: File, columns: Sequence[str]) -> pa.Table:
    try:
        with parquet(file) as opened:
            if missing := set(columns) - set(opened.schema_arrow.names):
                raise SpoolGap(f"{file} has no {', '.join(sorted(missing))}")
            return opened.read(list(columns))
    except (OSError, pa.ArrowException) as error:
        raise StateUnreadable(
            f"{file} of the spool cannot be read: {error}; remove the spool's folder and run again"
        ) from error
