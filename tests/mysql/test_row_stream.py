import threading

import pymysql
import pytest

from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import ChunkTooSlow, SchemaChanged, SourceAway, SplitUnstable, UnsupportedValue
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.row_stream import stream_rows
from lakeingest.mysql.source_types import source_type
from tests.mysql.database import Db

pytestmark = pytest.mark.mysql


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result sets of the binary protocol."""
    monkeypatch.delenv("LAKEINGEST_WIRE", raising=False)


def test_an_empty_result_has_no_batch(db: Db) -> None:
    """And the connection can be used afterwards."""
    table = db.table("t", "id INT PRIMARY KEY, v TEXT")
    assert list(stream_rows(db.connection, table, "SELECT id, v FROM t")) == []
    assert query(db.connection, "SELECT 1") == [("1",)]


def test_a_single_row_is_returned_immediately(db: Db) -> None:
    """The reader does not wait for further rows."""
    table = db.table("t", "id INT PRIMARY KEY, v TEXT")
    db.run("INSERT INTO t VALUES (1, 'ü')")
    [batch] = stream_rows(db.connection, table, "SELECT id, v FROM t")
    assert batch.to_pylist() == [{"id": 1, "v": "ü"}]
    assert query(db.connection, "SELECT 1") == [("1",)]


@pytest.mark.parametrize("columns", [1, 5, 6, 7, 62, 63, 1000])
def test_all_columns_except_the_key_may_be_null(db: Db, columns: int) -> None:
    """For any number of columns, and so of bits in the bitmap of NULLs."""
    table = db.table("t", "id INT PRIMARY KEY, " + ", ".join(f"c{i} TINYINT" for i in range(columns)))
    db.run("INSERT INTO t (id) VALUES (1), (2)", f"INSERT INTO t (id, c{columns - 1}) VALUES (3, 7)")
    rows = db.select(table)
    assert rows["id"].to_pylist() == [1, 2, 3]
    assert rows[f"c{columns - 1}"].to_pylist() == [None, None, 7]
    assert all(rows[name].null_count == 3 for name in table.names[1:-1])


@pytest.mark.long("takes seconds")
def test_rows_larger_than_a_packet_are_read_whole(db: Db) -> None:
    """Rows of more than 16 MB, and rows that fill packets exactly, among small ones."""
    table = db.table("t", "id INT PRIMARY KEY, v LONGTEXT")
    # a row has a zero byte, a map of nulls, the key, and nine or four bytes of length before its text
    sizes = [5, 17 << 20, (1 << 24) - 1 - 10, 0, (1 << 24) - 1 - 11, (1 << 24) - 12, 40 << 20, 2 * ((1 << 24) - 1) - 15]
    for id_, size in enumerate(sizes):
        db.run(f"INSERT INTO t VALUES ({id_}, REPEAT('x', {size}))")
    rows = db.select(table)
    assert [len(value) for value in rows["v"].to_pylist()] == sizes
    assert rows["v"].to_pylist()[1] == "x" * sizes[1]


def test_packet_numbers_wrap_around(db: Db) -> None:
    """They begin again after 255; of 50,000 rows none is lost or doubled."""
    table = db.table("t", "id INT PRIMARY KEY, v VARCHAR(9)")
    db.run("SET cte_max_recursion_depth = 100000")
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT i, i FROM n"
    db.run(f"INSERT INTO t {numbers}")
    rows = db.select(table)
    assert rows["id"].to_pylist() == list(range(1, 50_001))
    assert rows["v"].to_pylist() == [str(i) for i in range(1, 50_001)]


def read_killed(db: Db, table: TableSchema, command: str) -> None:
    """Read a table, and in mid-result kill what reads it."""
    with connect(db.source, stream=True) as reading:
        [(number,)] = query(reading, "SELECT CONNECTION_ID()")
        batches = stream_rows(reading, table, f"SELECT id, v FROM {table.table}")
        next(batches)
        db.run(command.format(number))
        list(batches)


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize(("command", "error"), [("KILL {}", SourceAway), ("KILL QUERY {}", SplitUnstable)])
def test_a_result_that_is_killed_is_an_error(db: Db, command: str, error: type[Exception]) -> None:
    """The rows before it are not taken for the whole result."""
    table = db.table("t", "id INT PRIMARY KEY, v LONGTEXT")
    for id_ in range(120):
        db.run(f"INSERT INTO t VALUES ({id_}, REPEAT('x', 1000000))")
    with pytest.raises(error):
        read_killed(db, table, command)


def test_a_result_that_takes_too_long_is_an_error(db: Db) -> None:
    """MAX_EXECUTION_TIME ends it with the driver's error, before or within the result."""
    table = db.table("t", "id INT PRIMARY KEY")
    db.run("INSERT INTO t VALUES (1), (2), (3), (4)")
    slow = f"SELECT /*+ MAX_EXECUTION_TIME(400) NO_BNL() */ id FROM {table.table} WHERE NOT SLEEP(0.15)"
    with pytest.raises(ChunkTooSlow), connect(db.source, stream=True) as reading:
        list(stream_rows(reading, table, slow))


def test_a_statement_that_cannot_be_prepared_raises_the_error_of_the_driver(db: Db) -> None:
    """As for any other query."""
    table = db.table("t", "id INT PRIMARY KEY")
    with pytest.raises(pymysql.err.ProgrammingError, match="no_such"):
        list(stream_rows(db.connection, table, "SELECT id FROM no_such"))


@pytest.mark.parametrize(
    "other",
    [
        Column("v", Kind.INT64, source_type("bigint")),
        Column("v", Kind.STRING, source_type("text")),
        Column("v", Kind.DECIMAL, source_type("decimal(10,3)"), precision=10, scale=3),
        Column("v", Kind.NUMERAL, source_type("decimal(40,2)"), precision=40, scale=2),
        Column("v", Kind.DATETIME, source_type("datetime")),
    ],
)
def test_columns_of_other_types_are_refused_by_name(db: Db, other: Column) -> None:
    """The server must send the columns that the table had when it was planned."""
    table = db.table("t", "id INT PRIMARY KEY, v DECIMAL(10,2)")
    changed = TableSchema(table.table, (table.columns[0], other), ("id",))
    match = rf"{db.name}\.t: column v .*copy the table again"
    with pytest.raises(SchemaChanged, match=match), connect(db.source, stream=True) as reading:
        list(stream_rows(reading, changed, f"SELECT id, v FROM {table.table}"))


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        ("DATE", "0000-00-00", "0000-00-00"),
        ("DATETIME(6)", "2024-01-00 01:02:03.4", "2024-01-00"),
        ("TIMESTAMP NULL", "0", "0000-00-00"),
    ],
)
def test_an_impossible_date_is_refused(db: Db, declared: str, value: str, shown: str) -> None:
    """With the column's name and the value; a NULL is valid."""
    table = db.table("t", f"id INT PRIMARY KEY, seen {declared}")
    db.run(f"INSERT INTO t VALUES (1, NULL), (2, '{value}')")
    match = rf"{db.name}\.t: column seen .*holds '{shown}'"
    with pytest.raises(UnsupportedValue, match=match), connect(db.source, stream=True) as reading:
        list(stream_rows(reading, table, f"SELECT id, seen FROM {table.table}"))


def test_a_connection_can_read_results_one_after_the_other(db: Db) -> None:
    """A large result leaves no bytes behind, even with other connections at work."""
    table = db.table("t", "id INT PRIMARY KEY, v TEXT")
    db.run("INSERT INTO t VALUES (1, REPEAT('a', 60000)), (2, 'b'), (3, REPEAT('c', 9000))")
    found: list[int] = []

    def read_often() -> None:
        with connect(db.source) as other:
            for _ in range(20):
                found.extend(map(len, stream_rows(other, table, f"SELECT id, v FROM {table.table}")))

    beside = threading.Thread(target=read_often)
    beside.start()
    for _ in range(20):
        found.extend(map(len, stream_rows(db.connection, table, "SELECT id, v FROM t")))
    beside.join()
    assert sum(found) == 2 * 20 * 3
