"""MariaDB's transactions: their GTIDs say no length, and their events may say no end."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.errors import LakeIngestError, UnsupportedEvent
from lakeingest.mysql.wire import segment
from lakeingest.mysql.wire.events import Type
from tests.mysql.wire.stream import XID, Stream, domain_gtid_body, query_body, rows_body, table_map_body

TRANSACTIONS = 40
ENDS_EVERYWHERE = 10  # the version that says the end of every event


def transaction(stream: Stream, number: int, *, says_ends: bool, domain: int = 0) -> int:
    """Add a transaction that inserts its number; where it begins."""
    begins = stream.pos
    stream.add(Type.DOMAIN_GTID, domain_gtid_body(number, domain))
    for event_type, body in (
        (Type.ANNOTATE_ROWS, b"INSERT"),
        (Type.TABLE_MAP, table_map_body(5, "shop", "orders")),
        (Type.WRITE_ROWS_V1, rows_body(5, number)[:8] + rows_body(5, number)[10:]),
    ):
        stream.add(event_type, body, says_end=says_ends)
    stream.add(Type.XID, XID)
    return begins


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("events", [1, 3, 16_384])
def test_the_place_of_a_transaction_is_where_it_begins(
    monkeypatch: pytest.MonkeyPatch, events: int, version: int
) -> None:
    """The places are in order, by the kernel and by `segment` alone."""
    monkeypatch.setattr(segment, "_EVENTS", events)
    stream = Stream()
    stream.add(Type.GTID_LIST, bytes(4))
    begins = []
    for number in range(1, TRANSACTIONS + 1):
        begins.append(transaction(stream, number, says_ends=version == ENDS_EVERYWHERE, domain=number % 3))
        if number % 10 == 0:
            stream.add(Type.BINLOG_CHECKPOINT, b"binlog.000001")
    ids, log = stream.read(gtids=False)
    assert ids == list(range(1, TRANSACTIONS + 1))
    assert [row["pos"] for row in log] == [begin + 1 for begin in begins]
    assert {(row["uuid"], row["tag"], row["number"]) for row in log} == {(None, None, None)}


def test_a_single_statement_may_be_a_transaction() -> None:
    """Without BEGIN and COMMIT."""
    stream = Stream()
    stream.add(Type.DOMAIN_GTID, domain_gtid_body(1, is_standalone=True))
    stream.add(Type.QUERY, query_body("CREATE SEQUENCE s"))
    transaction(stream, 2, says_ends=True)
    ids, log = stream.read(gtids=False)
    assert ids == [2]
    assert len(log) == 2


def test_a_missing_event_is_detected() -> None:
    """Where the events of a transaction do not say their ends, the last one does."""
    stream = Stream()
    transaction(stream, 1, says_ends=False)
    with pytest.raises(UnsupportedEvent, match="an event that should end at"):
        stream.read(gtids=False, raw=[*stream.raw[:-2], stream.raw[-1]])


def test_every_event_of_a_mysql_transaction_says_where_it_ends() -> None:
    """An event without an end is not an event of the file in MySQL."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TABLE_MAP, table_map_body(5, "shop", "orders"), says_end=False)
    stream.commit()
    with pytest.raises(UnsupportedEvent):
        stream.read()


def test_a_transaction_that_begins_within_another_is_refused() -> None:
    """The first must end before the next begins."""
    stream = Stream()
    transaction(stream, 1, says_ends=True)
    del stream.raw[-1]
    stream.pos -= 19 + len(XID) + 4
    transaction(stream, 2, says_ends=True)
    with pytest.raises(UnsupportedEvent, match="after BEGIN, where it is not allowed"):
        stream.read(gtids=False)


@given(st.data())
def test_an_altered_byte_gives_an_error_or_another_value(data: st.DataObject) -> None:
    """Without checksums it cannot be detected; nothing outside the bytes is read, and every error is a named one."""
    stream = Stream(checksums=False)
    for number in range(1, 4):
        transaction(stream, number, says_ends=data.draw(st.booleans()))
    number = data.draw(st.integers(2, len(stream.raw) - 1))
    raw = bytearray(stream.raw[number])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(LakeIngestError):
        ids, log = stream.read(gtids=False, raw=[*stream.raw[:number], bytes(raw), *stream.raw[number + 1 :]])
        assert len(ids) <= len(log) <= len(stream.raw)
