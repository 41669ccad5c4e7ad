"""Finds the rows whose key is among the changed keys of a merge, and the number of each such row's change."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NUMBER, _ROW = "_lakeingest_number", "_lakeingest_row"
# Integer keys are looked up in an array with a place for each integer between the least and the greatest changed key.
# It has at most so many places, or so many for each changed key
_PLACES, _PLACES_OF_KEY = 4 << 20, 8


class KeyNumbers:
    """The changed keys of a merge. Each key is there once; its number is its index in `keys`."""

    def __init__(self, keys: pa.Table) -> None:
        """`keys` has the columns of the key."""
        self._numbered = keys.append_column(_NUMBER, pa.array(np.arange(keys.num_rows)))
        self._schema, self._count = keys.schema, keys.num_rows
        self._places: np.ndarray | None = None  # for each integer from `_least` on, the number of its key, or -1
        self._least = 0
        integers = _integers(keys.column(0)) if keys.num_columns == 1 and keys.num_rows else None
        if integers is None:
            return
        self._least = int(integers.min())
        count = int(integers.max()) - self._least + 1
        if count <= max(_PLACES, _PLACES_OF_KEY * keys.num_rows):
            self._places = np.full(count, -1, np.int32)
            self._places[integers - self._least] = np.arange(keys.num_rows, dtype=np.int32)

    def found_in(self, tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
        """Look for the keys in tables: yields a table, the indexes of its rows with a changed key, and their numbers.

        The tables have the columns of the key, and may have others. Each row is in one of the yielded tables, which may
        be several of the given ones together. The indexes need not ascend.
        """
        if self._places is not None:
            for table in tables:
                yield table, *self._looked_up(table.column(self._schema.names[0]), self._places)
            return
        for table in _in_larger_tables(tables, self._count):
            yield table, *self._joined(table)

    def _looked_up(self, column: pa.ChunkedArray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `_joined`, for keys that are integers."""
        indexes = None
        if (integers := _integers(column)) is None:  # NULL, or beyond 64 bits: these are no changed keys
            kind = self._schema.types[0]
            last = pa.scalar(self._least + len(places) - 1).cast(kind)
            is_within = pc.and_(
                pc.greater_equal(column, pa.scalar(self._least).cast(kind)), pc.less_equal(column, last)
            )
            indexes = np.flatnonzero(is_within.fill_null(fill_value=False).to_numpy())
            integers = _integers(column.take(pa.array(indexes)))
            assert integers is not None  # noqa: S101 - they are between two integers of 64 bits
        offsets = integers - self._least
        is_within_places = (integers >= self._least) & (integers <= self._least + len(places) - 1)
        within = np.flatnonzero(is_within_places)
        numbers = places[offsets[within]]
        is_changed = numbers >= 0
        found = within[is_changed]
        return found if indexes is None else indexes[found], numbers[is_changed].astype(np.int64)

    def _joined(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """The indexes of the rows of `table` that have a changed key, and the number of each one's change."""
        names = self._schema.names
        rows = table.select(names).cast(self._schema).append_column(_ROW, pa.array(np.arange(table.num_rows)))
        matches = rows.join(self._numbered, keys=names, join_type="inner")
        return matches[_ROW].to_numpy(), matches[_NUMBER].to_numpy()


def _integers(values: pa.ChunkedArray) -> np.ndarray | None:
    """The values as integers of 64 bits; None if one of them is NULL or no such integer."""
    is_integer = pa.types.is_integer(values.type) or (pa.types.is_decimal(values.type) and values.type.scale == 0)
    if not is_integer or values.null_count:
        return None
    try:
        integers: np.ndarray = values.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return integers


def _in_larger_tables(tables: Iterable[pa.Table], least: int) -> Iterator[pa.Table]:
    """Concatenate small tables to tables of at least `least` rows. The last table may have fewer rows.

    The caller joins each yielded table with `least` changes, and a join costs as much as its larger side.
    """
    group: list[pa.Table] = []
    for table in tables:
        group.append(table)
        if sum(map(len, group)) >= least:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)
