"""Hashes and masks are the same from a chunk and from the binlog, and are made of what the server prints."""

import hmac

import pytest

from lakeingest.core.tables.column_choice import ColumnChoice
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Choices, TableId
from lakeingest.core.waves.chunks import Chunk
from lakeingest.errors import OperatorNeeded, UnsupportedTable
from lakeingest.mysql.binlog_source import read_changes
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import EPOCH, Db

pytestmark = pytest.mark.mysql

SECRET = b"a key of sixteen!"
HASHES = Choices(columns=ColumnChoice(hash=("v",), key_id="1"))
# type -> pairs of a SQL literal and the bytes that are hashed
HASHED = {
    "BIGINT UNSIGNED ZEROFILL": [("7", b"7"), ("18446744073709551615", b"18446744073709551615")],
    "TINYINT(1)": [("-1", b"-1"), ("2", b"2")],
    "DECIMAL(12,3)": [("-0.5", b"-0.500"), ("7", b"7.000")],
    "DECIMAL(50,1)": [("1.5", b"1.5")],
    "VARCHAR(20) CHARACTER SET latin1": [("'Müller'", "Müller".encode()), ("''", b"")],
    "CHAR(9)": [("'a'", b"a")],
    "ENUM('x', 'y')": [("'y'", b"y")],
    "SET('x', 'y')": [("'x,y'", b"x,y")],
    "VARBINARY(9)": [("x'00FF'", b"\0\xff")],
    "BINARY(3)": [("x'01'", b"\1\0\0")],
    "DATE": [("'2024-02-29'", b"2024-02-29"), ("'0000-00-00'", b"0000-00-00")],
    "DATETIME(2)": [("'2024-02-29 01:02:03.5'", b"2024-02-29 01:02:03.50")],
    "TIMESTAMP NULL": [("'2024-02-29 01:02:03'", b"2024-02-29 01:02:03")],
    "TIME(1)": [("'-01:02:03.5'", b"-01:02:03.5")],
    "YEAR": [("2024", b"2024")],
    "JSON": [("'{\"b\": 1}'", b'{"b": 1}')],
}


def values_of(db: Db, choices: Choices, type_: str, literals: list[str]) -> tuple[list[object], list[object]]:
    """What a chunk and the binlog have of these values, and of NULL last."""
    db.run("SET sql_mode = ''", f"CREATE TABLE t (id INT PRIMARY KEY, v {type_})")
    schema = read_schema(db.connection, TableId(db.name, "t"), choices)
    source = db.source.with_hash_key(SECRET)
    start = db.here()
    db.run(*(f"INSERT INTO t VALUES ({n}, {literal})" for n, literal in enumerate([*literals, "NULL"])))
    read = read_chunk(source, schema, Chunk(schema.table, KeyRange()), server_state(db.connection).uuid, EPOCH)
    parts = read_changes(source, db.segment(start), {schema.table: schema})
    logged = [row["v"] for table, batch in parts if table is not None for row in batch.to_pylist()]
    return read.rows["v"].to_pylist(), logged


@pytest.mark.parametrize("type_", HASHED)
def test_a_hash_is_that_of_what_the_server_prints(db: Db, type_: str) -> None:
    """For each type that has an exact text, or bytes."""
    pairs = HASHED[type_]
    in_chunk, in_binlog = values_of(db, HASHES, type_, [literal for literal, _ in pairs])
    wanted = [*(hmac.new(SECRET, octets, "sha256").hexdigest() for _, octets in pairs), None]
    assert in_chunk == wanted
    assert in_binlog == wanted


def test_a_mask_is_the_same_on_both_paths(db: Db) -> None:
    """In the charset of the column."""
    choices = Choices(columns=ColumnChoice(mask=("V",)))
    in_chunk, in_binlog = values_of(db, choices, "VARCHAR(30) CHARACTER SET latin1", ["'Bäcker 12-3'"])
    assert in_chunk == in_binlog == ["Xxxxxx 99-9", None]


@pytest.mark.parametrize(
    ("columns", "type_", "reason"),
    [
        (ColumnChoice(hash=("v",)), "DOUBLE", "column v is double: its values have no exact text to be hashed"),
        (ColumnChoice(hash=("v",)), "BIT(3)", r"column v is bit\(3\): its values have no exact text"),
        (ColumnChoice(mask=("v",)), "INT", "column v is int: only texts can be masked"),
        (ColumnChoice(mask=("v",)), "ENUM('a')", "only texts can be masked"),
        (ColumnChoice(hash=("id",)), "INT", "leaves out or hides id, a column of its key"),
    ],
)
def test_what_cannot_be_hidden_is_refused(db: Db, columns: ColumnChoice, type_: str, reason: str) -> None:
    """By name, with the reason."""
    db.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {type_})")
    with pytest.raises(UnsupportedTable, match=reason):
        read_schema(db.connection, TableId(db.name, "t"), Choices(columns=columns))


def test_no_value_is_read_without_the_key(db: Db) -> None:
    """Neither from the table nor from the binlog."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    schema = read_schema(db.connection, TableId(db.name, "t"), HASHES)
    chunk, uuid = Chunk(schema.table, KeyRange()), server_state(db.connection).uuid
    with pytest.raises(OperatorNeeded, match=r"v is hashed; set tables\.hash_key"):
        read_chunk(db.source, schema, chunk, uuid, EPOCH)
    with pytest.raises(OperatorNeeded, match=r"v is hashed; set tables\.hash_key"):
        list(read_changes(db.source, db.segment(db.here()), {schema.table: schema}))
