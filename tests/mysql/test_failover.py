"""A position of one server is found on its replica, which was promoted."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from lakeingest.config import Source
from lakeingest.core.binlog.position import GtidSet, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, SourceBehind, SourceDiverged
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import connect, query, written_position
from lakeingest.mysql.continuity import require_binlog
from lakeingest.mysql.failover import ThisServer
from tests.faults.purged import purge
from tests.mysql.database import SERVER_IDS, Db
from tests.servers.replication import Pair, replicating, replicating_domains

pytestmark = pytest.mark.mysql

NAMES = itertools.count(1)
NEW_EPOCH = 2


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source, and its replica that will be promoted."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.fixture
def db(pair: Pair) -> Db:
    """A database on both servers."""
    name = f"over_{next(NAMES)}"
    query(pair.primary, f"CREATE DATABASE {name}")
    query(pair.primary, f"USE {name}")
    return Db(pair.source, pair.primary, name)


def position(db: Db) -> Position:
    """The source's position now, as a reader of the binlog knows it."""
    at, facts = db.here(), SegmentFacts()
    state = server_state(db.connection)
    segment = Segment(state.uuid, 1, at.start_of_file, at, GtidSet())
    with connect(db.source) as connection:
        list(read_segment(connection, segment, {}, next(SERVER_IDS), facts))
    return Position(state.uuid, 1, at, state.executed, facts.history)


def moved(source: Source, saved: Position, *tables: TableSchema) -> tuple[Position, frozenset[TableId]]:
    """The position on the promoted server, and the tables that errant transactions changed there."""
    with connect(source) as connection:
        return ThisServer(source, connection, NEW_EPOCH).moved(saved, {schema.table: schema for schema in tables})


def on_replica(pair: Pair, db: Db, *statements: str) -> None:
    """Run statements on the replica, in the database of the test."""
    for statement in (f"USE {db.name}", *statements):
        query(pair.replica, statement)


@pytest.mark.parametrize("after", [(), ("INSERT INTO t VALUES (9, 9)",), ("FLUSH BINARY LOGS",)])
@pytest.mark.parametrize("before", [(), ("FLUSH BINARY LOGS",)])
@pytest.mark.long("one case in turn", turn=("before", "after"))
def test_a_position_is_found_on_a_promoted_replica(
    pair: Pair, db: Db, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Whatever follows it, in whichever of its files; what is read from there on is what the copy lacks."""
    t = db.table("t", "id INT PRIMARY KEY, v INT")
    db.run("INSERT INTO t VALUES (1, 1), (2, 2)", "UPDATE t SET v = 3")
    pair.level()
    on_replica(pair, db, *before)
    saved = position(db)
    db.run("DELETE FROM t WHERE id = 2")
    pair.level()
    source = pair.promote()
    on_replica(pair, db, *after)
    found, hit = moved(source, saved, t)
    assert (found.epoch, found.gtids, hit) == (NEW_EPOCH, saved.gtids, frozenset())
    with connect(source) as connection:
        require_binlog(source, connection, found)
        rest = Segment.after(found, written_position(connection))
        rows = [
            row
            for table, batch in read_segment(connection, rest, {t.table: t}, next(SERVER_IDS))
            if table is not None
            for row in batch.to_pylist()
        ]
    assert [row["id"] for row in rows] == ([2, 9] if "INSERT INTO t VALUES (9, 9)" in after else [2])


def test_a_replica_that_lags_is_waited_for(pair: Pair, db: Db) -> None:
    """It replicates; once it has the transactions, the position is found. Once promoted without them, never."""
    t = db.table("t", "id INT PRIMARY KEY, v INT")
    pair.level()
    query(pair.replica, "STOP REPLICA SQL_THREAD")
    db.run("INSERT INTO t VALUES (1, 1)")
    saved = position(db)
    with pytest.raises(SourceBehind, match="does not have"):
        moved(pair.other, saved, t)
    query(pair.replica, "STOP REPLICA")
    with pytest.raises(SourceDiverged, match="and lacks"):
        moved(pair.other, saved, t)
    query(pair.replica, "START REPLICA")
    pair.level()
    assert moved(pair.other, saved, t)[0].gtids == saved.gtids


def test_a_gtid_that_was_given_to_another_transaction_is_found_out(pair: Pair, db: Db) -> None:
    """The set of GTIDs is the same on both servers."""
    t = db.table("t", "id INT PRIMARY KEY, v INT")
    pair.level()
    source = pair.promote()
    db.run("INSERT INTO t VALUES (1, 1)")
    saved = position(db)
    assert saved.history is not None
    assert saved.history.last is not None
    on_replica(pair, db, f"SET gtid_next = '{saved.history.last.gtid}'", "INSERT INTO t VALUES (1, 7)")
    query(pair.replica, "SET gtid_next = 'AUTOMATIC'")
    with pytest.raises(SourceDiverged, match="is another transaction"):
        moved(source, saved, t)


def test_tables_that_errant_transactions_changed_are_named(pair: Pair, db: Db) -> None:
    """Their own rows, or rows of a table that they were renamed from; other tables can go on."""
    tables = [db.table(name, "id INT PRIMARY KEY, v INT") for name in ("rows_", "ddl", "renamed", "calm")]
    db.table("hidden", "id INT PRIMARY KEY, v INT")
    pair.level()
    on_replica(
        pair,
        db,
        "INSERT INTO rows_ VALUES (1, 1)",
        "FLUSH BINARY LOGS",
        "ALTER TABLE ddl ADD c INT",
        "INSERT INTO hidden VALUES (1, 1)",
    )
    db.run("RENAME TABLE renamed TO old, hidden TO renamed", "INSERT INTO calm VALUES (1, 1)")
    pair.level()
    saved = position(db)
    source = pair.promote()
    on_replica(pair, db, "INSERT INTO calm VALUES (2, 2)")
    found, hit = moved(source, saved, *tables)
    assert {table.name for table in hit} == {"rows_", "ddl", "renamed"}
    assert found.gtids is not None
    assert saved.gtids is not None
    assert (found.gtids - saved.gtids).count == 3


def test_what_the_new_server_has_purged_is_gone(pair: Pair, db: Db) -> None:
    """The transactions after the position; or all before it, so that nothing proves it."""
    t = db.table("t", "id INT PRIMARY KEY, v INT")
    pair.level()
    saved = position(db)
    source = pair.promote()

    def purge() -> None:
        query(pair.replica, "FLUSH BINARY LOGS")
        query(pair.replica, f"PURGE BINARY LOGS TO '{written_position(pair.replica).file}'")

    purge()
    with pytest.raises(BinlogGone, match="has purged all transactions"):
        moved(source, saved, t)
    on_replica(pair, db, "INSERT INTO t VALUES (1, 1)")
    purge()
    with pytest.raises(BinlogGone, match="which the copy lacks"):
        moved(source, saved, t)


def test_without_gtids_only_the_same_server_will_do(pair: Pair, db: Db) -> None:
    """A file and a place say nothing about another server."""
    saved = position(db)
    source = pair.promote()
    with pytest.raises(BinlogGone, match="without GTIDs it cannot be found"):
        moved(source, Position(saved.server_uuid, 1, saved.at, None, saved.history))


@pytest.fixture
def domain_pair(server_of: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source of MariaDB, and its replica that will be promoted."""
    with replicating_domains(server_of, MARIADB_11_4) as both:
        yield both


@pytest.fixture
def domain_db(domain_pair: Pair) -> Db:
    """A database on both servers."""
    name = f"over_{next(NAMES)}"
    query(domain_pair.primary, f"CREATE DATABASE {name}")
    query(domain_pair.primary, f"USE {name}")
    return Db(domain_pair.source, domain_pair.primary, name)


@pytest.mark.parametrize("rotations", [(), ("FLUSH BINARY LOGS",)])
@pytest.mark.long("starts a replica")
def test_a_position_is_found_on_a_promoted_replica_of_mariadb(
    domain_pair: Pair, domain_db: Db, rotations: tuple[str, ...]
) -> None:
    """By the name of its last transaction, which the replica dates earlier."""
    db, pair = domain_db, domain_pair
    t = db.table("t", "id INT PRIMARY KEY, v INT")
    db.run("INSERT INTO t VALUES (1, 1)")
    pair.level()
    on_replica(pair, db, *rotations)
    db.run("BEGIN", "INSERT INTO t VALUES (2, 2)", "DO SLEEP(1.1)", "COMMIT")
    saved = position(db)
    assert saved.gtids is None
    db.run("DELETE FROM t WHERE id = 2")
    pair.level()
    source = pair.promote()
    on_replica(pair, db, "INSERT INTO t VALUES (3, 3)", *rotations)
    found, hit = moved(source, saved, t)
    assert (found.epoch, found.gtids, hit) == (NEW_EPOCH, None, frozenset())
    with connect(source) as connection:
        require_binlog(source, connection, found)
        rest = Segment.after(found, written_position(connection))
        batches = [batch for table, batch in read_segment(connection, rest, {t.table: t}, next(SERVER_IDS)) if table]
    assert [row["id"] for batch in batches for row in batch.to_pylist()] == [2, 3]


@pytest.mark.long("takes seconds")
def test_a_position_of_mariadb_is_not_found_where_that_cannot_be_known(domain_pair: Pair, domain_db: Db) -> None:
    """The replica lags, lacks it, lets numbers be out of order, or has purged it."""
    db, pair = domain_db, domain_pair
    t = db.table("t", "id INT PRIMARY KEY, v INT")
    pair.level()
    query(pair.replica, "STOP REPLICA SQL_THREAD")
    db.run("INSERT INTO t VALUES (1, 1)")
    saved = position(db)
    with pytest.raises(SourceBehind, match="yet"):
        moved(pair.other, saved, t)
    query(pair.replica, "STOP REPLICA")
    with pytest.raises(SourceDiverged, match="and lacks"):
        moved(pair.other, saved, t)
    query(pair.replica, "START REPLICA")
    pair.level()
    source = pair.promote()
    assert moved(source, saved, t)[0].at.pos > 0
    query(pair.replica, "SET GLOBAL gtid_strict_mode = OFF")
    try:
        with pytest.raises(BinlogGone, match="gtid_strict_mode is OFF"):
            moved(source, saved, t)
    finally:
        query(pair.replica, "SET GLOBAL gtid_strict_mode = ON")
    query(pair.replica, "SET GLOBAL slave_connections_needed_for_purge = 0")
    query(pair.replica, "FLUSH BINARY LOGS")
    purge(pair.replica)
    with pytest.raises(BinlogGone, match="has purged all transactions"):
        moved(source, saved, t)
