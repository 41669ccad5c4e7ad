"""Keys at which other systems are known to lose rows, loop or run out of memory: how they are cut here.

The names are those of the reports; flink-cdc 4413, which is about changes, is in tests/e2e/test_keys.py.
"""

from itertools import pairwise

import pytest

from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Chunk, Cost
from lakeingest.mysql.connection import query, table_name
from lakeingest.mysql.source import Source
from lakeingest.pipeline.copying.planner import Planner
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql

CHUNK_ROWS = 50


def filled(db: Db, columns: str, rows: list[str]) -> TableSchema:
    """A table with these rows, and statistics of them."""
    schema = db.table("t", columns)
    db.run(f"INSERT INTO t VALUES {', '.join(rows)}", "ANALYZE TABLE t")
    return schema


def chunks_of(db: Db, schema: TableSchema, grow: str = "") -> list[Chunk]:
    """The chunks of all waves; they tile the keys. `grow` is done before each wave but the first."""
    planner = Planner(Source(db.source, db.connection), schema, TableOptions(chunk_rows=CHUNK_ROWS), at_once=2)
    chunks = planner.next_wave(None)
    while (lower := chunks[-1].range.upper) is not None:
        assert len(chunks) < 1000, "it does not come to an end"
        if grow:
            db.run(grow)
        chunks += planner.next_wave(lower)
    assert chunks[0].range.lower is None
    assert all(one.range.touches(two.range) for one, two in pairwise(chunks))
    return chunks


def counts(db: Db, schema: TableSchema, chunks: list[Chunk]) -> list[int]:
    """The rows of each chunk, by the server."""
    asked = f"SELECT COUNT(*) FROM {table_name(schema.table)} WHERE"
    return [int(query(db.connection, f"{asked} {chunk.range.predicate(schema.key)}")[0][0]) for chunk in chunks]


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_0900_ai_ci", "utf8mb4_bin"])
def test_flink_cdc_2489_a_string_key_is_cut_into_chunks(db: Db, collation: str) -> None:
    """In any collation, each chunk has the wanted rows."""
    words = [f"{letter if n % 2 else letter.upper()}{n}" for letter in "aßbz_1éo" for n in range(45)]
    schema = filled(db, f"id VARCHAR(20) COLLATE {collation} PRIMARY KEY", [f"('{word}')" for word in words])
    found = counts(db, schema, chunks_of(db, schema))
    assert found[:-1] == [CHUNK_ROWS] * (len(words) // CHUNK_ROWS)
    assert sum(found) == len(words)


def test_flink_cdc_2676_a_composite_key_is_cut_within_its_first_column(db: Db) -> None:
    """One tenant has nearly all rows: its chunks are as small as the others."""
    rows = [f"('{'big' if n % 100 else 'small'}', {n})" for n in range(1000)]
    schema = filled(db, "tenant VARCHAR(9), id INT, PRIMARY KEY (tenant, id)", rows)
    found = counts(db, schema, chunks_of(db, schema))
    assert max(found) == CHUNK_ROWS
    assert sum(found) == len(rows)


@pytest.mark.parametrize("step", [1, 10**12])
def test_flink_cdc_4117_keys_beyond_the_signed_range_come_to_an_end(db: Db, step: int) -> None:
    """The chunks are as many as the rows want, dense or far apart, up to the greatest BIGINT UNSIGNED."""
    keys = [2**64 - 1 - n * step for n in range(1000)]
    schema = filled(db, "id BIGINT UNSIGNED PRIMARY KEY", [f"({key})" for key in keys])
    found = counts(db, schema, chunks_of(db, schema))
    assert sum(found) == len(keys)
    assert max(found) <= 2 * CHUNK_ROWS


@pytest.mark.parametrize("key", ["INT", "VARCHAR(20)"])
def test_flink_cdc_1375_the_last_chunk_does_not_grow_while_the_others_are_read(db: Db, key: str) -> None:
    """It is planned when it is about to be read; what was written at the end meanwhile is cut as well."""
    schema = filled(db, f"id {key} PRIMARY KEY", [f"({n})" for n in range(100_000, 100_600)])
    grow = "INSERT IGNORE INTO t SELECT MAX(id + 0) + n FROM t, (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3) AS three"
    found = counts(db, schema, chunks_of(db, schema, f"{grow} GROUP BY n"))
    assert sum(found) == int(query(db.connection, "SELECT COUNT(*) FROM t")[0][0]) > 600
    assert max(found) <= 2 * CHUNK_ROWS


def test_olake_a_comma_in_a_composite_boundary(db: Db) -> None:
    """Each column of a boundary is a value of its own, in the key's order, which is not that of the alphabet."""
    rows = [f"('a,{n % 7}', '{n},b')" for n in range(700)]
    schema = filled(db, "z VARCHAR(9), a VARCHAR(9), PRIMARY KEY (z, a)", rows)
    chunks = chunks_of(db, schema)
    found = counts(db, schema, chunks)
    assert found == [CHUNK_ROWS] * (len(rows) // CHUNK_ROWS) + [0] * (len(found) - len(rows) // CHUNK_ROWS)
    upper = chunks[0].range.upper
    assert upper is not None
    assert [str(part).startswith("_utf8mb4 x'") for part in upper] == [True, True]


def test_the_next_wave_is_sized_by_measurements_for_every_kind_of_key(db: Db) -> None:
    """Whether the server computed the boundaries or not."""
    schema = filled(db, "id VARCHAR(20) PRIMARY KEY", [f"('{n}')" for n in range(400)])
    planner = Planner(Source(db.source, db.connection), schema, TableOptions(), at_once=1)
    planner.learn([Cost(planner.chunk_rows, 1 << 40, 1.0)])
    [chunk, *_] = planner.next_wave(None)
    assert chunk.range != KeyRange()
