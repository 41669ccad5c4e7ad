"""Chunks whose rows come from a replica."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakeingest.config.source import Replica
from lakeingest.core.binlog.position import GtidSet
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded, SchemaChanged, SourceAway
from lakeingest.mysql import replica
from lakeingest.mysql.chunk_reader import ChunkRead, Hooks, read_chunk, server_state
from lakeingest.mysql.connection import query
from lakeingest.mysql.schema_reader import read_schema
from tests.mysql.database import EPOCH, Db, database_on
from tests.servers.replication import Pair, replicating

pytestmark = pytest.mark.mysql

NO_HOOKS = Hooks()


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source and its replica."""
    with replicating(mysql_server_with) as both:
        yield both


@pytest.fixture
def db(pair: Pair) -> Iterator[Db]:
    """A database on the primary, and so on the replica."""
    query(pair.primary, "CREATE DATABASE followed")
    query(pair.primary, "USE followed")
    try:
        yield Db(pair.source, pair.primary, "followed")
    finally:
        query(pair.primary, "DROP DATABASE followed")


def numbers(db: Db, *ids: int) -> TableSchema:
    """A table with these ids."""
    schema = db.table("t", "id INT PRIMARY KEY, v INT DEFAULT 0")
    db.run(*(f"INSERT INTO t (id) VALUES ({i})" for i in ids))
    return schema


def read(db: Db, schema: TableSchema, hooks: Hooks = NO_HOOKS) -> ChunkRead:
    """Read the whole table in one chunk."""
    uuid = server_state(db.connection).uuid
    return read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), uuid, EPOCH, hooks)


def rows(found: ChunkRead) -> dict[int, int]:
    """The rows of a chunk: `v` by the id."""
    return {row["id"]: row["v"] for row in found.rows.to_pylist()}


@contextmanager
def lagging(pair: Pair, applies_after: float | None = None) -> Iterator[None]:
    """The replica applies nothing within the block, or nothing until so many seconds have passed."""
    query(pair.replica, "STOP REPLICA SQL_THREAD")
    timer = threading.Timer(applies_after or 0, query, (pair.replica, "START REPLICA SQL_THREAD"))
    if applies_after is not None:
        timer.start()
    try:
        yield
    finally:
        timer.join() if applies_after is not None else timer.run()


@pytest.mark.long("takes seconds")
def test_rows_come_from_the_replica_and_watermarks_from_the_primary(pair: Pair, db: Db) -> None:
    """A difference that no binlog has shows where the rows were read."""
    schema = numbers(db, 1, 2)
    pair.level()
    pair.unlogged("UPDATE followed.t SET v = 5 WHERE id = 2")
    found = read(db, schema)
    assert rows(found) == {1: 0, 2: 5}
    assert found.split.low == GtidSet.parse(db.executed())
    assert found.high == db.here()


def test_a_chunk_waits_for_a_replica_that_lags(pair: Pair, db: Db) -> None:
    """Changes before low are in the rows, because nothing applies them later; a later change is within high."""
    schema = numbers(db, 1, 2, 3)
    pair.level()
    change = Hooks(after_view=lambda: db.run("UPDATE t SET v = 8 WHERE id = 1"))
    with lagging(pair, applies_after=1):
        db.run("UPDATE t SET v = 7 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 4)")
        low, found = GtidSet.parse(db.executed()), read(db, schema, change)
    assert rows(found) == {1: 7, 3: 0, 4: 4}
    assert found.split.low == low
    assert found.high == db.here()


def test_a_definition_that_the_replica_does_not_have_yet_is_waited_for(pair: Pair, db: Db) -> None:
    """Rows and definition are both of the replica."""
    table = numbers(db, 1).table
    pair.level()
    with lagging(pair, applies_after=1):
        db.run("ALTER TABLE t ADD COLUMN w INT DEFAULT 3")
        found = read(db, read_schema(db.connection, table))
    assert found.rows.to_pylist() == [{"id": 1, "v": 0, "w": 3}]


def test_a_definition_that_only_the_replica_has_is_refused(pair: Pair, db: Db) -> None:
    """The chunk's rows would have other columns than the table's changes."""
    schema = numbers(db, 1)
    pair.level()
    pair.unlogged("ALTER TABLE followed.t RENAME COLUMN v TO w")
    with pytest.raises(SchemaChanged):
        read(db, schema)


def test_a_replica_that_does_not_catch_up_is_named(pair: Pair, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler runs the same command again; then the chunk can be read."""
    monkeypatch.setattr(replica, "LAG_SECONDS", 1)
    schema = numbers(db, 1)
    pair.level()
    with lagging(pair):
        db.run("UPDATE t SET v = 7", "UPDATE t SET v = 8")
        lags = rf"the replica 127\.0\.0\.1:{pair.source.of_rows.port} lags: after 1 seconds it lacks 2 transactions"
        with pytest.raises(SourceAway, match=lags):
            read(db, schema)
    assert rows(read(db, schema)) == {1: 8}


def test_a_transaction_that_only_the_replica_has_is_refused(
    pair: Pair, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay in the copy. The message has its GTID."""
    monkeypatch.setattr(replica, "COMMIT_SECONDS", 1)
    schema = numbers(db, 1)
    pair.level()
    query(pair.replica, "INSERT INTO followed.t VALUES (2, 2)")
    [(uuid,)] = query(pair.replica, "SELECT @@server_uuid")
    with pytest.raises(OperatorNeeded, match=rf"transactions that its source lacks: {uuid}:1; set up the replica"):
        read(db, schema)


def test_a_transaction_that_the_primary_is_committing_is_waited_for(pair: Pair, db: Db) -> None:
    """A semi-synchronous primary commits later than its replica."""
    schema = numbers(db, 1)
    pair.level()
    uuid = server_state(db.connection).uuid
    number = dict(GtidSet.parse(db.executed()).members)[uuid, ""][-1][1] + 1
    for statement in (f"SET gtid_next = '{uuid}:{number}'", "BEGIN", "COMMIT", "SET gtid_next = AUTOMATIC"):
        query(pair.replica, statement)
    commit = threading.Timer(1, db.run, ("CREATE TABLE u (id INT PRIMARY KEY)",))
    commit.start()
    found = read_chunk(db.source, schema, Chunk(schema.table, KeyRange()), uuid, EPOCH)
    commit.join()
    assert rows(found) == {1: 0}


@pytest.mark.parametrize(
    ("flavor", "settings"),
    [(MYSQL, {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}), (MARIADB_11_4, {})],
    ids=["MySQL", "MariaDB"],
)
def test_without_gtids_no_chunk_is_read(
    server_of: Callable[..., LocalServer], flavor: Flavor, settings: dict[str, str]
) -> None:
    """Also where nothing was checked before."""
    server = server_of(flavor, **settings)
    with database_on(server) as plain:
        schema = numbers(plain, 1)
        source = plain.source.model_copy(update={"replica": Replica(host=server.host, port=server.port)})
        with pytest.raises(OperatorNeeded, match=r"or remove source\.replica"):
            read(replace(plain, source=source), schema)
