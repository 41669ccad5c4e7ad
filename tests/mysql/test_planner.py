"""The planner on a real server: every wave of a table, and what it learns in between."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import FIRST_ROWS, GROWTH, Chunk, Cost
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.mysql.source import Source
from lakeingest.pipeline.copying.planner import CHUNKS_PER_SLOT, Planner
from tests.mysql.database import Db, database_on

pytestmark = pytest.mark.mysql

AUTO = TableOptions()
SKEWED = [*range(1, 301), 10**9]


@pytest.fixture
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database on the shared server."""
    with database_on(mysql_server) as database:
        yield database


def table(db: Db, keys: list[int]) -> TableSchema:
    """A table with these keys, and statistics of them."""
    schema = db.table("t", "id BIGINT PRIMARY KEY")
    if keys:
        db.run(f"INSERT INTO t VALUES {', '.join(f'({key})' for key in keys)}")
    db.run("ANALYZE TABLE t")
    return schema


def all_waves(planner: Planner) -> list[list[Chunk]]:
    """Every wave until the end of the table."""
    waves = [planner.next_wave(None)]
    while (lower := waves[-1][-1].range.upper) is not None:
        waves.append(planner.next_wave(lower))
    return waves


@pytest.mark.parametrize("keys", [[], [7], [*range(1, 301)], [*range(0, 600, 2)], [*range(0, 900, 3)], SKEWED])
def test_the_chunks_of_all_waves_tile_the_table(db: Db, keys: list[int]) -> None:
    """Empty, dense, sparse or skewed: each key once, and no chunk of more than twice the wanted rows."""
    schema = table(db, keys)
    planner = Planner(Source(db.source, db.connection), schema, TableOptions(chunk_rows=10), at_once=2)
    waves = all_waves(planner)
    assert all(len(wave) == 2 * CHUNKS_PER_SLOT for wave in waves[:-1])
    ranges = [chunk.range for wave in waves for chunk in wave]
    assert (ranges[0].lower, ranges[-1].upper) == (None, None)
    assert all(one.touches(two) for one, two in pairwise(ranges))
    counts = [query(db.connection, f"SELECT COUNT(*) FROM t WHERE {one.predicate(schema.key)}")[0][0] for one in ranges]
    assert sum(map(int, counts)) == len(keys)
    assert max(map(int, counts)) <= 20


def test_only_dense_integer_keys_are_cut_by_arithmetic(db: Db) -> None:
    """Keys of a single column, with at most two key values per row."""

    def by_arithmetic(schema: TableSchema) -> bool:
        return Planner(Source(db.source, db.connection), schema, AUTO, at_once=1).by_arithmetic

    schema = table(db, [*range(5, 605, 2)])
    assert by_arithmetic(schema)
    db.run("INSERT INTO t VALUES (1000000000)", "ANALYZE TABLE t")
    assert not by_arithmetic(schema)
    pair = db.table("pair", "a INT, b INT, PRIMARY KEY (a, b)")
    db.run("INSERT INTO pair VALUES (1, 1), (1, 2), (2, 1)", "ANALYZE TABLE pair")
    assert not by_arithmetic(pair)


def test_a_distant_key_during_the_copy_ends_arithmetic(db: Db) -> None:
    """The greatest key is read for every wave, so no wave is cut into thousands of empty chunks."""
    planner = Planner(
        Source(db.source, db.connection), table(db, [*range(1, 301)]), TableOptions(chunk_rows=10), at_once=1
    )
    lower = planner.next_wave(None)[-1].range.upper
    db.run("INSERT INTO t VALUES (1000000000000)")
    assert not planner.by_arithmetic
    waves = 0
    while lower is not None:
        lower = planner.next_wave(lower)[-1].range.upper
        waves += 1
    assert waves == 7


def test_chunk_sizes_follow_measurements_unless_they_are_fixed(db: Db) -> None:
    """Fast chunks grow, slow ones shrink, a stopped one is cut to a quarter; never below a row."""
    schema = table(db, [*range(1, 301)])
    quick, slow = Cost(10**6, 0, 0.0), Cost(10**6, 0, 20.0)
    planner = Planner(Source(db.source, db.connection), schema, AUTO, at_once=1)
    sizes = [planner.chunk_rows]
    for cost in (quick, slow, None):
        planner.shrink() if cost is None else planner.learn([cost])
        sizes.append(planner.chunk_rows)
    first = sizes[0]
    assert sizes == [first, GROWTH * first, GROWTH * first // 10, GROWTH * first // 40]
    while planner.can_shrink:
        planner.shrink()
    assert planner.chunk_rows == 1
    fixed = Planner(Source(db.source, db.connection), schema, TableOptions(chunk_rows=7), at_once=1)
    fixed.learn([quick])
    assert (fixed.chunk_rows, fixed.can_shrink) == (7, False)


def test_the_first_size_follows_from_the_estimates(db: Db) -> None:
    """Narrow rows: a fixed number; wide rows: as many as fit the bytes."""
    planner = Planner(Source(db.source, db.connection), table(db, [*range(1, 3001)]), AUTO, at_once=1)
    assert planner.chunk_rows == FIRST_ROWS
    assert 2000 < planner.estimated_rows < 4000
    assert 10**4 < planner.estimated_bytes < 10**6
    texts = db.table("texts", "id INT PRIMARY KEY, v LONGTEXT")
    db.run(*(f"INSERT INTO texts VALUES ({i}, REPEAT('x', 1000000))" for i in range(20)), "ANALYZE TABLE texts")
    assert 5 < Planner(Source(db.source, db.connection), texts, AUTO, at_once=1).chunk_rows < 40
