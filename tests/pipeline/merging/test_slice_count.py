"""Into how many slices a merge is cut."""

import pytest

from lakeingest.pipeline.merging.merge import LOOKED_AT_ROWS, SLICE_ROWS, slice_count


@pytest.mark.parametrize(
    ("slices", "at_once", "count"),
    [
        (0, 2, 1),
        (1, 2, 1),
        (2, 2, 2),
        (3, 2, 4),  # a third slice alone would leave an executor idle
        (4, 2, 4),
        (3, 1, 3),
        (3, 100, 3),  # all are read at the same time: more slices would read the same keys more often
        (101, 100, 200),
    ],
)
def test_the_slices_keep_all_executors_at_work(slices: int, at_once: int, count: int) -> None:
    """Whether the changes ask for so many slices, or the rows of the table."""
    assert slice_count(slices * SLICE_ROWS, 0, at_once) == count
    assert slice_count(0, slices * LOOKED_AT_ROWS, at_once) == count
