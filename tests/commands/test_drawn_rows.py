"""How a sample is spread over a table."""

import pytest

from lakeingest.commands.drawn_rows import RANGES_AT_ONCE, Spread, spread

KB, MB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("estimated_rows", "estimated_bytes", "wanted", "planned"),
    [
        (1_000_000, 100 * MB, 10_000, Spread(200, 50, 4_950, RANGES_AT_ONCE)),
        (1_000_000, 100 * MB, 1, Spread(1, 1, 999_999, RANGES_AT_ONCE)),
        (10_000, MB, 10_000, Spread(200, 50, 0, RANGES_AT_ONCE)),  # all rows
        (3, 16 * KB, 10_000, Spread(200, 50, 0, RANGES_AT_ONCE)),
        (0, 16 * KB, 10_000, Spread(200, 50, 0, RANGES_AT_ONCE)),  # nothing is known
        (1_000_000, 1_000_000 * MB, 10_000, Spread(8, 32, 124_968, 1)),  # a megabyte a row: 256 rows
        (1_000, 1_000 * 100 * MB, 10_000, Spread(2, 1, 499, 1)),  # a row is more than a range should have
    ],
)
def test_a_sample_is_of_many_short_ranges(
    estimated_rows: int, estimated_bytes: int, wanted: int, planned: Spread
) -> None:
    """And of fewer rows if they are wide; what is read at once has about the bytes of a chunk."""
    assert spread(estimated_rows, estimated_bytes, wanted) == planned


def test_a_key_without_an_index_takes_few_boundaries() -> None:
    """Each is a scan of the table."""
    assert spread(1_000_000, 100 * MB, 10_000, declared=True) == Spread(10, 1_000, 99_000, RANGES_AT_ONCE)
