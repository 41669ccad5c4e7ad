"""Prepared transactions in the bytes of a dump: their names, where they are, and what is refused."""

import pytest

from lakeingest.core.position import FilePosition
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.wire.events import Damaged, Event, Type
from lakeingest.mysql.wire.grammar import Sign
from lakeingest.mysql.wire.xa import Pending, Prepared, Xid, read_prepare, xid_of
from tests.mysql.wire.stream import Stream, event, gtid_body, query_body

AT = FilePosition("binlog.000001", 4)
FOUND = Prepared(AT, FilePosition("binlog.000001", 400))
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


def test_what_is_prepared_is_known_until_it_ends() -> None:
    """A name can be used again; one that ended without having been prepared here was prepared before."""
    pending = Pending()
    raw = Event.from_data(event(Type.XA_PREPARE, prepare(X), 1)[:-4])
    assert pending.prepare(raw, FOUND) is None
    assert pending.settle(statement("XA COMMIT X'78',X'',1"), Sign.XA_COMMIT, AT, None) == FOUND
    assert pending == Pending()
    assert pending.settle(statement("XA ROLLBACK X'78',X'',1"), Sign.XA_ROLLBACK, AT, None) is None
    assert pending == Pending({}, {X})
    pending.add_older(Pending({X: FOUND, NAMES["x'',X'7a',0"]: FOUND}, set()))
    assert pending.prepared == {NAMES["x'',X'7a',0"]: FOUND}


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
