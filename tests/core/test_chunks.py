from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.chunks import Chunk, chunks_between, even_boundaries, even_step
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.schema import TableId

ORDERS = TableId("shop", "orders")
KEYS = st.tuples(st.integers(-9, 9), st.integers(-9, 9))


def assert_tiles(chunks: list[Chunk]) -> None:
    """The chunks reach from end to end, and each begins where the one before ends."""
    assert chunks[0].range.lower is None
    assert chunks[-1].range.upper is None
    assert all(one.range.touches(two.range) for one, two in pairwise(chunks))
    assert all(chunk.table == ORDERS for chunk in chunks)


@given(st.sets(KEYS, max_size=6), st.lists(KEYS))
def test_every_key_is_in_exactly_one_chunk(boundaries: set[Key], keys: list[Key]) -> None:
    """Boundaries become chunks without gap and overlap, and a boundary belongs to the chunk it begins."""
    chunks = chunks_between(ORDERS, None, sorted(boundaries), last=True)
    assert_tiles(chunks)
    assert len(chunks) == len(boundaries) + 1
    for key in (*keys, *boundaries):
        (chunk,) = (chunk for chunk in chunks if key in chunk.range)
        assert key not in boundaries or chunk.range.lower == key


def test_chunks_that_are_not_the_last_end_at_their_boundary() -> None:
    """What lies behind the last boundary is planned by a later wave."""
    chunks = chunks_between(ORDERS, (3,), [(5,), (8,)], last=False)
    assert [chunk.range for chunk in chunks] == [KeyRange((3,), (5,)), KeyRange((5,), (8,))]
    assert chunks_between(ORDERS, (3,), [], last=False) == []


@given(
    minimum=st.integers(-(2**63), 2**64),
    step=st.integers(1, 10**6),
    count=st.integers(1, 5),
    width=st.integers(0, 10**7),
    growth=st.lists(st.integers(0, 3 * 10**6), max_size=20),
)
def test_waves_tile_the_keys_while_the_maximum_grows(
    minimum: int, step: int, count: int, width: int, growth: list[int]
) -> None:
    """Each wave reads the maximum anew and goes on where the last one ended, in even steps."""
    maximum, start, lower, last = minimum + width, minimum, None, False
    chunks: list[Chunk] = []
    while not last and len(chunks) < 200:
        maximum += growth.pop() if growth else 0
        boundaries, last = even_boundaries(start, step, maximum, count)
        wave = chunks_between(ORDERS, lower, boundaries, last=last)
        assert 1 <= len(wave) <= count
        chunks += wave
        assert last == (wave[-1].range.upper is None)
        lower = wave[-1].range.upper
        start = start if lower is None else lower[0]
    if last:
        assert_tiles(chunks)
        begin = chunks[-1].range.lower
        assert maximum - step < (minimum if begin is None else begin[0]) <= max(maximum, minimum)
    assert all(0 < two[0] - one[0] <= step for one, two in pairwise(uppers(chunks)))


def uppers(chunks: list[Chunk]) -> list[Key]:
    """The boundaries between chunks."""
    return [chunk.range.upper for chunk in chunks if chunk.range.upper is not None]


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 900))
def test_the_step_gives_even_keys_chunks_of_the_wanted_size(minimum: int, rows: int, chunk_rows: int, gap: int) -> None:
    """Where every `gap`th key exists, a chunk spans `gap` keys for each of its rows."""
    step = even_step(minimum, minimum + rows * gap - 1, rows, chunk_rows)
    assert step == gap * chunk_rows


def test_arithmetic_is_refused_where_keys_are_too_sparse_or_too_dense() -> None:
    """Sparse keys would make empty chunks; more rows than keys means that the estimate is wrong."""
    assert even_step(0, 10**6, 100, 10) is None
    assert even_step(0, 10, 10**6, 10) is None
    assert even_step(0, 999, 1, 10) == 10_000
    assert even_step(1, 5, 100, 10) == 1
    assert even_step(0, 99, 0, 10) == 1000
