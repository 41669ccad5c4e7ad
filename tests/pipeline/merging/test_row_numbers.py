"""How the new rows of a merge are shared out among tasks: by their number, and by their bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.pipeline.merging.row_numbers import FILE_BYTES, FILE_ROWS, in_groups

MB = 1 << 20


def file(number: int) -> File:
    """A file of the spool. Nothing is read from it."""
    return Local(f"/spool/{number}.parquet")


@pytest.mark.parametrize(
    ("rows", "row_bytes", "groups"),
    [
        ([10, 20], 100.0, [30]),
        ([FILE_ROWS], 100.0, [FILE_ROWS]),
        ([FILE_ROWS + 2], 100.0, [FILE_ROWS // 2 + 1] * 2),
        ([FILE_ROWS, 1], 100.0, [FILE_ROWS, 1]),
        ([100], 4.0 * MB, [20] * 5),  # 24 rows of 4 MB are a group's most
        ([3, 3], 30.0 * MB, [3, 3]),
        ([3], 200.0 * MB, [1, 1, 1]),  # each is larger than a group
    ],
)
def test_a_group_has_limits(rows: list[int], row_bytes: float, groups: list[int]) -> None:
    """Of rows, and of bytes."""
    numbers = {file(index): np.arange(count) for index, count in enumerate(rows)}
    found = in_groups([numbers], lambda _: row_bytes)
    assert [sum(len(part) for _, part in group) for group in found] == groups


@given(st.lists(st.tuples(st.integers(1, 200), st.sampled_from([100, MB, 50 * MB, 300 * MB])), min_size=1, max_size=6))
def test_each_row_is_in_one_group(files: list[tuple[int, int]]) -> None:
    """In the order of the files; only a single row exceeds the limit."""
    sizes = {file(index): float(size) for index, (_, size) in enumerate(files)}
    numbers = {file(index): np.arange(count) for index, (count, _) in enumerate(files)}
    # two slices have the rows, as two executors return them
    slices = [{one: rows[part::2] for one, rows in numbers.items() if len(rows[part::2])} for part in range(2)]
    groups = in_groups(slices, sizes.__getitem__)
    listed = [(one, row) for group in groups for one, part in group for row in part.tolist()]
    assert listed == [(one, row) for one, rows in numbers.items() for row in rows.tolist()]
    for group in groups:
        is_single = sum(len(part) for _, part in group) == 1
        assert is_single or sum(len(part) * sizes[one] for one, part in group) <= FILE_BYTES * 1.001
