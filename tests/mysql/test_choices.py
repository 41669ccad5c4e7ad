"""Forms of types that the user chose: the same from a chunk and from the binlog, and what becomes NULL is counted."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Choices, TableId, TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.errors import UnsupportedTable, UnsupportedValue
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import connect
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import EPOCH, SERVER_IDS, Db

pytestmark = pytest.mark.mysql

TEXTS, NULLS = Choices(zero_dates="string"), Choices(zero_dates="null")
POINT = struct.pack("<dd", 1, 2)

# what was chosen, and type -> pairs of a SQL literal and the value that arrives
CHOSEN: list[tuple[Choices, str, list[tuple[str, Any]]]] = [
    (TEXTS, "DATE", [("'2024-02-29'", "2024-02-29"), ("'0000-00-00'", "0000-00-00"), ("'2024-00-10'", "2024-00-10")]),
    (TEXTS, "DATE", [("'2024-02-30'", "2024-02-30"), ("'0001-01-01'", "0001-01-01"), ("'0000-05-07'", "0000-05-07")]),
    (TEXTS, "DATETIME", [("'0000-00-00'", "0000-00-00 00:00:00"), ("'1582-10-10 01:02:03'", "1582-10-10 01:02:03")]),
    (TEXTS, "DATETIME(1)",
        [("'2024-05-00 23:59:59.9'", "2024-05-00 23:59:59.9"), ("'1000-01-01'", "1000-01-01 00:00:00.0")]),
    (TEXTS, "DATETIME(6)", [("'0000-00-00 00:00:00.000001'", "0000-00-00 00:00:00.000001")]),
    (TEXTS, "TIMESTAMP NULL", [("0", "0000-00-00 00:00:00"), ("'1970-01-01 00:00:01'", "1970-01-01 00:00:01")]),
    (TEXTS, "TIMESTAMP(3) NULL",
        [("0", "0000-00-00 00:00:00.000"), ("'2024-10-27 02:30:00.5'", "2024-10-27 02:30:00.500")]),
    (NULLS, "DATE", [("'0000-00-00'", None), ("'2024-00-10'", None), ("'2024-02-30'", None), ("'0000-01-01'", None)]),
    (NULLS, "DATETIME(3)", [("'0000-00-00'", None), ("'2024-05-00 10:00:00.5'", None)]),
    (NULLS, "TIMESTAMP(6) NULL", [("0", None)]),
    (Choices(tinyint1="boolean"), "TINYINT(1)", [("1", True), ("0", False)]),
    (Choices(tinyint1="boolean"), "TINYINT", [("1", 1), ("-128", -128)]),
    (Choices(time="micros"), "TIME", [("'-838:59:59'", -3_020_399_000_000), ("'00:00:01'", 1_000_000), ("'0'", 0)]),
    (Choices(time="micros"), "TIME(6)", [("'-00:00:00.000001'", -1), ("'838:59:58.999999'", 3_020_398_999_999)]),
    (Choices(time="micros"), "TIME(2)", [("'-01:00:00.50'", -3_600_500_000), ("'10:00:00.25'", 36_000_250_000)]),
    (
        Choices(geometry="ewkb"),
        "GEOMETRY",
        [
            ("ST_GeomFromText('POINT(2 1)', 4326)", struct.pack("<BII", 1, 0x20000001, 4326) + POINT),
            ("POINT(1, 2)", struct.pack("<BI", 1, 1) + POINT),
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("choices", "source_type", "pairs"), CHOSEN)
def test_a_chosen_form_is_the_same_on_both_paths(
    db: Db, choices: Choices, source_type: str, pairs: list[tuple[str, Any]]
) -> None:
    """Also NULL, which stays NULL and is not counted as made so."""
    db.run("SET sql_mode = 'ALLOW_INVALID_DATES'", f"CREATE TABLE t (id INT PRIMARY KEY, v {source_type})")
    schema = read_schema(db.connection, TableId(db.name, "t"), choices)
    start = db.here()
    rows = [*pairs, ("NULL", None)]
    db.run(*(f"INSERT INTO t VALUES ({n}, {literal})" for n, (literal, _) in enumerate(rows)))
    db.run("UPDATE t SET id = id + 100", "DELETE FROM t WHERE id = 100", f"INSERT INTO t VALUES (0, {rows[0][0]})")
    expected = [value for _, value in rows]
    made = sum(value is None for _, value in pairs)
    read = read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), server_state(db.connection).uuid, EPOCH)
    assert [repr(value) for value in read.rows["v"].to_pylist()] == list(map(repr, [expected[0], *expected[1:]]))
    assert read.nulled == made
    facts = SegmentFacts()
    with connect(db.source) as connection:
        parts = list(read_segment(connection, db.segment(start), {schema.table: schema}, next(SERVER_IDS), facts))
    logged = [row for table, batch in parts if table is not None for row in batch.to_pylist()]
    by_id = {row["id"]: repr(row["v"]) for row in logged}
    assert by_id == {n + more: repr(value) for n, value in enumerate(expected) for more in (0, 100)}
    assert facts.nulled.total() == 2 * made + (expected[0] is None)


def test_a_tinyint_that_is_not_a_boolean_is_refused(db: Db) -> None:
    """It does not become true."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v TINYINT(1))", "INSERT INTO t VALUES (1, 1), (2, 2)")
    schema = read_schema(db.connection, TableId(db.name, "t"), Choices(tinyint1="boolean"))
    with pytest.raises(UnsupportedValue, match=r"column v \(tinyint\(1\)\).*neither 0 nor 1"):
        read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), server_state(db.connection).uuid, EPOCH)


def test_a_date_key_with_zero_dates_as_null_is_refused(db: Db) -> None:
    """With zero dates as strings it can be a key."""
    db.run("CREATE TABLE t (id DATE PRIMARY KEY)")
    with pytest.raises(UnsupportedTable, match="key column id is date: a zero date would be NULL; set zero_dates"):
        read_schema(db.connection, TableId(db.name, "t"), NULLS)
    assert read_schema(db.connection, TableId(db.name, "t"), TEXTS).key == ("id",)


def test_another_choice_changes_the_fingerprint(db: Db) -> None:
    """Rows of different choices must not be in the same table."""
    usual: TableSchema = db.table("t", "id INT PRIMARY KEY, d DATE, t TIME, b TINYINT(1), g GEOMETRY, e DATETIME(3)")
    chosen = [TEXTS, NULLS, Choices(time="micros"), Choices(tinyint1="boolean"), Choices(geometry="ewkb")]
    prints = {read_schema(db.connection, usual.table, one).fingerprint for one in chosen}
    assert len(prints | {usual.fingerprint}) == len(chosen) + 1
    assert replace(usual, choices=TEXTS).fingerprint == usual.fingerprint
