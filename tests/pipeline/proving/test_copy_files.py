"""Which range of a comparison a key of the copy is in."""

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from lakeingest.core.tables.keys import Key
from lakeingest.pipeline.proving.copy_files import range_numbers

UNSIGNED = pa.decimal128(20, 0)


@pytest.mark.parametrize(
    ("columns", "lowers", "numbers"),
    [
        ([pa.array([-5, 9, 10, 19, 20, 99], pa.int32())], [(10,), (20,)], [0, 0, 1, 1, 2, 2]),
        ([pa.array([1, 2], pa.int64())], [], [0, 0]),
        ([pa.array([10, None], pa.int64())], [(10,)], [1, 0]),
        ([pa.array([Decimal(9), Decimal(2**64 - 1)], UNSIGNED)], [(10,), (2**64 - 1,)], [0, 2]),
        ([pa.array([Decimal(-1), Decimal(11)], UNSIGNED)], [(10,)], [0, 1]),
        ([pa.array([1, 1, 2, None]), pa.array([4, 5, 0, 9])], [(1, 5), (2, 0)], [0, 1, 2, 0]),
    ],
)
def test_a_key_is_in_the_range_of_the_last_bound_that_is_not_above_it(
    columns: Sequence[pa.Array], lowers: Sequence[Key], numbers: list[int]
) -> None:
    """A key with NULL is in the first range, so that it is counted."""
    key = [pa.chunked_array([column]) for column in columns]
    assert range_numbers(key, lowers).tolist() == numbers
