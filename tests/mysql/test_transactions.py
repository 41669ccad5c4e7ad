import json
import random
import subprocess
import sys

import pytest

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.connection import query
from tests.mysql.database import Db, Read

pytestmark = pytest.mark.mysql


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast decoder: what is tried here the reference refuses, or takes minutes for."""
    monkeypatch.delenv("LAKEINGEST_WIRE", raising=False)


def replayed(read: Read, schema: TableSchema) -> dict[int, dict[str, object]]:
    """A table with an integer key, from its first row on, as its change rows make it; each -U and -D meets its row."""
    rows: dict[int, dict[str, object]] = {}
    for row in read.tables[schema.table].to_pylist():
        image = {name: row[name] for name in schema.names}
        key = row[schema.key[0]]
        if row[change.KIND] in {0, 2}:
            assert key not in rows
            rows[key] = image
        else:
            assert rows.pop(key) == image
    return rows


def selected(db: Db, schema: TableSchema) -> dict[int, dict[str, object]]:
    """The same by SELECT."""
    return {row[schema.key[0]]: row for row in db.select(schema).to_pylist()}


def numbers(count: int) -> str:
    """A query of the numbers up to `count`."""
    return f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n"


def test_compressed_plain_and_tagged_transactions_can_be_mixed(db: Db) -> None:
    """In a segment, in any order, each has its rows, its place and its GTID."""
    table = db.table("t", "id INT PRIMARY KEY, v VARCHAR(100)")
    start = db.here()
    ends: list[FilePosition] = []
    chance = random.Random(1)
    for id_ in range(60):
        with db.session() as other:
            if chance.random() < 0.5:
                query(other, "SET binlog_transaction_compression = ON")
            if chance.random() < 0.3:
                query(other, "SET gtid_next = 'AUTOMATIC:tag'")
            query(other, "BEGIN")
            query(other, f"INSERT INTO t VALUES ({id_}, REPEAT('x', {id_})), ({-1 - id_}, NULL)")
            query(other, f"UPDATE t SET v = '' WHERE id = {id_ // 2}")
            query(other, "COMMIT")
        ends.append(db.here())
    read = db.read(db.segment(start), table)
    assert replayed(read, table) == selected(db, table)
    assert read.log["pos"].to_pylist() == [end.pos for end in ends]
    assert {"", "tag"} == set(read.log["tag"].to_pylist())
    names = {
        f"{row['uuid']}:{row['tag'] + ':' if row['tag'] else ''}{row['number']}": row["pos"]
        for row in read.log.to_pylist()
    }
    rows = read.tables[table.table].select([change.GTID, change.POS]).to_pylist()
    assert {row[change.GTID]: row[change.POS] for row in rows} == names


@pytest.mark.parametrize("random_bytes", [False, True])
def test_a_large_compressed_transaction_is_read(db: Db, *, random_bytes: bool) -> None:
    """More than 20 MB of events that compress very well or hardly at all."""
    table = db.table("t", "id INT PRIMARY KEY, v LONGBLOB")
    query(db.connection, "FLUSH BINARY LOGS")  # a file of 64 MB ends after the transaction that exceeds it
    start = db.here()
    with db.session() as other:
        query(other, "SET binlog_transaction_compression = ON")
        query(other, "BEGIN")
        for id_ in range(22):
            value = f"x'{random.Random(id_).randbytes(1_000_000).hex()}'" if random_bytes else f"REPEAT({id_}, 1000000)"
            query(other, f"INSERT INTO t VALUES ({id_}, {value})")
        query(other, "COMMIT")
    segment = db.segment(start)
    assert (segment.stop.pos - segment.start.pos > 20_000_000) == random_bytes
    assert replayed(db.read(segment, table), table) == selected(db, table)


@pytest.mark.long("the same without GTIDs", only=("OFF",))
@pytest.mark.parametrize("compression", ["ON", "OFF"])
def test_a_row_larger_than_a_packet_is_read(db: Db, compression: str) -> None:
    """Rows of more than 16 MB are in several packets; their updates have both images; small rows are between them."""
    table = db.table("t", "id INT PRIMARY KEY, v LONGBLOB")
    start = db.here()
    with db.session() as other:
        query(other, f"SET binlog_transaction_compression = {compression}")
        for id_, size in enumerate((17 << 20, 10, (1 << 24) - 100, 35 << 20)):
            query(other, f"INSERT INTO t VALUES ({id_}, REPEAT(CHAR({id_ + 1}), {size}))")
        query(other, "UPDATE t SET v = CONCAT(v, 'more') WHERE id IN (0, 1)")
    expected = selected(db, table)
    with db.session() as other:
        query(other, "DELETE FROM t WHERE id = 2")
        expected.pop(2)
    assert replayed(db.read(db.segment(start), table), table) == expected


def test_a_statement_may_span_many_row_events(db: Db) -> None:
    """Ordinals continue from event to event, and from table to table."""
    table = db.table("t", "id INT PRIMARY KEY, v VARCHAR(100)")
    other = db.table("u", "id INT PRIMARY KEY")
    db.run("SET cte_max_recursion_depth = 1000000")
    start = db.here()
    db.run("BEGIN", f"INSERT INTO t SELECT i, REPEAT('y', 50) FROM ({numbers(20_000)}) x", "INSERT INTO u VALUES (1)")
    db.run("UPDATE t SET v = NULL WHERE id % 2", "INSERT INTO u VALUES (2)", "DELETE FROM t WHERE id > 10000", "COMMIT")
    read = db.read(db.segment(start), table, other)
    assert replayed(read, table) == selected(db, table)
    ordinals = [read.tables[one.table][change.ORDINAL].to_pylist() for one in (table, other)]
    assert sorted(ordinals[0] + ordinals[1]) == list(range(50_002))
    assert ordinals[1] == [20_000, 40_001]
    assert ordinals[0] == sorted(ordinals[0])


def test_a_table_of_a_thousand_columns_is_read(db: Db) -> None:
    """InnoDB's limit; with values and with NULLs."""
    types = ("INT", "VARCHAR(5)", "DECIMAL(9,3)", "DATE", "SMALLINT UNSIGNED", "TIME(1)")
    values = ("-7", "'é'", "1.5", "'2024-02-29'", "65535", "'-1:00:00.5'")
    columns = [f"c{i} {types[i % 6]}" for i in range(1016)]
    table = db.table("t", f"id INT PRIMARY KEY, {', '.join(columns)}")
    start = db.here()
    for id_ in range(40):
        row = [values[i % 6] if (i * 7 + id_) % 5 else "NULL" for i in range(1016)]
        db.run(f"INSERT INTO t VALUES ({id_}, {', '.join(row)})")
    db.run("INSERT INTO t (id) VALUES (100)", "UPDATE t SET c0 = 5, c1015 = 1", "DELETE FROM t WHERE id % 3 = 0")
    assert replayed(db.read(db.segment(start), table), table) == selected(db, table)


def test_changing_table_ids_are_followed(db: Db) -> None:
    """FLUSH TABLES gives every table a new id; rows belong to the right table."""
    tables = [db.table(f"t{i}", f"id INT PRIMARY KEY, v{i} INT") for i in range(5)]
    db.run("CREATE TABLE beside (id INT PRIMARY KEY)")
    start = db.here()
    for id_ in range(60):
        db.run(f"INSERT INTO t{id_ % 5} VALUES ({id_}, {id_})", f"INSERT INTO beside VALUES ({id_})")
        if id_ % 2:
            db.run("FLUSH TABLES")
    read = db.read(db.segment(start), *tables)
    for table in tables:
        assert replayed(read, table) == selected(db, table)
        assert read.tables[table.table].num_rows == 12


@pytest.mark.long("takes seconds")
def test_a_transaction_may_have_many_tables(db: Db) -> None:
    """Row events of hundreds of tables in any order; the ordinals have no gap."""
    tables = [db.table(f"t{i}", "id INT PRIMARY KEY, v INT") for i in range(150)]
    start = db.here()
    db.run("BEGIN", *(f"INSERT INTO t{i * 7 % 150} VALUES ({i}, {i})" for i in range(450)))
    db.run(*(f"UPDATE t{i} SET v = v + 1" for i in range(0, 150, 10)), "COMMIT")
    read = db.read(db.segment(start), *tables)
    for table in tables:
        assert replayed(read, table) == selected(db, table)
    ordinals = [ordinal for table in tables for ordinal in read.tables[table.table][change.ORDINAL].to_pylist()]
    assert sorted(ordinals) == list(range(450 + 2 * 3 * 15))


# reads the segments in their order; after each, its rows and the most memory that was ever used, in MB
READER = """
import json, resource, sys
from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.tables.schema import TableId
from lakeingest.core.binlog.segments import Segment
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.connection import connect
from lakeingest.mysql.schema_reader import read_schema

wanted = json.load(sys.stdin)
source = Source.model_validate(wanted["source"])
with connect(source) as connection:
    schema = read_schema(connection, TableId.parse(wanted["table"]))
for start, stop in wanted["segments"]:
    segment = Segment(wanted["uuid"], 1, FilePosition.parse(start), FilePosition.parse(stop), GtidSet())
    with connect(source) as connection:
        parts = read_segment(connection, segment, {schema.table: schema}, 65_001)
        rows = sum(len(batch) for table, batch in parts if table)
    print(json.dumps([rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


@pytest.mark.parametrize("compression", ["OFF", "ON"])
@pytest.mark.long("a large transaction")
def test_memory_does_not_grow_with_the_transaction(db: Db, compression: str) -> None:
    """A transaction of 1,000,000 rows, of 87 MB, needs little more than one of 100,000: what is compressed of it."""
    table = db.table("t", "id INT PRIMARY KEY, v VARCHAR(100), d DECIMAL(20,2), at DATETIME(3)")
    places = [db.here()]
    with db.session() as other:
        query(other, f"SET cte_max_recursion_depth = 1000000, binlog_transaction_compression = {compression}")
        for first, count in ((0, 100_000), (200_000, 1_000_000)):
            row = f"i + {first}, REPEAT(CHAR(65 + i % 20), 60), i / 100, '2024-02-29 12:00:00.5'"
            query(other, f"INSERT INTO t SELECT {row} FROM ({numbers(count)}) x")
            places.append(db.here())
    wanted = {
        "source": {"host": db.source.host, "port": db.source.port, "user": db.source.user}
        | {"password": db.source.password.get_secret_value()},
        "table": str(table.table),
        "uuid": db.segment(places[0]).server_uuid,
        "segments": [[str(places[0]), str(places[1])], [str(places[1]), str(places[2])]],
    }
    child = subprocess.run(
        [sys.executable, "-c", READER], input=json.dumps(wanted), capture_output=True, text=True, check=True
    )
    (few, small), (many, large) = map(json.loads, child.stdout.splitlines())
    assert (few, many) == (100_000, 1_000_000)
    assert large - small < 40, f"{small:.0f} MB, then {large:.0f} MB"
