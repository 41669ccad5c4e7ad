"""What a reader saw of the binlog at its end is proven there later, and nothing else is."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakeingest.core.binlog.history import Committed, History, LastEvent
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position, file_start
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import BinlogGone, Retryable, SourceReplaced
from lakeingest.mysql import binlog_reader, continuity
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import ServerState, server_state
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.continuity import (
    executed_with,
    file_began,
    last_transaction,
    prove,
    require_binlog,
    require_same_history,
)
from lakeingest.mysql.dialect import MARIADB, dialect
from tests.mysql.database import EPOCH, SERVER_IDS, Db

pytestmark = pytest.mark.mysql

LAST_STATEMENTS = {
    "a row": ["INSERT INTO t VALUES (2, 'b')"],
    "rows of one transaction": ["BEGIN", "INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c'", "COMMIT"],
    "a statement": ["CREATE TABLE beside (id INT PRIMARY KEY)"],
    "a rotation": ["INSERT INTO t VALUES (2, 'b')", "FLUSH BINARY LOGS"],
    "two rotations": ["INSERT INTO t VALUES (2, 'b')", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS"],
}


def seen(db: Db, start: FilePosition, schema: TableSchema, history: History | None = None) -> Position:
    """The position that a reader of the binlog from `start` to now ends at."""
    segment, facts = replace(db.segment(start), history=history), SegmentFacts()
    with connect(db.source) as connection:
        list(read_segment(connection, segment, {schema.table: schema}, next(SERVER_IDS), facts))
    state = server_state(db.connection)
    return Position(state.uuid, EPOCH, segment.stop, state.executed, facts.history)


def read_on(db: Db, position: Position, schema: TableSchema) -> None:
    """Read the binlog from a position to now."""
    with connect(db.source) as connection:
        list(read_segment(connection, Segment.after(position, db.here()), {schema.table: schema}, next(SERVER_IDS)))


def others(history: History) -> list[History]:
    """Histories of other binlogs, each with one difference."""
    found: list[History] = []
    if history.began is not None:
        found.append(replace(history, began=history.began + 1))
    if history.event is not None:
        found += [
            replace(history, event=LastEvent(history.event.pos, "0" * 24)),
            replace(history, event=LastEvent(history.event.pos - 1, history.event.digest)),
        ]
    if history.last is not None:
        last = history.last
        found += [
            replace(history, last=replace(last, committed_at=last.committed_at + 1)),
            replace(history, last=replace(last, gtid="00000000-0000-0000-0000-000000000001:1")),
            replace(history, last=replace(last, pos=last.pos + 1)),
        ]
    return found


@pytest.mark.parametrize("statements", LAST_STATEMENTS.values(), ids=LAST_STATEMENTS.keys())
@pytest.mark.long("each statement on one server in turn", turn="any_server")
def test_the_history_of_a_position_is_proven(any_db: Db, statements: Sequence[str]) -> None:
    """Whatever the binlog ends with; another begin of the file, last event or last transaction is refused."""
    db = any_db
    schema = db.table("t", "id INT PRIMARY KEY, v VARCHAR(10)")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 'a')", *statements)
    position = seen(db, start, schema)
    history = position.history
    assert history is not None
    assert None not in {history.began, history.event, history.last}
    assert isinstance(history.last, Committed)
    assert (history.last.gtid is None) == (position.gtids is None and dialect(db.connection) is not MARIADB)
    require_binlog(db.source, db.connection, position)
    db.run("INSERT INTO t VALUES (9, 'z')")
    read_on(db, position, schema)
    for other in others(history):
        with pytest.raises(BinlogGone, match="is not the one that our position"):
            require_binlog(db.source, db.connection, replace(position, history=other))
    for other in others(replace(history, last=None)):
        with pytest.raises(BinlogGone):
            read_on(db, replace(position, history=other), schema)


def test_a_compressed_transaction_is_proven(db: Db) -> None:
    """Its last event in the file is its payload."""
    schema = db.table("t", "id INT PRIMARY KEY, v TEXT")
    start = db.here()
    db.run("SET binlog_transaction_compression = ON", "INSERT INTO t VALUES (1, REPEAT('a', 5000))")
    position = seen(db, start, schema)
    require_binlog(db.source, db.connection, position)
    db.run("INSERT INTO t VALUES (2, REPEAT('b', 5000))", "SET binlog_transaction_compression = OFF")
    read_on(db, position, schema)
    assert position.history is not None
    for other in others(position.history):
        with pytest.raises(BinlogGone):
            require_binlog(db.source, db.connection, replace(position, history=other))


def test_both_decoders_give_the_same_history(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the position of one is proven by the other."""
    schema = db.table("t", "id INT PRIMARY KEY, v VARCHAR(10)")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 'a')", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 'b'), (3, 'c')")
    position = seen(db, start, schema)
    monkeypatch.setenv("LAKEINGEST_WIRE", "reference")
    assert seen(db, start, schema) == position
    db.run("INSERT INTO t VALUES (4, 'd')")
    read_on(db, position, schema)
    assert position.history is not None
    for other in others(replace(position.history, last=None)):
        with pytest.raises(BinlogGone):
            read_on(db, replace(position, history=other), schema)


@pytest.mark.parametrize("wire", ["fast", "reference"])
def test_a_position_beyond_four_gibibytes_is_proven_while_it_is_read(
    db: Db, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """The event that ends there comes after all others of its file, and is looked at all the same."""
    schema = db.table("t", "id INT PRIMARY KEY, v VARCHAR(10)")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 'a')")
    position = seen(db, start, schema)
    db.run("INSERT INTO t VALUES (2, 'b')")
    monkeypatch.setenv("LAKEINGEST_WIRE", wire)
    monkeypatch.setattr(binlog_reader, "_DUMP_POS_MAX", 4)
    require_binlog(db.source, db.connection, position)
    read_on(db, position, schema)
    history = position.history
    assert history is not None
    assert history.event is not None
    other = replace(history, event=LastEvent(history.event.pos, "0" * 24))
    with pytest.raises(BinlogGone, match="another event ends there"):
        read_on(db, replace(position, history=other), schema)


def test_a_purged_file_is_not_compared(db: Db) -> None:
    """Another check decides whether purged changes are missing."""
    at = db.here()
    history = History(1, LastEvent(4, "0"), Committed("binlog.999999", 4, None, 0))
    state = server_state(db.connection)
    prove(db.source, Position(state.uuid, EPOCH, at, state.executed, history), ())
    began = History(file_began(db.source, at.file), None, history.last)
    prove(db.source, Position(state.uuid, EPOCH, file_start(at.file), state.executed, began), {at.file})


def test_a_position_after_the_end_of_an_older_file_is_gone(db: Db) -> None:
    """The server lost the end of that file in a crash, and continued in a new one."""
    at = db.here()
    db.run("FLUSH BINARY LOGS")
    state = server_state(db.connection)
    with pytest.raises(BinlogGone, match=f"{at.file} ends before our position"):
        require_binlog(db.source, db.connection, Position(state.uuid, EPOCH, replace(at, pos=1 << 30), state.executed))


@pytest.mark.parametrize("after", [(), ("FLUSH BINARY LOGS",), ("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")])
def test_the_last_transaction_before_a_position_is_known(db: Db, after: Sequence[str]) -> None:
    """Also where it is in an older file; once it is executed, the state says so."""
    db.table("t", "id INT PRIMARY KEY")
    db.run("INSERT INTO t VALUES (1)")
    one = last_transaction(db.source, db.connection, db.here())
    db.run("INSERT INTO t VALUES (2)", *after)
    two = last_transaction(db.source, db.connection, db.here())
    assert one is not None
    assert two is not None
    assert two.gtid is not None
    assert one.gtid != two.gtid
    assert one.committed_at < two.committed_at
    executed = executed_with(db.connection, GtidSet.parse(two.gtid)).executed
    assert executed is not None
    assert GtidSet.parse(two.gtid) <= executed
    elsewhere = Position("other", EPOCH, db.here(), executed, History(1, None, two))
    with pytest.raises(SourceReplaced):
        require_same_history(ServerState("this", executed), elsewhere)
    with pytest.raises(SourceReplaced):
        prove(db.source, elsewhere, {two.file, elsewhere.at.file})


def test_a_transaction_that_is_never_executed_is_not_waited_for_for_ever(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler tries again."""
    monkeypatch.setattr(continuity, "EXECUTED_WITHIN_SECONDS", 0)
    with pytest.raises(Retryable, match="is in the binlog but not executed"):
        executed_with(db.connection, GtidSet.parse("00000000-0000-0000-0000-000000000001:1"))


def test_the_last_transaction_is_not_looked_for_in_a_large_file(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first copy begins at once."""
    db.table("t", "id INT PRIMARY KEY")
    monkeypatch.setattr(continuity, "LEAST_BYTES", 10)
    assert last_transaction(db.source, db.connection, db.here()) is None


def test_the_last_transaction_is_known_where_its_file_has_a_change_in_statement_format(db: Db) -> None:
    """The binlog before the first copy is nobody's business."""
    db.table("t", "id INT PRIMARY KEY")
    with db.session() as session:
        for statement in ("SET binlog_format = STATEMENT", "INSERT INTO t VALUES (RAND() * 100)"):
            query(session, statement)
    assert last_transaction(db.source, db.connection, db.here()) is not None
    db.run("FLUSH BINARY LOGS")
