"""Old rows are found by their keys, however a file orders them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.lake.iceberg.merges.merger import matches

KEYS = st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9), unique=True, max_size=40)


@given(KEYS, KEYS, st.sampled_from([pa.int32(), pa.int64(), pa.decimal128(20, 0), pa.string()]), st.booleans())
def test_rows_are_found_in_any_order_of_the_file(
    file_keys: list[int],
    changed_keys: list[int],
    key_type: pa.DataType,
    in_order: bool,  # noqa: FBT001 - hypothesis draws it
) -> None:
    """Each changed key of the file is found once, at its row, and with its own number; rows ascend."""
    file_keys = sorted(file_keys) if in_order else file_keys
    rows, numbers = matches(keys(file_keys, key_type), candidates(changed_keys, key_type))
    found = {file_keys[row]: changed_keys[number] for row, number in zip(rows, numbers, strict=True)}
    assert found == {key: key for key in file_keys if key in changed_keys}
    assert list(rows) == sorted(set(rows))


@pytest.mark.parametrize("file_keys", [[1, 2, 2, 3], [2, 2], [3, 2, 1, 2]])
def test_a_key_that_a_file_has_twice_is_found_twice(file_keys: list[int]) -> None:
    """So the merge can refuse it."""
    rows, numbers = matches(keys(file_keys, pa.int64()), candidates([2], pa.int64()))
    assert [file_keys[row] for row in rows] == [2, 2]
    assert list(numbers) == [0, 0]


def test_keys_of_two_columns_are_joined() -> None:
    """A key matches if all its columns do."""
    two = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"]})
    wanted = pa.table({"a": [2, 1], "b": ["x", "z"], "_lakeingest_number": [0, 1]})
    rows, numbers = matches(two, wanted)
    assert (list(rows), list(numbers)) == ([2], [0])


def keys(values: list[int], key_type: pa.DataType) -> pa.Table:
    """The keys of a file."""
    return pa.table({"id": pa.array(values, pa.int64()).cast(key_type)})


def candidates(values: list[int], key_type: pa.DataType) -> pa.Table:
    """Changed keys with their numbers."""
    return keys(values, key_type).append_column("_lakeingest_number", pa.array(np.arange(len(values))))
