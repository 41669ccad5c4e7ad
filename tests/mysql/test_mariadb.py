"""MariaDB, of both versions: its marks, its GTIDs, its own types, and what of it is refused by name."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from pydantic import SecretStr

from lakeingest.config.tables import Tables
from lakeingest.core.tables import change
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Kind, TableId
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4
from lakeingest.errors import UnsupportedEvent, UnsupportedTable
from lakeingest.mysql.chunk_reader import Hooks, read_chunk, server_state
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.preflight import server as preflight
from lakeingest.mysql.preflight import tables as table_preflight
from lakeingest.mysql.preflight.foreign_keys import cascades, count_unlogged_keys
from lakeingest.mysql.preflight.server import Server, ask
from lakeingest.mysql.schema_reader import list_tables, read_schema
from tests.mysql.database import EPOCH, Db
from tests.mysql.test_insert_loss import race

BOTH = (MARIADB_11_4, MARIADB_10_11)
pytestmark = [
    pytest.mark.mysql,
    pytest.mark.parametrize("any_server", BOTH, ids=[one.name for one in BOTH], indirect=True),
]
TEXTS = 500


@pytest.fixture
def db(any_db: Db) -> Db:
    """A database on each."""
    return any_db


@pytest.mark.parametrize("writers", [1, 4])
@pytest.mark.long("the same on other servers")
def test_no_snapshot_loses_an_insert(db: Db, writers: int) -> None:
    """Both watermarks are the reported position of the read view, while other sessions insert."""
    outcome = race(db, writers)
    assert outcome.rows > outcome.snapshots // 4
    assert (outcome.lost, outcome.wrong) == (0, 0)


@pytest.mark.parametrize("step", ["after_low", "after_view", "after_high", "after_rows"])
def test_watermarks_are_positions_of_read_views(db: Db, step: str) -> None:
    """High is that of the rows: what is before it is in them, and nothing else. Low is that of a view just before."""
    schema = db.table("t", "id INT PRIMARY KEY")
    db.run("INSERT INTO t VALUES (1)")
    before = db.here()

    def insert() -> None:
        db.run("INSERT INTO t VALUES (2)")

    uuid = server_state(db.connection).uuid
    read = read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), uuid, EPOCH, Hooks(**{step: insert}))
    is_seen = step == "after_low"
    assert read.rows["id"].to_pylist() == ([1, 2] if is_seen else [1])
    assert read.high == (db.here() if is_seen else before) != (before if is_seen else db.here())
    assert read.split.low == before.place(EPOCH)
    assert read.split.high == read.high.place(EPOCH)


def test_changes_have_the_gtid_of_their_transaction(db: Db) -> None:
    """In MariaDB's form; also of other domains and servers."""
    schema = db.table("t", "id INT PRIMARY KEY, v INT")
    start = db.here()
    named: list[str] = []
    with db.session() as other:
        for domain, server, number in ((0, 7, 10_001), (3, 7, 11), (3, 8, 12), (0, 7, 10_002)):
            query(other, f"SET gtid_domain_id = {domain}, server_id = {server}, gtid_seq_no = {number}")
            query(other, f"INSERT INTO t VALUES ({len(named)}, 1)")
            named.append(f"{domain}-{server}-{number}")
        query(other, "BEGIN")
        query(other, "UPDATE t SET v = 2 WHERE id < 2")
        query(other, "DELETE FROM t WHERE id > 2")
        query(other, "COMMIT")
    read = db.read(db.segment(start), schema)
    rows = read.tables[schema.table].to_pylist()
    assert [row[change.GTID] for row in rows[:4]] == named
    assert len({(row[change.GTID], row[change.POS]) for row in rows[4:]}) == 1
    assert [row[change.ORDINAL] for row in rows[4:]] == list(range(5))
    assert [row["uuid"] for row in read.log.to_pylist()] == [None] * 5


def test_adjacent_segments_give_the_same_rows_as_a_single_one(db: Db) -> None:
    """For segments of a few transactions each."""
    schema = db.table("t", "id INT PRIMARY KEY, v VARCHAR(20)")
    ends = [db.here()]
    for number in range(60):
        db.run(f"INSERT INTO t VALUES ({number}, 'x')", f"UPDATE t SET v = '{number}' WHERE id % 7 = {number % 7}")
        if number % 10 == 9:
            db.run("FLUSH BINARY LOGS" if number % 20 == 9 else "CREATE OR REPLACE TEMPORARY TABLE u (id INT)")
            ends.append(db.here())
    whole = db.read(db.segment(ends[0], ends[-1]), schema).tables[schema.table].to_pylist()
    parts = [
        row
        for start, stop in pairwise(ends)
        for row in db.read(db.segment(start, stop), schema).tables[schema.table].to_pylist()
    ]
    assert whole == parts
    places = [(row[change.FILE], row[change.POS], row[change.ORDINAL]) for row in whole]
    assert places == sorted(set(places))
    last = {row["id"]: row["v"] for row in whole if row[change.KIND] in {0, 2}}
    assert last == {int(id_): v for id_, v in query(db.connection, "SELECT id, v FROM t")}


def test_uuids_and_addresses_have_the_text_of_the_server(db: Db) -> None:
    """Random values, and values with runs of zeros, which are abbreviated."""
    random_ = random.Random(7)
    schema = db.table("t", "id INT PRIMARY KEY, u UUID, a INET6, b INET4")
    assert [column.kind for column in schema.columns[1:]] == [Kind.UUID, Kind.ADDRESS, Kind.ADDRESS]
    rows = []
    for number in range(TEXTS):
        u, a, b = (random_.randbytes(size) for size in (16, 16, 4))
        # groups of zeros, and addresses of the fourth version within the sixth
        a = b"".join(a[2 * i : 2 * i + 2] if random_.random() < number / TEXTS else b"\0\0" for i in range(8))
        a = a if number % 2 else a.replace(b"\0\0", b"\1\1").replace(b"\1\1", b"\0\0", 1)  # at most one zero
        a = [a, bytes(12) + b, bytes(10) + b"\xff\xff" + b][number % 3]
        rows.append(f"({number}, x'{u.hex()}', x'{a.hex()}', x'{b.hex()}')")
    start = db.here()
    db.run(f"INSERT INTO t VALUES {', '.join(rows)}")
    said = query(db.connection, "SELECT CAST(u AS CHAR), CAST(a AS CHAR), CAST(b AS CHAR) FROM t ORDER BY id")
    logged = db.read(db.segment(start), schema).tables[schema.table]
    for found in (db.select(schema), logged):
        assert [tuple(row[name] for name in ("u", "a", "b")) for row in found.to_pylist()] == said


REFUSED = {
    "a compressed text": ("(id INT PRIMARY KEY, v VARCHAR(100) COMPRESSED)", "column v is .*: compressed columns"),
    "a compressed blob": ("(id INT PRIMARY KEY, v BLOB COMPRESSED)", "column v is .*: compressed columns"),
    "versions": ("(id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "system-versioned"),
    "a key that is a hash": ("(id TEXT NOT NULL UNIQUE)", "neither a primary key nor a unique key"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_tables_are_refused_by_name(db: Db, what: str) -> None:
    """Before anything is copied."""
    definition, reason = REFUSED[what]
    db.run(f"CREATE TABLE t {definition}")
    table = TableId(db.name, "t")
    assert table in list_tables(db.connection)
    with pytest.raises(UnsupportedTable, match=reason):
        read_schema(db.connection, table)


def test_columns_in_an_old_form_are_refused_with_the_fix(db: Db) -> None:
    """Columns that were created while mysql56_temporal_format was off."""
    db.run("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        db.run("CREATE TABLE t (id INT PRIMARY KEY, v DATETIME(3))")
    finally:
        db.run("SET GLOBAL mysql56_temporal_format = ON")
    with pytest.raises(UnsupportedTable, match=r"its storage format is old; SET GLOBAL .*, then ALTER TABLE … FORCE"):
        read_schema(db.connection, TableId(db.name, "t"))
    db.run("ALTER TABLE t FORCE")
    assert read_schema(db.connection, TableId(db.name, "t")).columns[1].kind is Kind.DATETIME


def test_compressed_events_are_refused_by_name(db: Db) -> None:
    """By `check` and by the reader."""
    schema = db.table("t", "id INT PRIMARY KEY, v TEXT")
    start = db.here()
    db.run("SET GLOBAL log_bin_compress = ON")
    try:
        [answer] = [one.finding for one in findings(db) if one.finding]
        assert answer == "log_bin_compress is 'ON'; SET GLOBAL log_bin_compress = 'OFF'"
        with db.session() as other:
            query(other, "INSERT INTO t VALUES (1, REPEAT('x', 5000))")
    finally:
        db.run("SET GLOBAL log_bin_compress = OFF")
    with pytest.raises(UnsupportedEvent, match=r"a compressed event at .*; set log_bin_compress=OFF on the source"):
        db.read(db.segment(start), schema)


@pytest.mark.parametrize(
    "statement",
    ["CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)", "ALTER TABLE t ADD COLUMN IF NOT EXISTS v INT", "TRUNCATE t"],
)
def test_ddl_of_a_copied_table_is_refused(db: Db, statement: str) -> None:
    """Also in statements that only MariaDB has."""
    schema = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    db.run(statement)
    with pytest.raises(UnsupportedEvent, match="DDL that may change a copied table"):
        db.read(db.segment(start), schema)


def findings(db: Db) -> tuple[Checked, ...]:
    """What came of all conditions."""
    server = Server.of(db.connection, [TableId(db.name, "t")])
    return ask(server, preflight.CONDITIONS | table_preflight.CONDITIONS)


def test_a_correctly_configured_server_has_no_findings(db: Db) -> None:
    """Conditions for variables that MariaDB does not have are met."""
    db.run("CREATE TABLE t (id INT PRIMARY KEY)")
    assert [one for one in findings(db) if one.finding] == []


def test_cascades_are_never_in_the_binlog(db: Db) -> None:
    """In no version of MariaDB."""
    db.run(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE)",
    )
    assert count_unlogged_keys(Server.of(db.connection, [TableId(db.name, "t")])) == {TableId(db.name, "t"): 1}
    assert cascades(Server.of(db.connection, [TableId(db.name, "t")]), Tables(include=("*.*",))).finding is None


@pytest.fixture
def account(db: Db) -> Iterator[Callable[..., Db]]:
    """Call it with rights: the database as a user with these has it."""
    db.run("CREATE USER reader IDENTIFIED BY 'reader'")

    def granted(*rights: str) -> Db:
        db.run(f"GRANT SELECT ON {db.name}.* TO reader")
        db.run(*(f"GRANT {right} ON *.* TO reader" for right in rights))
        source = db.source.model_copy(update={"user": "reader", "password": SecretStr("reader")})
        return Db(source, db.connection, db.name)

    yield granted
    db.run("DROP USER reader")


def test_missing_rights_are_named_and_four_rights_are_enough(db: Db, account: Callable[..., Db]) -> None:
    """For chunks and the binlog; the right to list replicas is not needed."""
    schema = db.table("t", "id INT PRIMARY KEY")
    with connect(account().source) as connection:
        answer = table_preflight.grants(Server.of(connection, [schema.table]))
    assert "lacks BINLOG MONITOR, REPLICA MONITOR; GRANT BINLOG MONITOR, REPLICA MONITOR ON *.* TO" in str(answer)
    own = account("BINLOG MONITOR", "REPLICA MONITOR", "REPLICATION SLAVE")
    start = db.here()
    db.run("INSERT INTO t VALUES (1)")
    with connect(own.source) as connection:
        assert table_preflight.grants(Server.of(connection, [schema.table])) is None
    assert own.read(own.segment(start), schema).tables[schema.table].num_rows == 1
    uuid = server_state(db.connection).uuid
    assert read_chunk(own.source, schema, Chunk(schema.table, KeyRange()), uuid, EPOCH).rows.num_rows == 1
