import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    BinlogGone,
    SchemaChanged,
    SourceAway,
    SourceReplaced,
    UnsupportedEvent,
    UnsupportedValue,
)
from lakeingest.mysql import binlog_reader
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.source_types import source_type
from tests.mysql import witness
from tests.mysql.database import EPOCH, SERVER_IDS, Db, database_on

pytestmark = pytest.mark.mysql


@pytest.fixture(autouse=True, params=["fast", "reference"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both decoders."""
    monkeypatch.setenv("LAKEINGEST_WIRE", request.param)
    return str(request.param)


PLUS_I, MINUS_U, PLUS_U, MINUS_D = range(4)
Servers = Callable[..., LocalServer]


@pytest.fixture
def own_db(mysql_server_with: Servers) -> Iterator[Db]:
    """A database on a server whose global settings and files may be spoilt; its row metadata are MINIMAL."""
    with database_on(mysql_server_with(binlog_row_metadata="MINIMAL")) as database:
        yield database


@pytest.fixture
def plain_db(mysql_server_with: Servers) -> Iterator[Db]:
    """A database on a server without GTIDs and checksums."""
    off = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF", "binlog_checksum": "NONE"}
    with database_on(mysql_server_with(**off)) as database:
        yield database


def test_changes_are_read_as_row_halves(db: Db) -> None:
    """An insert is +I, an update -U then +U with both images, a delete -D; ordinals count them."""
    table = db.table("t", "id INT PRIMARY KEY, v VARCHAR(10)")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET v = 'c'", "DELETE FROM t WHERE id = 1")
    rows = db.read(db.segment(start), table)
    assert rows.halves(table.table, "id", "v") == [
        (0, PLUS_I, 1, "a"),
        (1, PLUS_I, 2, "b"),
        (0, MINUS_U, 1, "a"),
        (1, PLUS_U, 1, "c"),
        (2, MINUS_U, 2, "b"),
        (3, PLUS_U, 2, "c"),
        (0, MINUS_D, 1, "c"),
    ]


def test_a_change_of_the_key_has_both_keys(db: Db) -> None:
    """The -U of a key move has the old key, its +U the new one."""
    table = db.table("t", "id INT PRIMARY KEY, v INT")
    db.run("INSERT INTO t VALUES (1, 10)")
    start = db.here()
    db.run("UPDATE t SET id = 2")
    rows = db.read(db.segment(start), table)
    assert rows.halves(table.table, "id", "v") == [(0, MINUS_U, 1, 10), (1, PLUS_U, 2, 10)]


def test_all_rows_of_a_transaction_have_the_same_place(db: Db) -> None:
    """Its statements and events share place, GTID and commit time, and are counted by ordinals."""
    one = db.table("one", "id INT PRIMARY KEY, v VARCHAR(1000)")
    two = db.table("two", "id INT PRIMARY KEY")
    start = db.here()
    inserts = ", ".join(f"({id_}, REPEAT('x', 1000))" for id_ in range(50))
    db.run("BEGIN", f"INSERT INTO one VALUES {inserts}", "INSERT INTO two VALUES (1)", "SAVEPOINT s")
    db.run("UPDATE one SET v = 'y' WHERE id < 20", "DELETE FROM one WHERE id = 49", "COMMIT")
    stop = db.here()
    read = db.read(db.segment(start, stop), one, two)
    [logged] = read.log.to_pylist()
    for table, ordinals in ((one, [*range(50), *range(51, 92)]), (two, [50])):
        rows = read.tables[table.table]
        assert rows[change.ORDINAL].to_pylist() == ordinals
        assert set(rows[change.EPOCH].to_pylist()) == {EPOCH}
        assert set(rows[change.FILE].to_pylist()) == {stop.number}
        assert set(rows[change.POS].to_pylist()) == {stop.pos}
        assert set(rows[change.GTID].to_pylist()) == {f"{logged['uuid']}:{logged['number']}"}
        assert set(rows[change.COMMITTED_AT].to_pylist()) == {logged["committed_at"]}


def test_every_transaction_is_logged_with_its_end(db: Db) -> None:
    """With GTID, end and time; also transactions that change no copied table."""
    table = db.table("t", "id INT PRIMARY KEY")
    with connect(db.source) as other:
        query(other, f"CREATE TABLE {db.name}.beside (id INT PRIMARY KEY)")
    before, start = GtidSet.parse(db.executed()), db.here()
    ends = []
    for statement in (
        "INSERT INTO t VALUES (1)",
        "INSERT INTO beside VALUES (1)",
        "CREATE TABLE more (id INT)",
    ):
        db.run(statement)
        ends.append(db.here())
    log = db.read(db.segment(start), table).log.to_pylist()
    gtids = GtidSet.of_gtids(Gtid(row["uuid"], row["number"], row["tag"]) for row in log)
    assert gtids == GtidSet.parse(db.executed()) - before
    assert [(row["epoch"], row["file"], row["pos"]) for row in log] == [(EPOCH, end.number, end.pos) for end in ends]
    assert all(timedelta() <= datetime.now(UTC) - row["committed_at"] < timedelta(minutes=5) for row in log)


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_a_batch_has_at_most_the_maximum_of_rows(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger transaction is in several batches, and no row is lost between them."""
    monkeypatch.setattr("lakeingest.mysql.witness.change_batches.BATCH_ROWS", 10)
    table = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    db.run("INSERT INTO t VALUES " + ", ".join(f"({id_})" for id_ in range(25)), "DELETE FROM t WHERE id = 0")
    rows = db.read(db.segment(start), table).tables[table.table]
    assert [len(batch) for batch in rows.to_batches()] == [10, 10, 6]
    assert rows["id"].to_pylist() == [*range(25), 0]


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_large_rows_fill_a_batch_early(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of large rows has only a few."""
    monkeypatch.setattr("lakeingest.mysql.witness.change_batches._BATCH_BYTES", 50_000)
    table = db.table("t", "id INT PRIMARY KEY, v LONGTEXT")
    start = db.here()
    db.run("INSERT INTO t VALUES " + ", ".join(f"({id_}, REPEAT('x', 20000))" for id_ in range(7)))
    rows = db.read(db.segment(start), table).tables[table.table]
    assert [len(batch) for batch in rows.to_batches()] == [3, 3, 1]
    assert rows["id"].to_pylist() == list(range(7))


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_a_transaction_too_large_for_memory_is_buffered_in_a_file(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same rows at the end."""
    monkeypatch.setattr("lakeingest.mysql.witness.decoder._IN_MEMORY", 100)
    table = db.table("t", "id INT PRIMARY KEY, v VARCHAR(1000)")
    start = db.here()
    for first in (0, 50):
        values = ", ".join(f"({id_}, REPEAT('x', 1000))" for id_ in range(first, first + 50))
        db.run(f"INSERT INTO t VALUES {values}")
    rows = db.read(db.segment(start), table).tables[table.table]
    assert rows["id"].to_pylist() == list(range(100))


MEMBERS = ", ".join(f"'{i}'" for i in range(64))
MORE_MEMBERS = ", ".join(f"'é{i}'" for i in range(300))

# columns, and rows of SQL literals: what both decoders read
VALUES: dict[str, list[str]] = {
    "ti TINYINT": ["-128", "127", "NULL"],
    "tu TINYINT UNSIGNED": ["0", "255", "NULL"],
    "si SMALLINT": ["-32768", "32767", "NULL"],
    "su SMALLINT UNSIGNED": ["0", "65535", "1"],
    "mi MEDIUMINT": ["-8388608", "8388607", "-1"],
    "mu MEDIUMINT UNSIGNED": ["0", "16777215", "NULL"],
    "i INT": ["-2147483648", "2147483647", "NULL"],
    "iu INT UNSIGNED": ["0", "4294967295", "NULL"],
    "bi BIGINT": ["-9223372036854775808", "9223372036854775807", "NULL"],
    "bu BIGINT UNSIGNED": ["0", "18446744073709551615", "NULL"],
    "d1 DECIMAL(38,10)": [
        "-9999999999999999999999999999.9999999999",
        "0.0000000001",
        "9999999999999999999999999999.9999999999",
    ],
    "d2 DECIMAL(5,5)": ["-0.00001", "0.99999", "0"],
    "d3 DECIMAL(9,0)": ["-999999999", "999999999", "-1"],
    "d4 DECIMAL(18,4)": ["-12345678901234.0001", "7.1", "0"],
    "d5 DECIMAL(7,2)": ["-99999.99", "-0.01", "10.00"],
    "d6 DECIMAL(65,30)": ["-99999999999999999999999999999999999.999999999999999999999999999999", "0", "-0.5"],
    "d7 DECIMAL(39,0)": ["-999999999999999999999999999999999999999", "7", "NULL"],
    "d8 DECIMAL(6,2) ZEROFILL": ["0", "7.25", "9999.99"],
    "d9 DECIMAL(50,2) ZEROFILL": ["0", "7.25", "123456789012345678901234567890123456789012.5"],
    "iz INT ZEROFILL": ["0", "5", "4294967295"],
    "f FLOAT": ["1.1", "-3.4028235e38", "1.17549e-38"],
    "db DOUBLE": ["1.1", "-1.7976931348623157e308", "5e-324"],
    "da DATE": ["'1000-01-01'", "'9999-12-31'", "NULL"],
    "dt DATETIME": ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "NULL"],
    "dt1 DATETIME(1)": ["'2024-02-29 12:34:56.9'", "'2024-02-29 12:34:56.0'", "NULL"],
    "dt3 DATETIME(3)": ["'2024-02-29 12:34:56.999'", "'2024-02-29 12:34:56.001'", "NULL"],
    "dt6 DATETIME(6)": ["'2024-02-29 12:34:56.000001'", "'9999-12-31 23:59:59.999999'", "NULL"],
    "ts TIMESTAMP NULL": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "NULL"],
    "ts5 TIMESTAMP(5) NULL": ["'2024-03-31 02:30:00.00001'", "'2024-10-27 02:30:00.99999'", "NULL"],
    "ch CHAR(10)": ["'trailing  '", "'é😀'", "NULL"],
    "ca CHAR(5) CHARACTER SET ascii": ["'abc'", "''", "NULL"],
    "c3 CHAR(255) CHARACTER SET utf8mb3": ["REPEAT('ü', 255)", "'a'", "NULL"],
    "vc VARCHAR(300)": ["'trailing  '", "REPEAT('😀', 300)", "''"],
    "vb VARCHAR(20) COLLATE utf8mb4_bin": ["'A'", "'a'", "NULL"],
    "tx TEXT": ["'zeile\\nzwei'", "REPEAT('é', 30000)", "''"],
    "tt TINYTEXT": ["'x'", "''", "NULL"],
    "lt LONGTEXT CHARACTER SET utf8mb3": ["'x'", "''", "NULL"],
    "en ENUM('a','b','ü','it''s','c\\\\d')": ["'ü'", "'it''s'", "'c\\\\d'"],
    "e0 ENUM('a','b')": ["'not a member'", "NULL", "'b'"],
    f"e300 ENUM({MEMBERS}, {MORE_MEMBERS})": ["'0'", "'é299'", "NULL"],
    "e0x ENUM('','b')": ["''", "'b'", "'not a member'"],
    "bn BINARY(4)": ["x'00'", "x'FF000000'", "'ab'"],
    "b3 BINARY(255)": ["x'00FF'", "''", "NULL"],
    "vn VARBINARY(300)": ["x'FF00'", "''", "NULL"],
    "cb CHAR(4) CHARACTER SET binary": ["x'C3'", "'ab'", "NULL"],
    "vcb VARCHAR(9) CHARACTER SET binary": ["x'C328'", "'text'", "NULL"],
    "bl BLOB": ["x'00'", "REPEAT(x'FF', 60000)", "NULL"],
    "lb LONGBLOB": ["x'FFFE'", "''", "NULL"],
}


# the same, of what only the fast decoder reads
MORE: dict[str, list[str]] = {
    "yr YEAR": ["0", "1901", "2155"],
    "tm TIME": ["'-838:59:59'", "'838:59:59'", "NULL"],
    "tm1 TIME(1)": ["'-0:00:00.1'", "'0:00:00.9'", "'100:00:00'"],
    "tm3 TIME(3)": ["'-1:00:00.001'", "'-0:00:59.999'", "'0'"],
    "tm6 TIME(6)": ["'-838:59:58.999999'", "'-0:00:00.000001'", "'23:59:59.999999'"],
    "b1 BIT": ["b'0'", "b'1'", "NULL"],
    "b9 BIT(9)": ["b'100000001'", "0", "NULL"],
    "b64 BIT(64)": ["18446744073709551615", "1", "NULL"],
    "s1 SET('a','ü')": ["'a,ü'", "''", "NULL"],
    f"s64 SET({MEMBERS})": ["'0,63'", "9223372036854775808", "18446744073709551615"],
    "j JSON": ["""'{"b": [1, 2.50, null, true], "a": "ü"}'""", "'[]'", "'null'"],
    "g GEOMETRY": [
        "POINT(1, 2)",
        "ST_GeomFromText('POINT(10 20)', 4326)",
        "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')",
    ],
    "pt POINT": ["POINT(-1.5, 0)", "NULL", "POINT(0, 0)"],
    "ls LINESTRING": ["ST_GeomFromText('LINESTRING(0 0, 1 1)')", "NULL", "NULL"],
    "ve VECTOR(3)": ["TO_VECTOR('[1.1, -2, 3e30]')", "NULL", "TO_VECTOR('[0]')"],
    "l1 VARCHAR(9) CHARACTER SET latin1": ["'é€'", "''", "NULL"],
    "u2 CHAR(9) CHARACTER SET ucs2": ["'é€'", "''", "NULL"],
    "u32 TEXT CHARACTER SET utf32": ["'é😀'", "''", "NULL"],
    "sj TEXT CHARACTER SET sjis": ["'表ソ'", "''", "NULL"],
    "gb VARCHAR(9) CHARACTER SET gb18030": ["'中😀'", "''", "NULL"],
    "el ENUM('ä','b') CHARACTER SET latin1": ["'ä'", "'b'", "NULL"],
}


def test_every_value_equals_that_of_a_select(db: Db, wire: str) -> None:
    """For every kind, binlog and SELECT give the same Arrow column, which equals the server's text."""
    wanted = VALUES if wire == "reference" else VALUES | MORE
    table = db.table("t", f"id INT PRIMARY KEY, {', '.join(wanted)}")
    start = db.here()
    for id_, row in enumerate(zip(*wanted.values(), strict=True)):
        db.run(f"INSERT INTO t VALUES ({id_}, {', '.join(row)})")
    logged = db.read(db.segment(start), table).tables[table.table]
    selected, said = db.select(table), db.witness(table)
    for column in table.columns:
        assert witness.shown(column, selected[column.name]) == said[column.name], column.name
        assert logged[column.name].combine_chunks().equals(selected[column.name].combine_chunks()), column.name


def test_values_of_every_kind_are_tested(db: Db) -> None:
    """A new kind needs values here."""
    table = db.table("t", f"id INT PRIMARY KEY, {', '.join(VALUES | MORE)}")
    assert {column.kind for column in table.columns} == witness.USUAL


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
@pytest.mark.parametrize("declared", MORE)
def test_columns_that_the_reference_misreads_are_refused(db: Db, declared: str) -> None:
    """By name: the slow path never reads a value inexactly."""
    table = db.table("t", f"id INT PRIMARY KEY, {declared}")
    start = db.here()
    db.run(f"INSERT INTO t VALUES (1, {MORE[declared][0]})")
    with pytest.raises(UnsupportedValue, match=rf"column {declared.split(maxsplit=1)[0]} "):
        db.read(db.segment(start), table)


def test_values_are_exact_in_updates_and_deletes(db: Db, wire: str) -> None:
    """Before and after images have the whole row, whichever column changed."""
    wanted = VALUES if wire == "reference" else VALUES | MORE
    table = db.table("t", f"id INT PRIMARY KEY, {', '.join(wanted)}")
    for id_, row in enumerate(zip(*wanted.values(), strict=True)):
        db.run(f"INSERT INTO t VALUES ({id_}, {', '.join(row)})")
    start = db.here()
    db.run("UPDATE t SET i = 5", "DELETE FROM t")
    rows = db.read(db.segment(start), table).tables[table.table].to_pylist()
    images: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        images.setdefault(row[change.KIND], []).append({name: row[name] for name in table.names})
    assert images[PLUS_U] == images[MINUS_D]
    assert images[PLUS_U] == [{**row, "i": 5} for row in images[MINUS_U]]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("DATE", "0000-00-00"),
        ("DATE", "2024-00-10"),
        ("DATE", "2024-01-00"),
        ("DATETIME", "0000-00-00 00:00:00"),
        ("DATETIME(3)", "2024-01-00 01:02:03.4"),
        ("TIMESTAMP NULL", "0000-00-00 00:00:00"),
    ],
)
def test_a_zero_or_partial_date_is_refused(db: Db, column: str, value: str) -> None:
    """With the column's name; it never becomes NULL or 1970."""
    table = db.table("t", f"id INT PRIMARY KEY, n INT, seen {column}")
    start = db.here()
    db.run(f"INSERT INTO t VALUES (1, NULL, NULL), (2, NULL, '{value}')")
    with pytest.raises(UnsupportedValue, match=rf"{db.name}\.t .*column seen"):
        db.read(db.segment(start), table)


def test_an_impossible_date_is_refused(db: Db) -> None:
    """31 February, which ALLOW_INVALID_DATES allows."""
    table = db.table("t", "id INT PRIMARY KEY, seen DATE")
    start = db.here()
    db.run("SET sql_mode = 'ALLOW_INVALID_DATES'", "INSERT INTO t VALUES (1, '2024-02-31')")
    with pytest.raises(UnsupportedValue, match=rf"{db.name}\.t "):
        db.read(db.segment(start), table)


def test_transactions_of_the_skip_set_are_skipped(db: Db) -> None:
    """They are neither decoded nor logged, even those that would be refused."""
    table = db.table("t", "id INT PRIMARY KEY, v INT")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t COMMENT 'x'")
    with db.session() as compressing:
        query(compressing, "SET binlog_transaction_compression = ON")
        query(compressing, "INSERT INTO t SELECT 2, 2")
    db.run("FLUSH BINARY LOGS")
    skip = db.executed()
    assert db.read(db.segment(start, skip=skip), table).log.num_rows == 0
    db.run("INSERT INTO t VALUES (3, 3)")
    read = db.read(db.segment(start, skip=skip), table)
    assert read.halves(table.table, "id") == [(0, PLUS_I, 3)]
    assert read.log.num_rows == 1


def test_a_segment_may_span_files(db: Db) -> None:
    """Rows of several binlog files are in order, each with its own file's number."""
    table = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    for id_ in range(3):
        db.run(f"INSERT INTO t VALUES ({id_})", "FLUSH BINARY LOGS")
    read = db.read(db.segment(start), table)
    assert read.tables[table.table]["id"].to_pylist() == [0, 1, 2]
    files = read.tables[table.table][change.FILE].to_pylist()
    assert files == [start.number, start.number + 1, start.number + 2]


def test_a_segment_has_exactly_the_transactions_between_start_and_stop(db: Db) -> None:
    """For every pair of ends of transactions and ends and beginnings of files."""
    table = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    ends = [start]
    for id_ in range(4):
        db.run(f"INSERT INTO t VALUES ({id_})")
        ends.append(db.here())
        if id_ == 1:
            db.run("FLUSH BINARY LOGS")
    inserted_before = {end: number for number, end in enumerate(ends)}
    second = FilePosition(ends[-1].file, 4)
    inserted_before[second] = 2
    [size] = [row[1] for row in query(db.connection, "SHOW BINARY LOGS") if row[0] == ends[2].file]
    inserted_before[FilePosition(ends[2].file, int(size))] = 2
    places = sorted(inserted_before, key=lambda at: (at.number, at.pos))
    for first, last in itertools.combinations_with_replacement(places, 2):
        ids = db.read(db.segment(first, last), table).tables[table.table]["id"].to_pylist()
        assert ids == list(range(inserted_before[first], inserted_before[last])), (first, last)


def test_adjacent_segments_give_the_same_rows_as_a_single_one(db: Db) -> None:
    """Two segments that meet at a transaction's end give the rows and the log of the whole."""
    table = db.table("t", "id INT PRIMARY KEY, v INT")
    start = db.here()
    for id_ in range(5):
        db.run("BEGIN", f"INSERT INTO t VALUES ({id_}, 0)", f"UPDATE t SET v = {id_}", "COMMIT")
        if id_ == 2:
            db.run("FLUSH BINARY LOGS")
    stop = db.here()
    whole = db.read(db.segment(start, stop), table)
    for place in whole.log.select(["file", "pos"]).to_pylist():
        middle = FilePosition(f"binlog.{place['file']:06d}", place["pos"])
        left, right = db.read(db.segment(start, middle), table), db.read(db.segment(middle, stop), table)
        assert pa.concat_tables([left.log, right.log]).equals(whole.log)
        rows = pa.concat_tables([left.tables[table.table], right.tables[table.table]])
        assert rows.equals(whole.tables[table.table])


def test_a_start_beyond_four_gibibytes_is_reached_from_the_start_of_the_file(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dump command cannot express it, so the events before it are read and skipped."""
    monkeypatch.setattr(binlog_reader, "_DUMP_POS_MAX", 4)
    table = db.table("t", "id INT PRIMARY KEY")
    db.run("INSERT INTO t VALUES (1)", "ALTER TABLE t COMMENT 'x'")
    start = db.here()
    db.run("INSERT INTO t VALUES (2)")
    read = db.read(db.segment(start), table)
    assert read.halves(table.table, "id") == [(0, PLUS_I, 2)]
    assert read.log.num_rows == 1


def test_an_empty_segment_has_no_rows(db: Db) -> None:
    """And the server gets no request."""
    here = db.here()
    nobody: Any = None
    assert list(read_segment(nobody, db.segment(here, here), {}, 1)) == []


def test_rows_of_other_tables_are_not_decoded(db: Db) -> None:
    """They may have values that a copied table may not have."""
    table = db.table("t", "id INT PRIMARY KEY")
    db.run("CREATE TABLE beside (id INT PRIMARY KEY, d DATE, j JSON, g GEOMETRY, b BIT(3), tm TIME, s SET('a'))")
    start = db.here()
    db.run("BEGIN", "INSERT INTO beside VALUES (1, '0000-00-00', '[]', POINT(1, 1), b'1', '-1:00', 'a')")
    db.run("INSERT INTO t VALUES (1)", "COMMIT")
    with db.session() as minimal:
        query(minimal, "SET binlog_row_image = MINIMAL")
        query(minimal, "UPDATE beside SET d = '2024-01-01'")
    read = db.read(db.segment(start), table)
    assert read.halves(table.table, "id") == [(0, PLUS_I, 1)]
    assert read.log.num_rows == 2


def test_statements_that_change_no_copied_table_are_skipped(db: Db) -> None:
    """New tables, users, views, triggers, routines and DDL of other databases; they are logged as transactions."""
    table = db.table("t", "id INT PRIMARY KEY")
    other = f"{db.name}_other"
    start = db.here()
    with connect(db.source) as elsewhere:
        for statement in (
            f"CREATE DATABASE {other}",
            f"USE {other}",
            "CREATE TABLE x (id INT PRIMARY KEY)",
            "ALTER TABLE x ADD v INT",
            "CREATE INDEX i ON x (v)",
            "RENAME TABLE x TO y",
            "TRUNCATE y",
            "DROP TABLE y",
            f"DROP DATABASE {other}",
        ):
            query(elsewhere, statement)
    db.run(
        "CREATE TABLE new LIKE t",
        "CREATE TABLE IF NOT EXISTS t (id INT)",
        "CREATE TABLE filled SELECT id FROM t",
        "CREATE DEFINER=CURRENT_USER SQL SECURITY INVOKER VIEW v AS SELECT id FROM t",
        "CREATE OR REPLACE VIEW v AS SELECT id + 1 FROM t",
        "CREATE TRIGGER tr BEFORE INSERT ON new FOR EACH ROW SET NEW.id = NEW.id + 1",
        "DROP TRIGGER tr",
        "CREATE PROCEDURE p() DELETE FROM t",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1",
        "CREATE EVENT e ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 1 DAY DO SELECT 1",
        "ALTER EVENT e DISABLE",
        "/* a comment */ DROP EVENT e",
        f"CREATE USER {db.name}@localhost IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON t TO {db.name}@localhost",
        f"ALTER USER {db.name}@localhost ACCOUNT LOCK",
        f"DROP USER {db.name}@localhost",
        "ANALYZE TABLE t",
        "CREATE TEMPORARY TABLE tmp (id INT)",
        "INSERT INTO tmp VALUES (1)",
        "DROP TEMPORARY TABLE tmp",
        "FLUSH TABLES",
        "INSERT INTO t VALUES (1)",
    )
    executed = GtidSet.parse(db.executed())
    read = db.read(db.segment(start), table)
    assert read.halves(table.table, "id") == [(0, PLUS_I, 1)]
    log = read.log.to_pylist()
    assert len(log) >= 25
    assert GtidSet.of_gtids(Gtid(row["uuid"], row["number"], row["tag"]) for row in log) <= executed


def test_a_change_in_statement_format_of_another_table_is_passed(db: Db) -> None:
    """The rows around it are read. Views and functions that it does not name do not matter."""
    table = db.table("t", "id INT PRIMARY KEY, v INT")
    db.run(
        "CREATE TABLE beside (id INT PRIMARY KEY AUTO_INCREMENT, n DOUBLE, v INT)",
        "CREATE TABLE checked (db CHAR(64), tbl CHAR(64), chunk INT, crc CHAR(40), PRIMARY KEY (db, tbl, chunk))",
        "CREATE VIEW seen AS SELECT * FROM t",
    )
    start = db.here()
    with db.session() as other:
        for statement in (
            "INSERT INTO t VALUES (1, 1)",
            "SET binlog_format = STATEMENT, @v = 5",
            "INSERT INTO beside (n, v) VALUES (RAND(), @v), (2.5, 3)",
            "INSERT INTO beside (v) SELECT v FROM t",
            f"UPDATE {db.name}.beside AS b SET v = 2 WHERE id < 3 ORDER BY id LIMIT 1",
            'DELETE FROM beside WHERE v = 3 /* "t" */',
            "REPLACE INTO `checked` (db, tbl, chunk, crc) SELECT 's', 't', '1', COALESCE(LOWER(CONV(BIT_XOR(CAST("
            f"CRC32(CONCAT_WS('#', `id`, `v`)) AS UNSIGNED)), 10, 16)), 0) FROM {db.name}.t FORCE INDEX (`PRIMARY`)",
            "SET binlog_format = ROW",
            "UPDATE t SET v = 9",
        ):
            query(other, statement)
    read = db.read(db.segment(start), table)
    assert read.halves(table.table, "id", "v") == [(0, PLUS_I, 1, 1), (0, MINUS_U, 1, 1), (1, PLUS_U, 1, 9)]


# what, what happens beside the watched table t (id INT, v INT), and the refusal
REFUSED: dict[str, tuple[list[str], str]] = {
    "a new column": (["ALTER TABLE t ADD c INT"], r"DDL .*ALTER TABLE t ADD c INT"),
    "TRUNCATE": (["TRUNCATE t"], r"DDL .*TRUNCATE t"),
    "DROP": (["DROP TABLE t"], r"DDL .*DROP TABLE `t`"),
    "RENAME": (["RENAME TABLE t TO u"], r"DDL .*RENAME"),
    "a swap": (["CREATE TABLE n LIKE t", "RENAME TABLE t TO o, n TO t"], r"DDL .*RENAME"),
    "DDL in a comment for versions": (["/*!50000 ALTER */ TABLE t DROP v"], r"DDL .*TABLE t"),
    "an UPDATE as a statement": (
        ["SET binlog_format = STATEMENT", "UPDATE t SET v = 1"],
        r"statement format \(UPDATE .*binlog_format=ROW",
    ),
    "an UPDATE of several tables as a statement": (
        ["SET binlog_format = STATEMENT", "UPDATE beside, t SET j = '1', v = 1"],
        r"statement format, and it may change several tables \(UPDATE",
    ),
    "a statement that fires a trigger": (
        [
            "CREATE TRIGGER fired AFTER INSERT ON beside FOR EACH ROW UPDATE t SET v = NEW.id",
            "SET binlog_format = STATEMENT",
            "INSERT INTO beside VALUES (5, '{}')",
        ],
        r"statement format, and its table has triggers \(INSERT",
    ),
    "a statement whose foreign key changes rows": (
        [
            "CREATE TABLE parent (id INT PRIMARY KEY)",
            "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE)",
            "SET binlog_format = STATEMENT",
            "DELETE FROM parent",
        ],
        r"statement format, and foreign keys change other tables with it \(DELETE",
    ),
    "a statement on a view": (
        [
            "CREATE VIEW seen AS SELECT * FROM t",
            "SET binlog_format = STATEMENT",
            "UPDATE seen SET v = 2",
        ],
        r"statement format, and its table is not a base table of the source now \(UPDATE",
    ),
    "a statement with a stored function": (
        [
            "SET GLOBAL log_bin_trust_function_creators = ON",
            "CREATE FUNCTION bump() RETURNS INT BEGIN UPDATE t SET v = 3; RETURN 1; END",
            "SET binlog_format = STATEMENT",
            "INSERT INTO beside VALUES (bump(), '{}')",
        ],
        r"statement format, and it names a view or a stored function \(bump\) \(INSERT",
    ),
    "a statement with a user variable": (
        ["SET binlog_format = STATEMENT", "SET @v = 1", "UPDATE t SET v = @v"],
        r"statement format \(UPDATE .*binlog_format=ROW",
    ),
    "a statement with RAND()": (
        ["SET binlog_format = STATEMENT", "UPDATE t SET v = RAND()"],
        r"statement format \(UPDATE .*binlog_format=ROW",
    ),
    "a minimal row image": (
        ["SET binlog_row_image = MINIMAL", "UPDATE t SET v = 2"],
        r"bl_\d+\.t .*row image not FULL.*binlog_row_image=FULL",
    ),
    "a part of a JSON value": (
        [
            "SET binlog_row_value_options = PARTIAL_JSON",
            """INSERT INTO beside VALUES (9, '{"a": "xxxxxxxxxx", "b": [1, 2, 3]}')""",
            "UPDATE beside SET j = JSON_SET(j, '$.a', 'y') WHERE id = 9",
        ],
        r"PARTIAL_UPDATE_ROWS .*binlog_row_value_options",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_events_that_cannot_be_replayed_stop_the_reader(db: Db, what: str) -> None:
    """The message has the event, the place before it, and the fix."""
    statements, message = REFUSED[what]
    table = db.table("t", "id INT PRIMARY KEY, v INT")
    db.run("CREATE TABLE beside (id INT PRIMARY KEY, j JSON)", "INSERT INTO t VALUES (7, 7)")
    start = db.here()
    with db.session() as other:
        for statement in statements:
            query(other, statement)
    with pytest.raises(UnsupportedEvent, match=message) as stopped:
        db.read(db.segment(start), table)
    [found] = re.findall(r"binlog\.\d{6}:\d+", str(stopped.value))
    assert FilePosition.parse(found).pos >= start.pos
    assert "copy the table" in str(stopped.value)
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_the_reference_refuses_a_compressed_transaction(db: Db) -> None:
    """Its library would drop such a transaction silently."""
    table = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    with db.session() as other:
        query(other, "SET binlog_transaction_compression = ON")
        query(other, "INSERT INTO t VALUES (1)")
    with pytest.raises(UnsupportedEvent, match=r"TRANSACTION_PAYLOAD .*binlog_transaction_compression=OFF"):
        db.read(db.segment(start), table)


def test_a_changed_definition_stops_the_reader(db: Db) -> None:
    """Columns with another name, order, type or number of digits than in the copy."""
    made = db.table("t", "id INT PRIMARY KEY, a INT, d DECIMAL(10,2), e ENUM('x','y')")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 1, 1.5, 'x')")
    segment = db.segment(start)
    id_, a, d, e = made.columns
    for columns in (
        (id_, Column("b", Kind.INT32, source_type("int")), d, e),
        (id_, d, a, e),
        (id_, a, d),
        (id_, Column("a", Kind.INT64, source_type("int unsigned")), d, e),
        (id_, Column("a", Kind.STRING, source_type("varchar(9)")), d, e),
        (id_, a, Column("d", Kind.DECIMAL, source_type("decimal(10,3)"), precision=10, scale=3), e),
        (id_, a, d, Column("e", Kind.BINARY, source_type("blob"))),
    ):
        with pytest.raises(SchemaChanged, match=rf"{db.name}\.t .*copy the table again"):
            db.read(segment, TableSchema(made.table, columns, ("id",)))
    assert db.read(segment, made).halves(made.table, "a", "e") == [(0, PLUS_I, 1, "x")]


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_text_in_an_unexpected_charset_is_refused(db: Db) -> None:
    """Bytes are never returned for text, or the reverse."""
    made = db.table("t", "id INT PRIMARY KEY, a VARBINARY(9), b VARCHAR(9)")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 'x', 'y')")
    id_, a, b = made.columns
    for columns in (
        (id_, Column("a", Kind.STRING, source_type("varchar(9)")), b),
        (id_, a, Column("b", Kind.BINARY, source_type("varbinary(9)"))),
    ):
        with pytest.raises(UnsupportedValue, match=r"was decoded to str, not bytes|cannot read it exactly"):
            db.read(db.segment(start), TableSchema(made.table, columns, ("id",)))


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_names_that_the_library_misreads_are_refused(db: Db) -> None:
    """An enum member of more than 127 bytes, which mysql-replication reads wrong, stops the reader."""
    table = db.table("t", f"id INT PRIMARY KEY, e ENUM('{'ü' * 100}', 'b')")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 'b')")
    with pytest.raises(UnsupportedEvent, match=rf"{db.name}\.t "):
        db.read(db.segment(start), table)


def test_a_stop_inside_a_transaction_is_an_error(db: Db) -> None:
    """A transaction must end at the stop."""
    table = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    db.run("INSERT INTO t VALUES (1)")
    stop = db.here()
    events = query(db.connection, f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.pos}")
    inside = [int(row[4]) for row in events if start.pos < int(row[4]) < stop.pos]
    assert len(inside) == 4  # GTID, BEGIN, table map, rows
    for pos in [*inside, stop.pos - 1]:
        with pytest.raises(BinlogGone, match="no transaction ends at"):
            db.read(db.segment(start, FilePosition(stop.file, pos)), table)


def test_a_binlog_that_ends_before_the_stop_is_gone(db: Db) -> None:
    """The server lost the end of its binlog."""
    here = db.here()
    with pytest.raises(BinlogGone, match=rf"ends at {here}, before"):
        db.read(db.segment(here, FilePosition(here.file, here.pos + 500)))


def test_the_binlog_of_another_server_is_refused(db: Db) -> None:
    """A position is valid only on its server."""
    here = db.here()
    stop = FilePosition(here.file, here.pos + 1)
    other = Segment("00000000-0000-0000-0000-000000000000", EPOCH, here, stop, GtidSet())
    with pytest.raises(SourceReplaced, match="00000000-0000-0000-0000-000000000000"):
        db.read(other)


@pytest.mark.long("the slow decoders", only=("reference",))
def test_a_broken_connection_is_a_reason_to_retry(db: Db) -> None:
    """When the session is killed during the dump, the error says: run again."""
    table = db.table("t", "id INT PRIMARY KEY, v LONGTEXT")
    start = db.here()
    for id_ in range(80):  # more than the two ends of a socket and a batch of the reference hold
        db.run(f"INSERT INTO t VALUES ({id_}, REPEAT('x', 1000000))")
    segment = db.segment(start)
    with connect(db.source) as reading:
        [(number,)] = query(reading, "SELECT CONNECTION_ID()")
        parts = read_segment(reading, segment, {table.table: table}, next(SERVER_IDS))
        next(parts)
        db.run(f"KILL {number}")
        with pytest.raises(SourceAway):
            list(parts)


def test_a_purged_file_is_gone(own_db: Db) -> None:
    """A start in a file that the server has purged is an error, not an empty result."""
    start = own_db.here()
    own_db.run("FLUSH BINARY LOGS")
    stop = own_db.here()
    own_db.run(f"PURGE BINARY LOGS TO '{stop.file}'")
    with pytest.raises(BinlogGone, match="copy the tables again"):
        own_db.read(own_db.segment(start, stop))


def test_minimal_row_metadata_are_read_by_the_definition(own_db: Db) -> None:
    """Without the names of columns in the binlog the definition says what they are."""
    table = own_db.table("t", "a TINYINT UNSIGNED, id INT PRIMARY KEY, e ENUM('x','y'), v VARCHAR(9), b VARBINARY(9)")
    start = own_db.here()
    own_db.run("INSERT INTO t VALUES (200, 1, 'y', 'ä', x'FF')", "DELETE FROM t")
    found = own_db.read(own_db.segment(start), table).halves(table.table, *table.names)
    assert [half[2:] for half in found] == [(200, 1, "y", "ä", b"\xff")] * 2


def test_minimal_row_metadata_of_another_table_are_a_change(own_db: Db) -> None:
    """Without names, columns of another number or type stop the table."""
    table = own_db.table("t", "id INT PRIMARY KEY, v INT")
    for now in ("v INT, w INT", "v BIGINT"):
        own_db.run("DROP TABLE t", f"CREATE TABLE t (id INT PRIMARY KEY, {now})")
        start = own_db.here()
        own_db.run("INSERT INTO t (id) VALUES (1)")
        with pytest.raises(SchemaChanged, match="copy the table again"):
            own_db.read(own_db.segment(start), table)


@pytest.mark.parametrize("wire", ["reference"], indirect=True)
def test_a_tagged_gtid_is_refused_and_later_files_are_read(own_db: Db) -> None:
    """A tagged GTID stops the reader; the GTID sets of later files, which then hold tags, do not."""
    start = own_db.here()
    with own_db.session() as tagging:
        query(tagging, "SET gtid_next = 'AUTOMATIC:tag'")
        query(tagging, "CREATE TABLE tagged (id INT)")
    with pytest.raises(UnsupportedEvent, match="GTID_TAGGED"):
        own_db.read(own_db.segment(start))
    own_db.run("FLUSH BINARY LOGS")
    later = FilePosition(own_db.here().file, 4)
    own_db.run("CREATE TABLE untagged (id INT)")
    assert own_db.read(own_db.segment(later)).log["tag"].to_pylist() == [""]


def test_a_source_without_gtids_and_checksums_is_read(plain_db: Db) -> None:
    """The rows and the log are the same, with NULL for the GTID, over several files."""
    table = plain_db.table("t", "id INT PRIMARY KEY, v VARCHAR(9), e ENUM('a','b')")
    start = plain_db.here()
    plain_db.run("INSERT INTO t VALUES (1, 'x', 'b')", "FLUSH BINARY LOGS", "DELETE FROM t")
    read = plain_db.read(plain_db.segment(start), table)
    assert read.halves(table.table, "id", "v", "e") == [(0, PLUS_I, 1, "x", "b"), (0, MINUS_D, 1, "x", "b")]
    assert read.tables[table.table][change.GTID].null_count == 2
    assert [read.log[name].null_count for name in ("uuid", "tag", "number", "pos")] == [2, 2, 2, 0]
