"""The rows of a table that differ from those of its copy: compared by key, value by value, in Arrow."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROW, _COPY = "_lakeingest_row", "_lakeingest_copy"
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def differences(rows: pa.Table, copy: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Compare the `rows` of the source with the rows of the copy.

    Returns the rows that the copy does not have, or has with another value, or has twice; and the keys of the copy that
    are not in `rows`. Both tables have the same schema, and `rows` has no key twice. Floating-point numbers are equal
    if their bits are equal.
    """
    in_rows, in_copy = _pairs_by_key(rows.select(list(key)), copy.select(list(key)))
    matches = np.bincount(in_rows, minlength=rows.num_rows)  # by row, how many rows of the copy have the row's key
    is_equal = matches == 1  # by row; as far as the keys tell. A row with several matches stays unequal
    for name in rows.column_names:
        if name not in key:
            is_equal[in_rows] &= _are_equal(_taken(rows[name], in_rows), _taken(copy[name], in_copy))
    has_no_row = np.ones(copy.num_rows, bool)
    has_no_row[in_copy] = False
    return rows.filter(pa.array(~is_equal)), copy.select(list(key)).filter(pa.array(has_no_row))


def _pairs_by_key(rows: pa.Table, copy: pa.Table) -> tuple["np.ndarray", "np.ndarray"]:
    """For each pair of rows with the same key, its row numbers in `rows` and in `copy`. Both have only key columns."""
    if rows.equals(copy):  # frequent: a copy without changes has the same order
        return np.arange(rows.num_rows), np.arange(rows.num_rows)
    if rows.num_columns == 1 and (found := _pairs_of_integers(rows[0], copy[0])) is not None:
        return found
    numbered_rows = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    numbered_copy = copy.append_column(_COPY, pa.array(np.arange(copy.num_rows)))
    joined = numbered_rows.join(numbered_copy, keys=rows.column_names, join_type="inner", use_threads=False)
    return joined[_ROW].to_numpy(), joined[_COPY].to_numpy()


def _pairs_of_integers(rows: pa.ChunkedArray, copy: pa.ChunkedArray) -> tuple["np.ndarray", "np.ndarray"] | None:
    """The pairs of `_pairs_by_key` if the keys are integers, and ascend in `rows`; None for other keys."""
    if not pa.types.is_integer(rows.type) or rows.type != copy.type or copy.null_count or rows.null_count:
        return None
    ours, theirs = rows.to_numpy(), copy.to_numpy()
    if not len(ours) or not (ours[1:] > ours[:-1]).all():
        return None
    # a key after all of `ours` gets the last place, where it is found unequal
    places = np.minimum(np.searchsorted(ours, theirs), len(ours) - 1)
    in_copy = np.flatnonzero(ours[places] == theirs)
    return places[in_copy], in_copy


def _taken(column: pa.ChunkedArray, numbers: "np.ndarray") -> pa.ChunkedArray:
    """The values with these numbers; the column itself if these are all of them, in their order."""
    is_whole = len(numbers) == len(column) and bool((numbers == np.arange(len(column))).all())
    return column if is_whole else column.take(numbers)


def _are_equal(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> "np.ndarray":
    """For each row, whether both columns have the same value; NULL is the same as NULL."""
    values = [_comparable(column.combine_chunks()) for column in (ours, theirs)]
    are_both_null = pc.and_(*map(pc.is_null, values))
    # the comparison with NULL gives NULL
    are_equal = pc.or_(are_both_null, pc.fill_null(pc.equal(*values), fill_value=False))
    result: np.ndarray = are_equal.to_numpy(zero_copy_only=False)
    return result


def _comparable(column: pa.Array) -> pa.Array:
    """The column in a form that Arrow can compare exactly: floating-point numbers as their bits."""
    if pa.types.is_list(column.type):  # a list of numbers: all their bytes as one value
        offsets, width = column.offsets.to_numpy().astype(np.int64), column.type.value_type.bit_width // 8
        numbers = column.values.to_numpy(zero_copy_only=False)
        buffers = [
            pa.array(column.is_valid()).buffers()[1],  # which values are not NULL
            pa.py_buffer(offsets * width),  # where each value begins, in bytes
            pa.py_buffer(numbers.tobytes()),
        ]
        return pa.Array.from_buffers(pa.large_binary(), len(column), buffers)
    return column.view(_BITS[column.type]) if column.type in _BITS else column
