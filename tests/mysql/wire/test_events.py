import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.binlog.position import FilePosition, Gtid
from lakeingest.errors import BinlogGone, SourceAway, UnsupportedEvent
from lakeingest.mysql.wire import events
from lakeingest.mysql.wire.events import ACTIONS, Damaged, Event, Type
from lakeingest.mysql.wire.query import Query, read_query
from lakeingest.mysql.witness.gaps import BEYOND
from tests.mysql.wire.stream import (
    FILE,
    SECOND,
    SOURCE,
    XID,
    Stream,
    event,
    format_body,
    gtid_body,
    query_body,
    rotate_body,
    rows_body,
    table_map_body,
)


@pytest.fixture(autouse=True, scope="module", params=["fast", "reference"])
def wire(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both decoders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEINGEST_WIRE", request.param)
        yield str(request.param)


def test_the_rows_of_a_transaction_are_read() -> None:
    """The events that this file builds are read like a server's."""
    stream = Stream()
    stream.begin()
    stream.insert(1, -2)
    stream.insert(3, database="elsewhere", table_id=6)
    stream.commit()
    ids, [row] = stream.read()
    assert ids == [1, -2]
    assert (row["uuid"], row["tag"], row["number"]) == (SOURCE, "", 1)
    assert (row["epoch"], row["file"], row["pos"]) == (1, 9, stream.pos)


@pytest.mark.parametrize("event_type", sorted(set(range(256)) - set(ACTIONS) - {27, 41}))
@pytest.mark.parametrize("inside", [False, True])
def test_an_unknown_event_type_is_fatal(event_type: int, *, inside: bool) -> None:
    """Inside and outside of transactions; the message has its number or name, and the place."""
    stream = Stream()
    if inside:
        stream.begin()
    at = stream.pos
    stream.add(event_type, bytes(40))
    name, fix = events.name_and_fix(event_type)
    with pytest.raises(UnsupportedEvent) as stopped:
        stream.read(stop=stream.pos + 1)
    assert name in str(stopped.value)
    assert fix in str(stopped.value)
    assert f"{FILE}:{at}" in str(stopped.value)


@pytest.mark.parametrize("event_type", sorted(set(range(256)) - set(ACTIONS) - {27, 41}))
def test_a_made_up_event_of_another_type_is_fatal(event_type: int) -> None:
    """The server makes up only rotations, format descriptions and heartbeats."""
    stream = Stream()
    stream.made_up(event_type, bytes(40))
    with pytest.raises(UnsupportedEvent):
        stream.read(stop=stream.pos + 1)


@pytest.mark.parametrize(
    ("event_type", "name"),
    [
        (38, "XA_PREPARE"),
        (39, "PARTIAL_UPDATE_ROWS"),
        (40, "TRANSACTION_PAYLOAD"),
        (42, "GTID_TAGGED"),
        (26, "INCIDENT"),
        (24, "version 1"),
        (99, "unknown type 99"),
        (162, "a GTID event of MariaDB"),
        (164, "START_ENCRYPTION"),
        (165, "a compressed event"),
        (171, "a compressed event"),
        (172, "MariaDB's type 172"),
    ],
)
def test_the_message_of_a_refused_type_has_its_name(event_type: int, name: str) -> None:
    """For types that are known but not supported."""
    assert name in (BEYOND.get(event_type) or events.name_and_fix(event_type))[0]


@given(st.data())
def test_an_altered_bit_is_detected(data: st.DataObject) -> None:
    """In any event of a file, at any offset, it is an error; nothing of the event is read."""
    stream = Stream()
    stream.begin()
    stream.insert(1)
    stream.commit()
    number = data.draw(st.integers(2, len(stream.raw) - 1))
    place = data.draw(st.integers(0, len(stream.raw[number]) - 1))
    raw = bytearray(stream.raw[number])
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((UnsupportedEvent, BinlogGone)):
        stream.read(raw=[*stream.raw[:number], bytes(raw), *stream.raw[number + 1 :]])


def test_the_message_of_a_wrong_checksum_has_the_place() -> None:
    """File and position of the damaged event."""
    stream = Stream()
    stream.begin()
    at = stream.pos
    stream.insert(1)
    stream.raw[-2] = stream.raw[-2][:-1] + bytes([stream.raw[-2][-1] ^ 1])
    with pytest.raises(UnsupportedEvent, match=rf"damaged at {FILE}:{at}: .*checksum"):
        stream.read()


def test_without_checksums_events_are_read_to_their_last_byte() -> None:
    """Where the format description says that events have no checksums, no bytes are cut off."""
    stream = Stream(checksums=False)
    stream.add(Type.ANONYMOUS_GTID, gtid_body(0))
    stream.add(Type.QUERY, query_body("BEGIN"))
    stream.insert(7)
    stream.commit()
    ids, [row] = stream.read(gtids=False)
    assert ids == [7]
    assert (row["uuid"], row["tag"], row["number"]) == (None, None, None)


@pytest.mark.parametrize("body", [format_body(algorithm=7), format_body(version=3)])
def test_an_unknown_binlog_format_is_fatal(body: bytes) -> None:
    """An unknown checksum algorithm or binlog version is not guessed."""
    stream = Stream()
    stream.raw[-1] = event(Type.FORMAT_DESCRIPTION, body, 0, 0x20)
    with pytest.raises(UnsupportedEvent, match="damaged"):
        stream.read(stop=stream.pos + 1)


def test_an_anonymous_transaction_is_fatal_where_gtids_are_on() -> None:
    """Its order could not be decided by GTID."""
    stream = Stream()
    stream.add(Type.ANONYMOUS_GTID, gtid_body(0))
    with pytest.raises(UnsupportedEvent, match="without a GTID"):
        stream.read()


def test_positions_may_exceed_four_gibibytes() -> None:
    """The end of an event has four bytes; the position of a transaction is a full number."""
    stream = Stream(FilePosition(FILE, 2**32 - 100))
    for number in (1, 2):
        stream.begin(number)
        stream.insert(number)
        stream.commit()
    assert stream.pos > 2**32
    ids, log = stream.read()
    assert ids == [1, 2]
    assert log[-1]["pos"] == stream.pos


def test_events_before_the_start_are_skipped() -> None:
    """A dump may begin before the segment; what would be refused is not checked there."""
    stream = Stream()
    stream.add(99)
    start = FilePosition(FILE, stream.pos)
    stream.begin()
    stream.insert(1)
    stream.commit()
    ids, log = stream.read(start=start)
    assert (ids, len(log)) == ([1], 1)


@pytest.mark.parametrize("heartbeat", [Type.HEARTBEAT, Type.HEARTBEAT_V2])
def test_a_heartbeat_does_not_move_the_position(heartbeat: Type) -> None:
    """It may have a position, but is not an event of the file."""
    stream = Stream()
    stream.begin()
    stream.raw.append(event(heartbeat, FILE.encode(), stream.pos))
    stream.insert(1)
    stream.commit()
    assert stream.read()[0] == [1]


def test_an_event_with_another_end_is_fatal() -> None:
    """So a gap in the stream is detected at the next event."""
    stream = Stream()
    stream.begin()
    stream.pos += 1
    stream.commit()
    with pytest.raises(UnsupportedEvent, match="should end at"):
        stream.read()


def next_file(stream: Stream, file: str) -> Iterator[bytes]:
    """The same events with a file after them, which holds one transaction."""
    yield from stream.raw
    yield event(Type.ROTATE, rotate_body(file), 0, 0x20)
    later = Stream(FilePosition(file, 4))
    later.raw.clear()
    later.add(Type.FORMAT_DESCRIPTION, format_body())
    later.add(Type.PREVIOUS_GTIDS, bytes(8))
    later.begin(2)
    later.insert(2)
    later.commit()
    yield from later.raw


@pytest.mark.parametrize(("file", "pos"), [("no file", 4), ("", 4), ("binlog.000010", 1 << 63)])
def test_an_invalid_file_name_in_a_rotation_is_damage(file: str, pos: int) -> None:
    """A rotation has the name of a binlog file, and a position in it."""
    stream = Stream()
    stream.made_up(Type.ROTATE, rotate_body(file, pos))
    with pytest.raises(UnsupportedEvent, match="damaged"):
        stream.read(stop=stream.pos + 1)


def test_the_message_of_a_refused_statement_is_one_printable_line() -> None:
    """A statement may be in another charset and on many lines."""
    stream = Stream()
    stream.begin()
    body = query_body("ALTER TABLE orders\n ADD x", "shop") + b"\xe9\xff"
    stream.add(Type.QUERY, body)
    with pytest.raises(UnsupportedEvent) as refused:
        stream.read(stop=stream.pos + 1)
    assert "\n" not in str(refused.value)
    assert r"x\udce9\udcff" in str(refused.value).encode().decode()


@pytest.mark.parametrize("last", [Type.ROTATE, Type.STOP, None])
def test_reading_continues_in_the_next_file(last: Type | None) -> None:
    """However a file ends (a crash writes no event), reading continues at the beginning of the next."""
    stream = Stream(FilePosition("binlog.999999", 200))
    stream.begin()
    stream.insert(1)
    stream.commit()
    if last is not None:
        stream.add(last, rotate_body("binlog.1000000") if last is Type.ROTATE else b"")
    stop = FilePosition("binlog.1000000", 4)
    raw = list(next_file(stream, stop.file))
    assert stream.read(raw=raw, stop=stop)[0] == [1]
    whole = FilePosition(stop.file, 4 + sum(len(event) for event in raw[len(stream.raw) + 1 :]))
    ids, log = stream.read(raw=raw, stop=whole)
    assert ids == [1, 2]
    assert [(row["file"], row["pos"]) for row in log][-1] == (1_000_000, whole.pos)


@pytest.mark.parametrize("file", ["binlog.000011", "binlog.000008"])
def test_a_gap_between_files_is_fatal(file: str) -> None:
    """A file that is missing or repeated is never skipped silently."""
    stream = Stream()
    with pytest.raises(BinlogGone, match="gap"):
        stream.read(raw=next_file(stream, file), stop=FilePosition("binlog.000012", 4))


def test_a_file_that_ends_inside_a_transaction_is_fatal() -> None:
    """A transaction always ends in the file in which it begins."""
    stream = Stream()
    stream.begin()
    with pytest.raises(BinlogGone, match="gap"):
        stream.read(raw=next_file(stream, "binlog.000010"), stop=FilePosition("binlog.000010", 500))


def test_a_stop_must_be_the_end_of_a_transaction() -> None:
    """Not inside a transaction, not between events, and not after the end of the stream."""
    stream = Stream()
    stream.begin()
    inside = stream.pos
    stream.insert(1)
    stream.commit()
    for stop in (inside, inside + 1, stream.pos - 1):
        with pytest.raises(BinlogGone, match="no transaction ends"):
            stream.read(stop=stop)
    with pytest.raises((BinlogGone, SourceAway)):
        stream.read(stop=stream.pos + 1)


@pytest.mark.parametrize(
    "sequence",
    [
        [(Type.QUERY, query_body("BEGIN"))],
        [(Type.TABLE_MAP, table_map_body(5, "shop", "orders"))],
        [(Type.XID, XID)],
        [(Type.GTID, gtid_body(1)), (Type.GTID, gtid_body(2))],
        [(Type.GTID, gtid_body(1)), (Type.XID, XID)],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("SAVEPOINT s"))],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("BEGIN")), (Type.QUERY, query_body("BEGIN"))],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("BEGIN")), (Type.GTID, gtid_body(2))],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body(""))],
        [(Type.GTID, gtid_body(1)), (Type.PREVIOUS_GTIDS, bytes(8))],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("BEGIN")), (Type.WRITE_ROWS, rows_body(9, 1))],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("BEGIN")), (Type.QUERY, query_body("ROLLBACK TO `s`"))],
    ],
)
def test_events_out_of_order_are_fatal(sequence: list[tuple[int, bytes]]) -> None:
    """Events that the grammar does not allow are not interpreted."""
    stream = Stream()
    for event_type, body in sequence:
        stream.add(event_type, body)
    with pytest.raises(UnsupportedEvent):
        stream.read(stop=stream.pos + 1)


def test_a_rollback_without_rows_of_a_copied_table_ends_a_transaction() -> None:
    """After rows of a copied table it is refused."""
    stream = Stream()
    stream.begin()
    stream.insert(1, database="elsewhere")
    stream.add(Type.QUERY, query_body("ROLLBACK"))
    assert len(stream.read()[1]) == 1
    stream.begin()
    stream.insert(1)
    stream.add(Type.QUERY, query_body("ROLLBACK"))
    with pytest.raises(UnsupportedEvent, match="ROLLBACK after rows"):
        stream.read()


def test_a_commit_may_be_a_statement() -> None:
    """As for engines without transactions."""
    stream = Stream()
    stream.begin()
    stream.insert(1)
    stream.add(Type.QUERY, query_body("COMMIT"))
    ids, [row] = stream.read()
    assert (ids, row["pos"]) == ([1], stream.pos)


def test_a_skipped_transaction_must_end_where_it_says() -> None:
    """Its length says where it ends, whatever its events are; a stop within it is refused."""
    stream = Stream()
    begins = stream.pos
    beginning = Stream()
    beginning.begin()
    length = beginning.pos - begins + 63
    stream.begin(length=length)
    stream.add(40, bytes(40))
    skip = f"{SOURCE}:1"
    assert stream.read(skip=skip) == ([], [])
    with pytest.raises(BinlogGone, match="no transaction ends"):
        stream.read(skip=skip, stop=stream.pos - 63)
    stream.add(Type.PREVIOUS_GTIDS, bytes(8))
    short = Stream()
    short.begin(length=length - 1)
    short.add(40, bytes(40))
    with pytest.raises(UnsupportedEvent, match="damaged"):
        short.read(skip=skip)
    unsaid = Stream()
    unsaid.raw.append(event(Type.GTID, gtid_body(1), unsaid.pos + 85))
    with pytest.raises(UnsupportedEvent, match=r"without the length|without its length"):
        unsaid.read(skip=skip, stop=unsaid.pos + 85)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (gtid_body(3, here=123), 123),
        (gtid_body(3, here=123, original=77), 77),
        (gtid_body(3, here=123, original=0), 123),
        (gtid_body(3)[:42], SECOND * 1_000_000),
    ],
)
def test_the_commit_time_is_that_of_the_original_server(body: bytes, expected: int) -> None:
    """Else that of this server, else the second of the event."""
    read = events.read_gtid(Event.parse(event(Type.GTID, body, 500), checksums=True))
    assert read.committed_at == expected
    assert read.gtid == Gtid(SOURCE, 3)


def test_a_query_is_read_after_its_status_variables() -> None:
    """Database and text are found; bytes that are not UTF-8 are preserved."""
    body = query_body("ALTER TABLE x", "shop") + b"\xe9"
    found = read_query(Event.parse(event(Type.QUERY, body, 500), checksums=True))
    assert found == Query("shop", "ALTER TABLE x\udce9", 0, 33)


def query_with(status: bytes) -> Query:
    """A query with these status variables."""
    body = struct.pack("<IIBHH", 1, 0, 4, 0, len(status)) + status + b"shop\0BEGIN"
    return read_query(Event.parse(event(Type.QUERY, body, 500), checksums=True))


@pytest.mark.parametrize("status", [b"", b"\1\0", b"\1" + bytes(8) + b"\6", b"\6\7std", b"\x7f\1" + bytes(8)])
def test_settings_that_a_query_event_lacks_are_unknown(status: bytes) -> None:
    """Where a status variable is missing, cut, or after an unknown one, which is named."""
    has_mode = len(status) > 9 and status[0] == 1
    unknown = None if not status else 6 if has_mode else status[0]
    assert query_with(status) == Query("shop", "BEGIN", 0 if has_mode else None, None, unknown=unknown)


# Each status variable that is not a setting, as MySQL 8.0 to 9.7 and MariaDB 10.11 to 12.3 write it
VARIABLES = {
    "flags": "00 00000000",
    "catalog of 5.0": "02 03 73746400",
    "auto-increment": "03 01000100",
    "time zone": "05 06 53595354454d",
    "catalog": "06 03 737464",
    "no catalog": "06 00",
    "names of months": "07 0100",
    "charset of the database": "08 2d00",
    "changed tables": "09 0100000000000000",
    "bytes": "0a 00000000",
    "invoker": "0b 04 726f6f74 09 3132372e302e302e31",
    "no invoker": "0b 00 00",
    "many databases": "0c fe",
    "microseconds": "0d 1c8900",
    "defaults of timestamps": "10 01",
    "xid of DDL": "11 0800000000000000",
    "collation of utf8mb4": "12 ff00",
    "primary key": "13 00",
    "encryption": "14 00",
    "cascades": "15 00",
    "part of a second": "80 1c8900",
    "xid": "81 0800000000000000",
    "flags of the GTID": "82 01",
    "end of an ALTER": "82 04 0800000000000000",
    "collations": "83 05 21000008 2300000a 2d000009 3600000b 3c00000c",
    "no collations": "83 00",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_settings_after_any_status_variable_are_read(name: str) -> None:
    """In any order: MariaDB writes the collations of charsets before the charset of the client."""
    before, mode, charset = bytes.fromhex(VARIABLES[name]), b"\1\4" + bytes(7), b"\4" + b"\x21\0" * 3
    assert query_with(before + mode + charset) == Query("shop", "BEGIN", 4, 33)
    assert query_with(before + b"\x7f" + mode) == Query("shop", "BEGIN", unknown=0x7F)
    for size in range(1, len(before)):
        assert query_with(before[:size]).unknown == before[0]


def test_the_databases_of_a_statement_are_read() -> None:
    """Up to 16 of them; more, or those of the parents of foreign keys, are not known."""
    names = b"\x0c\2shop\0my\xc3\xa9\0" + b"\4" + b"\x21\0" * 3
    assert query_with(names) == Query("shop", "BEGIN", None, 33, databases=frozenset({"shop", "my\u00e9"}))
    assert query_with(b"\x0c\1mysql\0").databases == frozenset({"mysql"})
    assert query_with(b"\x0c\xfe").databases is None
    assert query_with(b"\x0c\0").databases is None


@given(st.binary(max_size=60))
def test_invalid_bytes_are_damage(raw: bytes) -> None:
    """Any bytes are read as an event or raise Damaged."""
    with pytest.raises(Damaged):
        Event.parse(raw, checksums=True)
