"""Prepared transactions (XA): their rows count where XA COMMIT stands in the binlog."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pymysql
import pytest

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.copies.prepared import Pending, PreparedAt
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableSchema
from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.binlog_reader import SegmentFacts, _Replay, read_segment
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.dialect import MARIADB, dialect
from tests.faults.purged import purge
from tests.mysql.database import SERVER_IDS, Db, database_on
from tests.mysql.test_insert_loss import Insert, race

pytestmark = [pytest.mark.mysql, pytest.mark.long("each on one of the servers in turn", turn="db")]

UNKNOWN_XID = 1397
# MariaDB loses an XA COMMIT by another session while the one that prepared ends: it is in the binlog, and not done
DETACHED_SECONDS = 0.05
SERVERS: dict[str, tuple[Flavor, dict[str, str]]] = {
    "mysql": (MYSQL, {}),
    "mysql without gtids": (MYSQL, {"gtid_mode": "OFF"}),
    "mysql, compressed": (MYSQL, {"binlog_transaction_compression": "ON"}),
    "mariadb 10.11": (MARIADB_10_11, {}),
    "mariadb 11.4": (MARIADB_11_4, {}),
}


@pytest.fixture(params=SERVERS)
def db(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> Iterator[Db]:
    """A database on each kind of server; nothing is prepared at the end."""
    flavor, settings = SERVERS[request.param]
    with database_on(server_of(flavor, **settings)) as found:
        yield found
        for _, first, _, name in query(found.connection, "XA RECOVER"):
            end(found, f"XA ROLLBACK '{as_text(name)[: int(first)]}'")


def as_text(name: str | bytes) -> str:
    """A name of XA RECOVER: MariaDB's are bytes."""
    return name.decode() if isinstance(name, bytes) else name


def prepare(db: Db, xid: str, *statements: str) -> None:
    """Prepare a transaction in a session that ends then: any other session may end it."""
    with db.session() as other:
        for statement in (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            query(other, statement)
    if dialect(db.connection) is MARIADB:
        time.sleep(DETACHED_SECONDS)


def end(db: Db, *statements: str) -> None:
    """End prepared transactions, each as soon as the server has noticed that its session has ended."""
    for statement in statements:
        deadline = time.monotonic() + 10
        while True:
            try:
                db.run(statement)
                break
            except pymysql.err.OperationalError as error:
                if error.args[0] != UNKNOWN_XID or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def ids(db: Db, schema: TableSchema, *places: Any) -> list[int]:
    """The ids of all changes between two places."""
    return [row["id"] for row in db.read(db.segment(*places), schema).tables[schema.table].to_pylist()]


def test_rows_count_where_they_are_committed(db: Db) -> None:
    """With the GTID, the place and the time of XA COMMIT, in the order of the commits."""
    schema = db.table("t", "id INT PRIMARY KEY, v TEXT")
    start = db.here()
    prepare(db, "x", "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 2")
    db.run("INSERT INTO t VALUES (3, 'd')")
    end(db, "XA COMMIT 'x'")
    db.run("INSERT INTO t VALUES (4, 'e')")
    read = db.read(db.segment(start), schema)
    rows, log = read.tables[schema.table].to_pylist(), read.log.to_pylist()
    assert [row["id"] for row in rows] == [3, 1, 2, 2, 2, 4]
    assert [row[change.ORDINAL] for row in rows] == [0, 0, 1, 2, 3, 0]
    assert len(log) == 4
    for of_rows, of_log in ((rows[:1], log[1]), (rows[1:5], log[2]), (rows[5:], log[3])):
        for row in of_rows:
            assert (row[change.FILE], row[change.POS]) == (of_log["file"], of_log["pos"])
            number = "" if row[change.GTID] is None else row[change.GTID].replace("-", ":").rpartition(":")[2]
            assert of_log["number"] is None or number == str(of_log["number"])
            assert of_log["uuid"] is None or row[change.GTID] == f"{of_log['uuid']}:{number}"


def test_a_transaction_that_is_only_prepared_or_rolled_back_has_no_rows(db: Db) -> None:
    """Also if its name is used again."""
    schema = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    prepare(db, "x", "INSERT INTO t VALUES (1)")
    assert ids(db, schema, start) == []
    end(db, "XA ROLLBACK 'x'")
    assert ids(db, schema, start) == []
    prepare(db, "x", "INSERT INTO t VALUES (2)")
    end(db, "XA COMMIT 'x'")
    assert ids(db, schema, start) == [2]


def test_one_phase_commits_at_once(db: Db) -> None:
    """XA COMMIT … ONE PHASE ends like any other transaction."""
    schema = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    with db.session() as other:
        for statement in ("XA START 'a'", "INSERT INTO t VALUES (1)", "XA END 'a'", "XA COMMIT 'a' ONE PHASE"):
            query(other, statement)
    db.run("INSERT INTO t VALUES (2)")
    read = db.read(db.segment(start), schema)
    assert read.tables[schema.table]["id"].to_pylist() == [1, 2]
    assert read.log["pos"].to_pylist() == read.tables[schema.table][change.POS].to_pylist()


def test_rows_that_were_prepared_in_an_older_segment_or_file_are_found(db: Db) -> None:
    """A reader that begins after XA PREPARE looks back, through the files of the binlog."""
    schema = db.table("t", "id INT PRIMARY KEY")
    prepare(db, "old", "INSERT INTO t VALUES (1)")
    db.run("FLUSH BINARY LOGS")
    prepare(db, "gone", "INSERT INTO t VALUES (2)")
    db.run("FLUSH BINARY LOGS")
    end(db, "XA ROLLBACK 'gone'")
    prepare(db, "gone", "INSERT INTO t VALUES (3)")
    start = db.here()
    prepare(db, "new", "INSERT INTO t VALUES (4)")
    end(db, "XA COMMIT 'new'", "XA COMMIT 'gone'", "XA COMMIT 'old'")
    assert ids(db, schema, start) == [4, 3, 1]


def test_a_table_that_was_not_there_for_the_reader_at_prepare_gets_its_rows(db: Db) -> None:
    """What is watched at XA COMMIT decides; interleaved transactions of several tables do not mix."""
    one, two = db.table("one", "id INT PRIMARY KEY"), db.table("two", "id INT PRIMARY KEY, v INT")
    start = db.here()
    prepare(db, "x", "INSERT INTO one VALUES (1)", "INSERT INTO two VALUES (1, 1)", "INSERT INTO one VALUES (2)")
    prepare(db, "y", "INSERT INTO two VALUES (2, 1)")
    at_commit = db.here()
    assert ids(db, one, start, at_commit) == []
    end(db, "XA COMMIT 'y'", "XA COMMIT 'x'")
    read = db.read(db.segment(at_commit), one, two)
    assert read.halves(one.table, "id") == [(0, 0, 1), (2, 0, 2)]
    assert read.tables[two.table]["id"].to_pylist() == [2, 1]


def test_a_prepared_transaction_may_be_large(db: Db) -> None:
    """More row events than are buffered at a time."""
    schema = db.table("t", "id INT PRIMARY KEY, v VARCHAR(500)")
    start = db.here()
    numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT * FROM n"
    with db.session() as other:
        query(other, "XA START 'x'")
        for batch in range(20):
            query(other, f"INSERT INTO t SELECT i + {batch * 900}, REPEAT('x', 490) FROM ({numbers}) AS n")
        for statement in ("XA END 'x'", "XA PREPARE 'x'"):
            query(other, statement)
    end(db, "XA COMMIT 'x'")
    read = db.read(db.segment(start), schema).tables[schema.table]
    assert read["id"].to_pylist() == list(range(1, 18_001))
    assert read[change.ORDINAL].to_pylist() == list(range(18_000))
    assert len(set(read[change.POS].to_pylist())) == 1


def test_without_its_prepare_a_commit_stops_the_tables_that_are_read(db: Db) -> None:
    """By name: its rows are not in the binlog any more."""
    schema = db.table("t", "id INT PRIMARY KEY")
    prepare(db, "x", "INSERT INTO t VALUES (1)")
    db.run("FLUSH BINARY LOGS")
    start = db.here()
    purge(db.connection)
    end(db, "XA COMMIT 'x'")
    with pytest.raises(UnsupportedEvent, match=r"XA COMMIT at .*, but not the XA PREPARE") as stopped:
        db.read(db.segment(start), schema)
    assert stopped.value.tables == {schema.table}
    assert len(db.read(db.segment(start)).log) == 1


def read_on(db: Db, segment: Segment, prepared: PreparedAt | None, *schemas: TableSchema) -> tuple[list[int], Pending]:
    """The ids of all changes in a segment, of all tables, and what the segment leaves prepared."""
    watched, facts, found = {schema.table: schema for schema in schemas}, SegmentFacts(), list[int]()
    with connect(db.source) as connection:
        for table, batch in read_segment(
            connection, segment, watched, next(SERVER_IDS), facts=facts, prepared=prepared
        ):
            found += batch["id"].to_pylist() if table else []
    return found, facts.pending


def test_a_reader_that_knows_what_is_prepared_does_not_search_for_it(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment before says so; one that is not next to it searches no further back than that."""
    schema = db.table("t", "id INT PRIMARY KEY")
    start = db.here()
    prepare(db, "x", "INSERT INTO t VALUES (1)")
    prepare(db, "y", "INSERT INTO t VALUES (2)")
    between = db.here()
    _, pending = read_on(db, db.segment(start, between), None, schema)
    known = PreparedAt(between, pending.prepared)
    end(db, "XA COMMIT 'x'")
    prepare(db, "x", "INSERT INTO t VALUES (3)")
    db.run("FLUSH BINARY LOGS")
    later = db.here()
    end(db, "XA COMMIT 'y'", "XA COMMIT 'x'")
    searched, search = list[tuple[Any, Any]](), _Replay._pending_in  # noqa: SLF001

    def count(replay: _Replay, since: FilePosition, until: FilePosition) -> Pending:
        searched.append((since, until))
        return search(replay, since, until)

    monkeypatch.setattr(_Replay, "_pending_in", count)
    assert read_on(db, db.segment(between), known, schema)[0] == [1, 2, 3]
    assert [(since, until) for since, until in searched if since != until] == []
    assert read_on(db, db.segment(later), known, schema)[0] == [2, 3]
    assert searched[-1] == (between, later.start_of_file)


def test_where_the_binlog_lacks_what_is_known_only_the_changed_tables_stop(db: Db) -> None:
    """A transaction of other tables is of no matter then."""
    one, other = (db.table(name, "id INT PRIMARY KEY") for name in ("one", "other"))
    db.run("CREATE TABLE third (id INT PRIMARY KEY)")
    start = db.here()
    prepare(db, "x", "INSERT INTO one VALUES (1)", "INSERT INTO third VALUES (1)")
    prepare(db, "y", "INSERT INTO third VALUES (2)")
    db.run("FLUSH BINARY LOGS")
    between = db.here()
    _, pending = read_on(db, db.segment(start, between), None, one, other)
    known = PreparedAt(between, pending.prepared)
    purge(db.connection)
    end(db, "XA COMMIT 'y'")
    db.run("INSERT INTO one VALUES (7)")
    assert read_on(db, db.segment(between), known, one, other)[0] == [7]
    end(db, "XA COMMIT 'x'")
    with pytest.raises(UnsupportedEvent, match="but not the XA PREPARE") as stopped:
        read_on(db, db.segment(between), known, one, other)
    assert stopped.value.tables == {one.table}
    assert read_on(db, db.segment(between), known, other)[0] == []


def test_what_is_refused_before_the_segment_does_not_matter(db: Db) -> None:
    """It was there before the table was copied; but a prepared change in statement format is refused."""
    schema = db.table("t", "id INT PRIMARY KEY")
    db.run("CREATE TABLE other (id INT)")
    with db.session() as session:
        query(session, "SET binlog_format = STATEMENT")
        for statement in ("(1)", "(FLOOR(RAND() * 9))", "(LAST_INSERT_ID())"):
            query(session, f"INSERT INTO other VALUES {statement}")
    prepare(db, "x", "SAVEPOINT s", "INSERT INTO t VALUES (1)")
    with db.session() as session:
        for statement in ("SET binlog_format = STATEMENT", "XA START 'y'", "INSERT INTO t VALUES (2)", "XA END 'y'"):
            query(session, statement)
        query(session, "XA PREPARE 'y'")
    start = db.here()
    end(db, "XA COMMIT 'x'")
    assert ids(db, schema, start) == [1]
    end(db, "XA COMMIT 'y'")
    with pytest.raises(UnsupportedEvent, match="statement format"):
        ids(db, schema, start)


def in_one_session(db: Db, connection: pymysql.Connection, value: int) -> None:
    """Insert a row in an XA transaction."""
    xid = f"{db.name}-{value}"
    for statement in (f"XA START '{xid}'", f"INSERT INTO t (v) VALUES ({value})", f"XA END '{xid}'"):
        query(connection, statement)
    query(connection, f"XA PREPARE '{xid}'")
    query(connection, f"XA COMMIT '{xid}'")


def in_two_sessions(db: Db, connection: pymysql.Connection, value: int) -> None:
    """Insert a row in an XA transaction that another session commits."""
    xid = f"{db.name}-{value}"
    prepare(db, xid, f"INSERT INTO t (v) VALUES ({value})")
    end(replace(db, connection=connection), f"XA COMMIT '{xid}'")


@pytest.mark.parametrize("insert", [in_one_session, in_two_sessions])
@pytest.mark.long("hundreds of snapshots")
def test_no_snapshot_loses_an_xa_transaction(db: Db, insert: Insert) -> None:
    """Rows of a snapshot, and the changes that its merge applies, are the table as it is in the end."""
    outcome = race(db, 4, insert)
    assert outcome.rows > outcome.snapshots // 4
    assert (outcome.lost, outcome.wrong) == (0, 0)


@pytest.mark.long("the same on another server", only=("mariadb 11.4",))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.long("another cut on each server", turn="seed")
def test_segments_cut_anywhere_have_the_rows_of_what_is_committed_in_them(db: Db, seed: int) -> None:
    """Transactions at random, whose few names are used again and again; each segment alone has its rows, in order."""
    chance, schema = Random(seed), db.table("t", "id INT PRIMARY KEY")
    open_: dict[str, int] = {}
    places, committed = [db.here()], list[list[int]]()
    for id_ in range(60):
        xid = f"{db.name}-{chance.randrange(4)}"
        rows: list[int] = []
        if xid not in open_ and chance.random() < 0.7:
            prepare(db, xid, f"INSERT INTO t VALUES ({id_})")
            open_[xid] = id_
        elif xid in open_ and chance.random() < 0.7:
            is_kept = chance.random() < 0.7
            end(db, f"XA {'COMMIT' if is_kept else 'ROLLBACK'} '{xid}'")
            ended = open_.pop(xid)
            rows = [ended] if is_kept else []
        elif chance.random() < 0.2:
            db.run("FLUSH BINARY LOGS")
        else:
            db.run(f"INSERT INTO t VALUES ({id_})")
            rows = [id_]
        places.append(db.here())
        committed.append(rows)
    assert sum(map(len, committed)) > 20
    for _ in range(8):
        start, stop = sorted(chance.sample(range(len(places)), 2))
        expected = [id_ for rows in committed[start:stop] for id_ in rows]
        assert ids(db, schema, places[start], places[stop]) == expected
    executed = "" if dialect(db.connection) is MARIADB else db.executed()
    end(db, *(f"XA COMMIT '{xid}'" for xid in open_))
    rest = db.read(db.segment(places[0] if executed else places[-1], skip=executed), schema)
    assert rest.tables[schema.table]["id"].to_pylist() == list(open_.values())
