"""Prepared transactions in the bytes of a dump: their names, where they are, and what is refused."""

from collections.abc import Iterator

import pytest

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.copies.prepared import Pending, Prepared, Xid
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.wire.events import Damaged, Event, Type
from lakeingest.mysql.wire.grammar import Sign
from lakeingest.mysql.wire.xa import Committed, Preparing, Replay, Stamp, read_prepare, xid_of
from lakeingest.rows import Part
from tests.mysql.wire.stream import Stream, event, gtid_body, query_body, table_map_body

AT = FilePosition("binlog.000001", 4)
STOP = FilePosition("binlog.000001", 400)
X = Xid(b"x", b"", 1)
NAMES = {
    "X'78',X'',1": X,
    "x'',X'7a',0": Xid(b"", b"z", 0),
    "X'ff',X'00',-1": Xid(b"\xff", b"\0", 2**32 - 1),
}


def statement(text: str) -> Event:
    """A QUERY event."""
    return Event.from_data(event(Type.QUERY, query_body(text), 1)[:-4])


def prepare(xid: Xid, *, one_phase: bool = False) -> bytes:
    """The body of an XA_PREPARE event."""
    sizes = (xid.format, len(xid.global_part), len(xid.branch))
    return bytes([one_phase]) + b"".join(n.to_bytes(4, "little") for n in sizes) + xid.global_part + xid.branch


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_the_same_in_a_statement_and_in_an_event(text: str) -> None:
    """The number of its format is signed in one and not in the other."""
    raw = event(Type.XA_PREPARE, prepare(NAMES[text], one_phase=True), 1)[:-4]
    assert read_prepare(Event.from_data(raw)) == (NAMES[text], True)
    assert xid_of(statement(f"XA COMMIT {text}")) == NAMES[text]


@pytest.mark.parametrize("text", ["XA COMMIT 'x'", "XA COMMIT X'7',X'',1", "XA COMMIT X'78',X''"])
def test_a_statement_without_a_whole_name_is_damaged(text: str) -> None:
    """As no server writes it."""
    with pytest.raises(Damaged, match="XA statement"):
        xid_of(statement(text))


ORDERS, OTHER = TableId("shop", "orders"), TableId("shop", "other")
COMMIT, ROLLBACK = statement("XA COMMIT X'78',X'',1"), statement("XA ROLLBACK X'78',X'',1")


class Elsewhere:
    """What was prepared before the segment, as if the binlog had shown it."""

    def __init__(self, *tables: TableId) -> None:
        self.found = Prepared(AT, STOP, frozenset(tables))

    def find(self, xid: Xid, at: FilePosition) -> Prepared:
        """The same for each."""
        assert (xid, at) == (X, AT)
        return self.found

    def prove_prepared(self, xid: Xid, at: FilePosition) -> None:
        """It was."""
        assert (xid, at) == (X, AT)

    def rows(self, prepared: Prepared, at: FilePosition, stamp: Stamp) -> Iterator[Part]:
        """None is asked for here."""
        raise AssertionError(prepared, at, stamp)


def prepared(replay: Replay | None, rows: int = 1, *, one_phase: bool = False) -> tuple[Preparing, Committed | None]:
    """A reader of orders that has seen a transaction with so many bytes of rows; what is committed there."""
    found = Preparing(replay, {ORDERS})
    for type_, body in ((Type.TABLE_MAP, table_map_body(5, "shop", "orders")), (Type.WRITE_ROWS, bytes(rows))):
        found.add(Event.from_data(event(type_, body, 1)[:-4]))
    raw = Event.from_data(event(Type.XA_PREPARE, prepare(X, one_phase=one_phase), 1)[:-4])
    return found, found.prepare(raw, AT, STOP)


def test_what_is_prepared_is_committed_from_memory() -> None:
    """With its events, as they are in a compressed transaction; what is rolled back is forgotten."""
    seen, at_once = prepared(Elsewhere())
    assert at_once is None
    assert seen.pending == Pending({X: Prepared(AT, STOP, frozenset({ORDERS}))})
    committed = seen.handle(COMMIT, Sign.XA_COMMIT, AT)
    assert committed is not None
    assert committed.prepared == Prepared(AT, STOP, frozenset({ORDERS}))
    assert committed.events is not None
    assert [len(committed.events)] == [int.from_bytes(committed.events[9:13], "little") + 19 + 1]
    assert seen.pending == Pending()
    seen, _ = prepared(Elsewhere())
    assert seen.handle(ROLLBACK, Sign.XA_ROLLBACK, AT) is None
    assert seen.pending == Pending()
    assert seen.handle(ROLLBACK, Sign.XA_ROLLBACK, AT) is None
    assert seen.pending == Pending({}, {X})
    _, at_once = prepared(Elsewhere(), one_phase=True)
    assert at_once is not None
    assert at_once.events == committed.events


def test_a_large_transaction_is_not_kept_in_memory() -> None:
    """Nor are more than so many bytes of all that are prepared."""
    seen, _ = prepared(Elsewhere(), 1 << 21)
    committed = seen.handle(COMMIT, Sign.XA_COMMIT, AT)
    assert committed is not None
    assert committed.events is None
    seen = Preparing(Elsewhere(), {ORDERS})
    kept = list[bool]()
    for number in range(40):
        seen.add(Event.from_data(event(Type.TABLE_MAP, table_map_body(5, "shop", "orders"), 1)[:-4]))
        seen.add(Event.from_data(event(Type.WRITE_ROWS, bytes(1_000_000), 1)[:-4]))
        seen.prepare(Event.from_data(event(Type.XA_PREPARE, prepare(Xid(b"", b"", number)), 1)[:-4]), AT, STOP)
    for number in range(40):
        committed = seen.handle(statement(f"XA COMMIT X'',X'',{number}"), Sign.XA_COMMIT, AT)
        assert committed is not None
        kept.append(committed.events is not None)
    assert kept == [True] * 16 + [False] * 24


def test_what_changes_no_table_that_is_read_is_not_read_again() -> None:
    """Where it was prepared before the segment, too; with a change that was passed over, nobody knows."""
    seen = Preparing(Elsewhere(OTHER), {ORDERS})
    assert seen.handle(COMMIT, Sign.XA_COMMIT, AT) is None
    there = Elsewhere(ORDERS)
    assert Preparing(there, {ORDERS}).handle(COMMIT, Sign.XA_COMMIT, AT) == Committed(there.found, None)
    seen, change = Preparing(None, set()), statement("INSERT INTO shop.orders VALUES (1)")
    for sign in (Sign.XA_START, Sign.PASSED, Sign.XA_END):
        assert seen.handle(change, sign, AT) is None
    raw = Event.from_data(event(Type.XA_PREPARE, prepare(X), 1)[:-4])
    assert seen.prepare(raw, AT, STOP) is None
    assert seen.pending.prepared == {X: Prepared(AT, STOP, None)}
    assert seen.handle(COMMIT, Sign.XA_COMMIT, AT) is None
    seen.handle(change, Sign.XA_START, AT)
    seen.prepare(raw, AT, STOP)
    assert seen.pending.prepared == {X: Prepared(AT, STOP, frozenset())}


@pytest.mark.parametrize("text", ["XA START X'78',X'',1", "XA COMMIT X'78',X'',1", "XA ROLLBACK X'78',X'',1"])
def test_a_reader_that_cannot_read_again_refuses_xa(text: str) -> None:
    """It would lose the rows."""
    stream = Stream()
    stream.add(Type.GTID, gtid_body(1))
    stream.add(Type.QUERY, query_body(text))
    with pytest.raises(UnsupportedEvent, match="XA"):
        stream.read(stop=stream.pos)


@pytest.mark.parametrize("text", ["XA END X'78',X'',1", "XA PREPARE X'78',X'',1", "XA COMMIT X'78',X'',1 ONE PHASE"])
def test_xa_statements_elsewhere_or_in_another_form_are_refused(text: str) -> None:
    """Only what servers write is understood."""
    stream = Stream()
    stream.begin()
    stream.add(Type.QUERY, query_body(text))
    with pytest.raises(UnsupportedEvent):
        stream.read(stop=stream.pos)
