"""The list of prepared transactions of MariaDB: it says which low watermarks hold for read views."""

from typing import Any

import pytest
from pydantic import SecretStr

from lakeingest.core.binlog.position import FIRST_EPOCH, FilePosition, Low, Position
from lakeingest.core.copies.prepared import Prepared, PreparedAt, Xid
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.chunks import Chunk
from lakeingest.demo.flavor import MARIADB_10_11, MARIADB_11_4
from lakeingest.errors import SplitUnstable, UnsupportedEvent
from lakeingest.mysql import chunk_reader, xa_list
from lakeingest.mysql.chunk_reader import Hooks, read_chunk, server_state
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.xa_list import prepared_xids, settle, settled_now
from tests.mysql import test_insert_loss
from tests.mysql.database import EPOCH, Db
from tests.mysql.test_insert_loss import Insert, race
from tests.mysql.test_xa import end, in_one_session, in_two_sessions, prepare, read_on

BOTH = (MARIADB_11_4, MARIADB_10_11)
RACES = 20  # of 200 snapshots; measured: one snapshot in 30 lacks a commit that is before its position
pytestmark = [
    pytest.mark.mysql,
    pytest.mark.parametrize("any_server", BOTH, ids=[one.name for one in BOTH], indirect=True),
]


@pytest.fixture
def db(any_db: Db) -> Db:
    """A database on each."""
    return any_db


def named(name: str) -> Xid:
    """The transaction of this name."""
    return Xid(name.encode(), b"", 1)


def position(db: Db, at: FilePosition) -> Position:
    """A position on the server of the database."""
    return Position(server_state(db.connection).uuid, FIRST_EPOCH, at, None)


def settled(db: Db, at: FilePosition, *known: Xid) -> frozenset[Xid]:
    """What `settle` finds out."""
    return settle(db.source, db.connection, position(db, at), known)


def test_every_user_sees_the_names_of_all_transactions(db: Db) -> None:
    """Bytes, with their formats."""
    db.table("t", "id INT PRIMARY KEY")
    names = {
        "'a','b',77": Xid(b"a", b"b", 77),
        "X'00ff27',X'01'": Xid(b"\0\xff'", b"\1", 1),
        "'c','',2147483647": Xid(b"c", b"", 2**31 - 1),
    }
    db.run("CREATE USER nobody IDENTIFIED BY 'nobody'")
    try:
        with db.session() as one, db.session() as two, db.session() as three:
            for number, (session, name) in enumerate(zip((one, two, three), names, strict=True)):
                for statement in (f"XA START {name}", f"INSERT INTO t VALUES ({number})", f"XA END {name}"):
                    query(session, statement)
                query(session, f"XA PREPARE {name}")
            nobody = db.source.model_copy(update={"user": "nobody", "password": SecretStr("nobody")})
            with connect(nobody) as connection:
                assert prepared_xids(connection) == set(names.values())
            for session, name in zip((one, two, three), names, strict=True):
                query(session, f"XA COMMIT {name}")
            assert prepared_xids(db.connection) == set()
    finally:
        db.run("DROP USER nobody")


def test_only_what_was_prepared_before_the_position_is_found(db: Db) -> None:
    """In any file; what is known is not looked for."""
    db.table("t", "id INT PRIMARY KEY")
    try:
        assert settled(db, db.here()) == set()
        prepare(db, "used", "INSERT INTO t VALUES (1)")
        end(db, "XA COMMIT 'used'")
        prepare(db, "old", "INSERT INTO t VALUES (2)")
        db.run("FLUSH BINARY LOGS")
        prepare(db, "used", "INSERT INTO t VALUES (3)")
        db.run("INSERT INTO t VALUES (4)")
        at = db.here()
        prepare(db, "new", "INSERT INTO t VALUES (5)")
        assert settled(db, at) == {named("old"), named("used")}
        assert settled(db, at, named("old"), named("used")) == set()
        assert settled(db, at, named("old")) == {named("used")}
    finally:
        end(db, *(f"XA ROLLBACK '{name}'" for name in ("old", "used", "new")))


def test_what_is_listed_although_it_has_ended_is_named(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while an XA COMMIT takes long, or after a crash of the server: here by a session without binlog."""
    schema = db.table("t", "id INT PRIMARY KEY")
    monkeypatch.setattr(xa_list, "_COMMIT_SECONDS", 0.3)
    prepare(db, "x", "INSERT INTO t VALUES (1)")
    end(db, "XA COMMIT 'x'")
    with db.session() as other:
        for statement in ("SET sql_log_bin = 0", "XA START 'x'", "INSERT INTO t VALUES (2)", "XA END 'x'"):
            query(other, statement)
        query(other, "XA PREPARE 'x'")
        with pytest.raises(SplitUnstable, match="XA RECOVER lists X'78',X'',1, although the binlog has its XA COMMIT"):
            settled(db, db.here())
        query(other, "XA ROLLBACK 'x'")
    assert settled_now(db.source, db.connection, server_state(db.connection).uuid) == db.here()
    assert db.select(schema).num_rows == 1


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.long("one server and case in turn", turn=("any_server", "is_known"))
def test_a_transaction_that_ends_twice_stops_the_tables(db: Db, *, is_known: bool) -> None:
    """As after a crash: XA COMMIT was written, its rows are not there, and then it is rolled back."""
    schema = db.table("t", "id INT PRIMARY KEY")
    prepare(db, "old", "INSERT INTO t VALUES (7)")
    start = db.here()
    prepare(db, "x", "INSERT INTO t VALUES (1)")
    end(db, "XA COMMIT 'x'")
    db.run("FLUSH BINARY LOGS")
    with db.session() as other:
        for statement in ("SET sql_log_bin = 0", "XA START 'x'", "INSERT INTO t VALUES (2)", "XA END 'x'"):
            query(other, statement)
        query(other, "XA PREPARE 'x'")
    later = db.here()
    known = PreparedAt(start, {named("old"): Prepared(start, start, frozenset())}) if is_known else None
    end(db, "XA ROLLBACK 'old'")
    read_on(db, db.segment(later), known, schema)
    end(db, "XA ROLLBACK 'x'")
    for begins in (start, later):
        with pytest.raises(UnsupportedEvent, match="of a transaction that had ended before that") as stopped:
            read_on(db, db.segment(begins), known, schema)
        assert stopped.value.tables == {schema.table}


def test_while_something_is_prepared_low_is_the_settled_position(db: Db) -> None:
    """It may be what commits; without such a position nothing is read."""
    schema = db.table("t", "id INT PRIMARY KEY")
    whole, uuid = Chunk(schema.table, KeyRange()), server_state(db.connection).uuid
    at = db.here()
    db.run("INSERT INTO t VALUES (1)")
    before = db.here()
    read = read_chunk(db.source, schema, whole, uuid, EPOCH, settled=at)
    assert read.split.low == before.place(EPOCH)
    prepare(db, "x", "INSERT INTO t VALUES (2)")
    with pytest.raises(SplitUnstable, match="XA transactions are prepared"):
        read_chunk(db.source, schema, whole, uuid, EPOCH)
    hooks = Hooks(after_low=lambda: end(db, "XA COMMIT 'x'"))
    read = read_chunk(db.source, schema, whole, uuid, EPOCH, hooks, settled=at)
    assert read.rows["id"].to_pylist() == [1, 2]
    assert (read.split.low, read.high) == (at.place(EPOCH), db.here())


@pytest.mark.parametrize("insert", [in_one_session, in_two_sessions])
@pytest.mark.long("thousands of snapshots")
def test_the_position_of_a_view_as_low_watermark_loses_xa_transactions(
    db: Db, monkeypatch: pytest.MonkeyPatch, insert: Insert
) -> None:
    """The mutant: low and high are the position of the view. That it fails shows that the other race can."""
    read = chunk_reader._open_view  # noqa: SLF001

    def exact(*asked: Any) -> tuple[Low, FilePosition]:
        _, high = read(*asked)
        return high.place(asked[4]), high

    def loses() -> bool:
        outcome = race(db, 6, insert)
        db.run("DROP TABLE t")
        return outcome.lost > 0

    monkeypatch.setattr(chunk_reader, "_open_view", exact)
    monkeypatch.setattr(test_insert_loss, "settled_now", lambda *_: db.here())
    assert any(loses() for _ in range(RACES))
