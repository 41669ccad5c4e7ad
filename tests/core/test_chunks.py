from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.chunks import (
    EVEN_FACTOR,
    FIRST_ROWS,
    GROWTH,
    ROWS_MAX,
    TARGET_BYTES,
    TARGET_SECONDS,
    Chunk,
    Cost,
    balanced_step,
    chunks_between,
    even_boundaries,
    even_step,
    first_rows,
    next_rows,
)

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
    steps=st.lists(st.integers(1, 10**6), min_size=1, max_size=20),
    count=st.integers(1, 5),
    width=st.integers(0, 10**7),
    growth=st.lists(st.integers(0, 3 * 10**6), max_size=20),
    offsets=st.lists(st.integers(-10, 10**8), max_size=20),
)
def test_waves_tile_the_keys_while_steps_change_and_the_maximum_grows(
    minimum: int, steps: list[int], count: int, width: int, growth: list[int], offsets: list[int]
) -> None:
    """Each wave reads the maximum anew and goes on where the last one ended; every key is in exactly one chunk."""
    maximum, start, lower, last = minimum + width, minimum, None, False
    chunks: list[Chunk] = []
    while not last and len(chunks) < 200:
        maximum += growth.pop() if growth else 0
        step = steps[len(chunks) % len(steps)]
        boundaries, last = even_boundaries(start, step, maximum, count)
        wave = chunks_between(ORDERS, lower, boundaries, last=last)
        assert 1 <= len(wave) <= count
        assert all(one.range.touches(two.range) for one, two in pairwise([*chunks[-1:], *wave]))
        assert all(0 < int(two[0]) - int(one[0]) <= step for one, two in pairwise([(start,), *uppers(wave)]))
        chunks += wave
        assert last == (wave[-1].range.upper is None)
        lower = wave[-1].range.upper
        start = start if lower is None else int(lower[0])
    if not last:
        chunks += chunks_between(ORDERS, lower, [], last=True)
    else:
        begin = chunks[-1].range.lower
        assert maximum - step < (minimum if begin is None else int(begin[0])) <= maximum
    assert_tiles(chunks)
    for key in ((minimum + offset,) for offset in offsets):
        assert sum(key in chunk.range for chunk in chunks) == 1


@given(
    st.integers(-(10**9), 10**9), st.integers(1, 10**6), st.integers(0, 10**7), st.integers(1, 8), st.integers(1, 64)
)
def test_a_last_wave_comes_to_whole_rounds_of_chunks_that_are_alike(
    start: int, step: int, keys: int, per_slot: int, at_once: int
) -> None:
    """As few rounds as there were, no chunk larger, none missing at the end; one chunk stays one."""
    balanced = balanced_step(start, step, start + keys - 1, per_slot * at_once, at_once)
    if keys <= step or keys > step * per_slot * at_once:
        assert balanced == step
        return
    rounds = -(-keys // (step * at_once))
    assert balanced <= step
    assert (rounds * at_once - 1) * (balanced - 1) < keys <= rounds * at_once * balanced


def uppers(chunks: list[Chunk]) -> list[Key]:
    """The boundaries between chunks."""
    return [chunk.range.upper for chunk in chunks if chunk.range.upper is not None]


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, EVEN_FACTOR))
def test_the_step_gives_even_keys_chunks_of_the_wanted_size(minimum: int, rows: int, chunk_rows: int, gap: int) -> None:
    """Where every `gap`th key exists, a chunk spans `gap` keys for each of its rows."""
    step = even_step(minimum, minimum + rows * gap - 1, rows, chunk_rows)
    assert step == gap * chunk_rows


@given(st.integers(-(2**63), 2**64), st.integers(0, 2**64), st.integers(0, 2**40), st.integers(1, 10**6))
def test_a_step_never_spans_more_keys_than_twice_the_wanted_rows(
    minimum: int, width: int, rows: int, chunk_rows: int
) -> None:
    """However wrong the estimate: a chunk cannot have more rows than its range has keys, nor fewer keys than wanted."""
    step = even_step(minimum, minimum + width, rows, chunk_rows)
    assert (step is None) == (width + 1 > EVEN_FACTOR * max(rows, 1))
    assert step is None or chunk_rows <= step <= EVEN_FACTOR * chunk_rows


def test_a_cluster_and_a_far_key_are_not_cut_by_arithmetic() -> None:
    """Even steps would put the whole cluster into one chunk, or make thousands of empty ones."""
    assert even_step(1, 10**9, 10**6, 20_000) is None
    assert even_step(1, 10**6, 10**6, 20_000) == 20_000
    assert even_step(1, 5, 100, 10) == 10
    assert even_step(7, 8, 0, 10) == 20
    assert even_step(7, 9, 0, 10) is None


@given(st.integers(0, 10**9), st.integers(0, 10**13))
def test_the_first_chunks_are_sized_by_estimates(rows: int, size: int) -> None:
    """As many rows as fit the bytes, one at least; narrow ones not more than have been measured to be harmless."""
    chosen = first_rows(rows, size)
    assert 1 <= chosen <= FIRST_ROWS
    assert chosen == 1 or chosen * size <= TARGET_BYTES * rows or rows == 0
    assert chosen == FIRST_ROWS or (chosen + 1) * size > TARGET_BYTES * rows


COSTS = st.builds(Cost, st.integers(0, 10**6), st.integers(0, 10**12), st.floats(0, 1000))


@given(st.integers(1, ROWS_MAX), st.lists(COSTS, min_size=1))
def test_the_next_size_is_within_its_bounds_whatever_was_measured(chunk_rows: int, wave: list[Cost]) -> None:
    """At least a row, at most the cap, never more than doubled, and no larger where a chunk was over a target."""
    size = next_rows(chunk_rows, wave)
    assert 1 <= size <= min(ROWS_MAX, GROWTH * chunk_rows)
    if any(cost.seconds > TARGET_SECONDS or cost.bytes > TARGET_BYTES for cost in wave):
        assert size < chunk_rows or chunk_rows == 1


@given(
    st.integers(1, ROWS_MAX),
    st.integers(0, 10**8),
    st.floats(1e-7, 1),
    st.lists(st.floats(0.01, 1), max_size=7),
)
def test_the_size_comes_to_the_target_for_any_constant_rate(
    chunk_rows: int, width: int, seconds: float, others: list[float]
) -> None:
    """From wherever it begins: the full chunk of each wave takes a target's seconds or bytes, or it is at a bound."""
    fitting = min(TARGET_SECONDS / seconds, TARGET_BYTES / max(width, 1))
    for _ in range(20):
        rows = [chunk_rows, *(int(chunk_rows * share) for share in others)]
        chunk_rows = next_rows(chunk_rows, [Cost(n, n * width, n * seconds) for n in rows])
    assert chunk_rows == pytest.approx(max(1, min(ROWS_MAX, fitting)), abs=1.001)


def test_nearly_empty_chunks_do_not_make_larger_ones() -> None:
    """Where arithmetic passed a hole in the keys, nothing was learned of the rows behind it."""
    assert next_rows(1000, [Cost(3, 300, 0.01)] * 8) == 1000
    assert next_rows(1000, [Cost(0, 0, 0.01)]) == 1000
    assert next_rows(1000, [Cost(3, 300, 0.01), Cost(1000, 10**5, 0.1)]) == GROWTH * 1000
