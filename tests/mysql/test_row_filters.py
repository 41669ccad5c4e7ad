"""Conditions on rows: the server, chunks, the binlog and the second decoder agree about which rows meet them."""

from collections.abc import Iterator

import pytest

from lakeingest.core.proofs.witness import ChunkLook
from lakeingest.core.tables.change import KIND, ORDINAL, POS, RowKind
from lakeingest.core.tables.keys import EVERY_KEY, KeyRange
from lakeingest.core.tables.row_filter import parse
from lakeingest.core.tables.schema import Choices, TableId, TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedTable
from lakeingest.mysql.checksum import range_checksums
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.keyed_rows import rows_of
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.mysql.witness.stretch import CONDITION
from tests.mysql.database import EPOCH, Db, database_on
from tests.mysql.test_second_reading import Part

pytestmark = pytest.mark.mysql

# type -> values in SQL, and conditions
COMPARED: dict[str, tuple[list[str], list[str]]] = {
    "INT": (
        ["-2147483648", "-1", "0", "1", "2", "2147483647"],
        ["v = 1", "v <> 1", "v < 0.5", "v >= -1", "v IN (1, 2, 3.0)", "NOT v IN (1)", "v > 99999999999999999999"],
    ),
    "BIGINT UNSIGNED": (
        ["0", "1", "9223372036854775808", "18446744073709551615"],
        ["v > -1", "v = 18446744073709551615", "v < 9223372036854775808", "v <> 1.0", "v = 1.5", "v <= 0"],
    ),
    "BIGINT": (
        ["-9223372036854775808", "9223372036854775807", "0"],
        ["v = -9223372036854775808", "v >= 9223372036854775807", "v < 9223372036854775807.5", "v > -0.5"],
    ),
    "TINYINT(1)": (["0", "1", "-1", "2"], ["v = 1", "v <> 0", "v IN (2, -1)"]),
    "DECIMAL(38,10)": (
        ["1.5", "-1.5", "0", "9999999999999999999999999999.9999999999", "0.0000000001"],
        [
            "v = 1.50",
            "v > 1",
            "v < 0.00000000005",
            "v BETWEEN -1.5 AND 0",
            "v = 9999999999999999999999999999.9999999999",
            "v >= 99999999999999999999999999999999999999",
            "NOT (v = 1.5 OR v = 0)",
        ],
    ),
    "DATE": (
        ["'1000-01-01'", "'2024-02-29'", "'9999-12-31'"],
        ["v = '2024-02-29'", "v > '2024-02-28'", "v <= '1000-01-01'", "v NOT BETWEEN '2000-01-01' AND '2030-01-01'"],
    ),
    "DATETIME(3)": (
        ["'2024-02-29 00:00:00'", "'2024-02-29 23:59:59.999'", "'1970-01-01 00:00:00.001'"],
        [
            "v = '2024-02-29'",
            "v > '2024-02-29'",
            "v >= '2024-02-29 23:59:59.999'",
            "v < '2024-02-29 23:59:59.999001' AND v <> '1970-01-01 00:00:00.001'",
            "v <= '1970-01-01 00:00:00.0005'",
        ],
    ),
    "TIMESTAMP(2) NULL": (
        ["'2024-03-31 02:30:00'", "'2024-03-31 01:00:00.25'", "'1970-01-01 00:00:01'"],
        ["v = '2024-03-31 02:30:00'", "v > '2024-03-31'", "v < '1970-01-01 00:00:01.5'", "v > '1969-12-31'"],
    ),
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": (
        ["'a'", "'A'", "'a '", "'a  '", "''", "' '", "'ä'", "'a\\u0308'", "'a\\t'", "'😀'", "'it''s'"],
        [
            f"v COLLATE utf8mb4_bin {rest}"
            for rest in ("= 'a'", "= 'a   '", "<> 'a'", "IN ('', 'ä')", "= '😀'", "NOT IN ('it''s')", "= 'ß'")
        ],
    ),
    "CHAR(4) CHARACTER SET latin1 COLLATE latin1_bin": (
        ["'a'", "'A'", "'a '", "''", "'ä'", "'€'"],
        [f"v COLLATE latin1_bin {rest}" for rest in ("= 'a'", "= 'ä'", "= '€'", "<> ''", "IN ('a', 'b  ')")],
    ),
    "ENUM('a', 'b', 'ä', 'A b') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": (
        ["'a'", "'b'", "'ä'", "'A b'"],
        ["v COLLATE utf8mb4_bin = 'a'", "v COLLATE utf8mb4_bin IN ('b ', 'A b')", "v COLLATE utf8mb4_bin <> 'ä'"],
    ),
    "TEXT CHARACTER SET utf8mb4": (
        ["'a'", "'A'", "'a '", "'ä'", "''"],
        ["v COLLATE utf8mb4_bin = 'a'", "v COLLATE utf8mb4_bin NOT IN ('A', 'x')"],
    ),
}
NOT_PADDED = {False: "utf8mb4_0900_bin", True: "utf8mb4_nopad_bin"}  # by whether the server is MariaDB
MORE = ["v IS NULL", "v IS NOT NULL", "id > 2 AND v IS NULL OR id = 1"]


@pytest.fixture
def db(any_server: LocalServer) -> Iterator[Db]:
    """A database of the test's own, on each server."""
    with database_on(any_server) as database:
        yield database


def chosen(db: Db, condition: str, name: str = "t") -> TableSchema:
    """The definition of the table, of which only the rows that meet the condition are copied."""
    return read_schema(db.connection, TableId(db.name, name), Choices(rows=str(parse(condition))))


def assert_agreed(db: Db, condition: str, part_of: TableSchema, everything: Part) -> None:
    """The server, a chunk, single rows, the checksum and the binlog have the same rows."""
    schema = chosen(db, condition)
    wanted = [int(row_id) for (row_id,) in query(db.connection, f"SELECT id FROM t WHERE {condition} ORDER BY id")]
    uuid = server_state(db.connection).uuid
    read = read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), uuid, EPOCH, look=ChunkLook(100))
    assert read.rows["id"].to_pylist() == wanted, condition
    assert read.seen.rows == everything.read.tables[part_of.table].num_rows
    assert read.second_look is not None
    assert not read.second_look.compared.differences
    assert read.second_look.compared.rows[schema.table] == len(wanted)
    ids = [{"id": row_id} for row_id in range(read.seen.rows)]
    with connect(db.source, stream=True) as connection:
        assert sorted(rows_of(connection, schema, ids)["id"].to_pylist()) == wanted, condition
    assert sum(sums.rows for sums in range_checksums(db.source, schema, EVERY_KEY).values()) == len(wanted)
    part = Part(db, everything.segment, {schema.table: schema}, db.read(everything.segment, schema))
    assert part.read.tables[schema.table]["id"].to_pylist() == wanted, condition
    compared = part.compare()
    assert not compared.differences
    assert compared.rows[schema.table] == (0 if CONDITION in compared.unread else len(wanted))


@pytest.mark.parametrize("type_", COMPARED)
@pytest.mark.long("each type on one of the servers in turn", turn="any_server")
@pytest.mark.long("other integers", only=("BIGINT", "TINYINT(1)", "BIGINT UNSIGNED"))
def test_the_server_and_we_choose_the_same_rows(db: Db, type_: str) -> None:
    """Of each type that a condition may compare, with NULL beside its values."""
    values, conditions = COMPARED[type_]
    db.run("SET time_zone = '+00:00'", f"CREATE TABLE t (id INT PRIMARY KEY, v {type_})")
    start = db.here()
    literals = [value.replace("\\u0308", "\u0308").replace("\\t", "\t") for value in values]
    db.run(*(f"INSERT INTO t VALUES ({n}, {value})" for n, value in enumerate([*literals, "NULL"])))
    plain = db.schema("t")
    everything = Part.since(db, start, plain)
    for condition in (*conditions, *MORE):
        assert_agreed(db, condition, plain, everything)


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_spaces_at_the_end_count_in_some_collations(db: Db) -> None:
    """As the server has it."""
    collation = NOT_PADDED[dialect(db.connection) is MARIADB]
    db.run(f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET utf8mb4 COLLATE {collation})")
    start = db.here()
    db.run("INSERT INTO t VALUES (0, 'a'), (1, 'a '), (2, 'A'), (3, NULL)")
    plain = db.schema("t")
    everything = Part.since(db, start, plain)
    for rest in ("= 'a'", "= 'a '", "<> 'a'", "IN ('A', 'a ')"):
        assert_agreed(db, f"v COLLATE {collation} {rest}", plain, everything)
    for condition in ("v COLLATE utf8mb4_bin = 'a'", "NOT v COLLATE utf8mb4_bin = 'a  '"):
        assert_agreed(db, condition, plain, everything)


def test_a_row_that_comes_to_meet_the_condition_is_inserted_and_one_that_ceases_to_is_deleted(db: Db) -> None:
    """Also within one transaction, and if the key changes; other changes of other rows are none."""
    db.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 1, 1), (2, 20, 2), (3, 30, 3)"
    )
    schema = chosen(db, "v >= 10")
    start = db.here()
    db.run(
        "UPDATE t SET w = 5",  # stays out, stays in
        "UPDATE t SET v = 21 - v WHERE id < 3",  # moves in, moves out
        "BEGIN",
        "UPDATE t SET v = NULL WHERE id = 3",
        "UPDATE t SET v = 10 WHERE id = 3",
        "UPDATE t SET v = 9, id = 4 WHERE id = 3",
        "INSERT INTO t VALUES (5, 5, 5), (6, 60, 6)",
        "UPDATE t SET id = 7 WHERE id = 6",
        "DELETE FROM t WHERE id IN (4, 7)",
        "COMMIT",
    )
    part = Part.since(db, start, schema)
    rows = part.read.tables[schema.table]
    found = [
        (RowKind(kind), row_id, v)
        for kind, row_id, v in zip(*(rows[name].to_pylist() for name in (KIND, "id", "v")), strict=True)
    ]
    insert, before, after, delete = RowKind
    assert found == [
        (before, 2, 20),
        (after, 2, 20),
        (before, 3, 30),
        (after, 3, 30),
        (insert, 1, 20),
        (delete, 2, 20),
        (delete, 3, 30),
        (insert, 3, 10),
        (delete, 3, 10),
        (insert, 6, 60),
        (before, 6, 60),
        (after, 7, 60),
        (delete, 7, 60),
    ]
    order = [tuple(row.values()) for row in rows.select([POS, ORDINAL]).to_pylist()]
    assert order == sorted(set(order))
    compared = part.compare()
    assert not compared.differences
    assert compared.rows[schema.table] == len(found)
    for most in (1, 3, 6):
        assert not part.compare(rows=most).differences


def test_a_condition_that_the_table_cannot_have_is_refused(db: Db) -> None:
    """By the name of the column, beside other reasons."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v DOUBLE, w VARCHAR(9) CHARACTER SET utf8mb4)")
    with pytest.raises(
        UnsupportedTable, match=r"rows: v: double cannot .*; .*rows: w: write .*; .*rows: x: no such col"
    ):
        chosen(db, "v = 1 AND w = 'a' AND x = 1")
