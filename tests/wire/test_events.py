import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.position import FilePosition, Gtid, GtidSet
from lakeingest.core.schema import Column, Kind, TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import BinlogGone, UnsupportedEvent
from lakeingest.wire import events
from lakeingest.wire.events import ACTIONS, Damaged, Event, Type
from lakeingest.mysql.reference.segment_decoder import decode

SOURCE = "11111111-2222-3333-4444-555555555555"
FILE = "binlog.000009"
START = FilePosition(FILE, 200)
SECOND = 1_700_000_000
SCHEMA = TableSchema(TableId("shop", "orders"), (Column("id", Kind.INT32, "int"),), ("id",))
XID = bytes(8)


def event(event_type: int, body: bytes, end: int = 0, flags: int = 0, *, checksum: bool = True) -> bytes:
    """The bytes of one event as a server sends it."""
    size = 19 + len(body) + 4 * checksum
    data = struct.pack("<IBIIIH", SECOND, event_type, 1, size, end & 0xFFFFFFFF, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def gtid_body(number: int, length: int = 0, original: int | None = None, here: int = 5) -> bytes:
    """The body of a GTID event of MySQL 8."""
    times = here.to_bytes(7, "little")
    if original is not None:
        times = (here | 1 << 55).to_bytes(7, "little") + original.to_bytes(7, "little")
    lengths = b"\xfe" + length.to_bytes(8, "little")
    return b"\1" + uuid.UUID(SOURCE).bytes + struct.pack("<qBqq", number, 2, 0, 1) + times + lengths + bytes(4)


def query_body(text: str, database: str = "elsewhere") -> bytes:
    """The body of a QUERY event with status variables."""
    status = bytes(11)
    fixed = struct.pack("<IIBHH", 1, 0, len(database), 0, len(status))
    return fixed + status + database.encode() + b"\0" + text.encode()


def table_map_body(table_id: int, database: str, name: str) -> bytes:
    """The body of a TABLE_MAP event of a table `id INT`."""
    names = bytes([4, 3]) + b"\2id"
    table = struct.pack("B", len(database)) + database.encode() + b"\0"
    table += struct.pack("B", len(name)) + name.encode() + b"\0"
    return table_id.to_bytes(6, "little") + b"\1\0" + table + bytes([1, 3, 0, 0]) + bytes([1, 1, 0]) + names


def insert_body(table_id: int, *ids: int) -> bytes:
    """The body of a WRITE_ROWS event of a table `id INT`."""
    rows = b"".join(b"\0" + struct.pack("<i", id_) for id_ in ids)
    return table_id.to_bytes(6, "little") + b"\1\0" + b"\2\0" + b"\1\xff" + rows


def format_body(algorithm: int = 1, version: int = 4) -> bytes:
    """The body of a FORMAT_DESCRIPTION event."""
    return struct.pack("<H50sIB", version, b"9.7.4", 0, 19) + bytes(41) + bytes([algorithm])


def rotate_body(file: str, pos: int = 4) -> bytes:
    """The body of a ROTATE event."""
    return struct.pack("<Q", pos) + file.encode()


@dataclass
class Stream:
    """Events one after the other, as a dump from `start` sends them."""

    start: FilePosition = START
    raw: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pos = self.start.pos
        self.made_up(Type.ROTATE, rotate_body(self.start.file, self.start.pos))
        self.made_up(Type.FORMAT_DESCRIPTION, format_body())

    def made_up(self, event_type: int, body: bytes) -> None:
        """Add an event that stands in no file."""
        self.raw.append(event(event_type, body, 0, 0x20))

    def add(self, event_type: int, body: bytes = b"") -> int:
        """Add an event of the file; where it ends."""
        self.pos += 19 + len(body) + 4
        self.raw.append(event(event_type, body, self.pos))
        return self.pos

    def begin(self, number: int = 1, length: int = 0) -> None:
        """Add the beginning of a transaction."""
        self.add(Type.GTID, gtid_body(number, length))
        self.add(Type.QUERY, query_body("BEGIN"))

    def insert(self, *ids: int, database: str = "shop", table_id: int = 5) -> None:
        """Add a table map and rows."""
        self.add(Type.TABLE_MAP, table_map_body(table_id, database, "orders"))
        self.add(Type.WRITE_ROWS, insert_body(table_id, *ids))

    def commit(self) -> None:
        """Add the end of a transaction."""
        self.add(Type.XID, XID)

    def read(
        self,
        stop: int | FilePosition | None = None,
        skip: str = "",
        raw: Iterable[bytes] | None = None,
        start: FilePosition | None = None,
        *,
        gtids: bool = True,
    ) -> tuple[list[int], list[dict[str, Any]]]:
        """The watched table's ids and the log's rows, up to `stop` or the end."""
        if stop is None or isinstance(stop, int):
            stop = FilePosition(FILE, stop or self.pos)
        segment = Segment(SOURCE, 1, start or self.start, stop, GtidSet.parse(skip))
        ids: list[int] = []
        log: list[dict[str, Any]] = []
        sent = self.raw if raw is None else raw
        for table, batch in decode(sent, segment, self.start, {SCHEMA.table: SCHEMA}, 100, gtids=gtids):
            if table is None:
                log += batch.to_pylist()
            else:
                ids += batch["id"].to_pylist()
        return ids, log


def test_a_transaction_comes_with_its_rows() -> None:
    """The bytes that this file makes are read as a server's are."""
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
def test_a_type_that_is_not_in_the_table_is_fatal(event_type: int, *, inside: bool) -> None:
    """Every other type stops the reader, inside and outside of transactions, with its number or name and place."""
    stream = Stream()
    if inside:
        stream.begin()
    at = stream.pos
    stream.add(event_type, bytes(40))
    name, fix = events.refusal(event_type)
    with pytest.raises(UnsupportedEvent) as stopped:
        stream.read(stop=stream.pos + 1)
    assert name in str(stopped.value)
    assert fix in str(stopped.value)
    assert f"{FILE}:{at}" in str(stopped.value)


@pytest.mark.parametrize("event_type", sorted(set(range(256)) - set(ACTIONS) - {27, 41}))
def test_a_made_up_event_of_another_type_is_fatal(event_type: int) -> None:
    """Only rotations, format descriptions and heartbeats come without a place in a file."""
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
        (5, "INTVAR"),
        (24, "version 1"),
        (99, "unknown type 99"),
        (162, "MariaDB's type 162"),
    ],
)
def test_a_refused_type_has_a_name(event_type: int, name: str) -> None:
    """What is known but not built is called by its name."""
    assert name in events.refusal(event_type)[0]


@given(st.data())
def test_an_altered_byte_is_found(data: st.DataObject) -> None:
    """A bit that flips in any event of a file, wherever, is an error; nothing is read from it."""
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


def test_a_wrong_checksum_names_the_place() -> None:
    """The error says which event of which file is damaged."""
    stream = Stream()
    stream.begin()
    at = stream.pos
    stream.insert(1)
    stream.raw[-2] = stream.raw[-2][:-1] + bytes([stream.raw[-2][-1] ^ 1])
    with pytest.raises(UnsupportedEvent, match=rf"damaged at {FILE}:{at}: the checksum"):
        stream.read()


def test_without_checksums_events_are_read_to_their_last_byte() -> None:
    """Where the format description says that there are none, no bytes are cut off."""
    stream = Stream()
    stream.raw[-1] = event(Type.FORMAT_DESCRIPTION, format_body(algorithm=0), 0, 0x20)
    pos = stream.pos
    for event_type, body in (
        (Type.ANONYMOUS_GTID, gtid_body(0)),
        (Type.QUERY, query_body("BEGIN")),
        (Type.TABLE_MAP, table_map_body(1, "shop", "orders")),
        (Type.WRITE_ROWS, insert_body(1, 7)),
        (Type.XID, XID),
    ):
        pos += 19 + len(body)
        stream.raw.append(event(event_type, body, pos, checksum=False))
    ids, [row] = stream.read(stop=pos, gtids=False)
    assert ids == [7]
    assert (row["uuid"], row["tag"], row["number"]) == (None, None, None)


@pytest.mark.parametrize("body", [format_body(algorithm=7), format_body(version=3)])
def test_an_unknown_binlog_format_is_fatal(body: bytes) -> None:
    """A checksum algorithm or binlog version that we do not know is not guessed at."""
    stream = Stream()
    stream.raw[-1] = event(Type.FORMAT_DESCRIPTION, body, 0, 0x20)
    with pytest.raises(UnsupportedEvent, match="damaged"):
        stream.read(stop=stream.pos + 1)


def test_an_anonymous_transaction_is_fatal_where_gtids_are_on() -> None:
    """It could not be judged by its GTID."""
    stream = Stream()
    stream.add(Type.ANONYMOUS_GTID, gtid_body(0))
    with pytest.raises(UnsupportedEvent, match="without a GTID"):
        stream.read()


def test_positions_go_on_beyond_four_gibibytes() -> None:
    """The end of an event has four bytes; the position of a transaction has as many as it needs."""
    stream = Stream(FilePosition(FILE, 2**32 - 100))
    for number in (1, 2):
        stream.begin(number)
        stream.insert(number)
        stream.commit()
    assert stream.pos > 2**32
    ids, log = stream.read()
    assert ids == [1, 2]
    assert log[-1]["pos"] == stream.pos


def test_what_ends_up_to_the_start_is_passed_over() -> None:
    """A dump may begin before the segment; what it must not hold is not looked at there."""
    stream = Stream()
    stream.add(99)
    start = FilePosition(FILE, stream.pos)
    stream.begin()
    stream.insert(1)
    stream.commit()
    ids, log = stream.read(start=start)
    assert (ids, len(log)) == ([1], 1)


@pytest.mark.parametrize("heartbeat", [Type.HEARTBEAT, Type.HEARTBEAT_V2])
def test_a_heartbeat_moves_nothing(heartbeat: Type) -> None:
    """It may carry a position, and is no event of the file."""
    stream = Stream()
    stream.begin()
    stream.raw.append(event(heartbeat, FILE.encode(), stream.pos))
    stream.insert(1)
    stream.commit()
    assert stream.read()[0] == [1]


def test_an_event_that_ends_elsewhere_is_fatal() -> None:
    """A hole in the stream is seen at the next event."""
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


@pytest.mark.parametrize("last", [Type.ROTATE, Type.STOP, None])
def test_files_follow_each_other(last: Type | None) -> None:
    """However a file ends (a crash writes nothing), reading goes on at the beginning of the next."""
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
    """A file that is left out, or comes again, is never passed over in silence."""
    stream = Stream()
    with pytest.raises(BinlogGone, match="gap"):
        stream.read(raw=next_file(stream, file), stop=FilePosition("binlog.000012", 4))


def test_a_file_that_ends_inside_a_transaction_is_fatal() -> None:
    """A transaction has its end in its own file."""
    stream = Stream()
    stream.begin()
    with pytest.raises(BinlogGone, match="gap"):
        stream.read(raw=next_file(stream, "binlog.000010"), stop=FilePosition("binlog.000010", 500))


def test_a_stop_must_be_the_end_of_a_transaction() -> None:
    """Neither a place inside a transaction nor one between events is an end; nor is the end of the stream."""
    stream = Stream()
    stream.begin()
    inside = stream.pos
    stream.insert(1)
    stream.commit()
    for stop in (inside, inside + 1, stream.pos - 1):
        with pytest.raises(BinlogGone, match="no transaction ends"):
            stream.read(stop=stop)
    with pytest.raises(BinlogGone, match="before"):
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
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("BEGIN")), (Type.WRITE_ROWS, insert_body(9, 1))],
        [(Type.GTID, gtid_body(1)), (Type.QUERY, query_body("BEGIN")), (Type.QUERY, query_body("ROLLBACK TO `s`"))],
    ],
)
def test_events_out_of_order_are_fatal(sequence: list[tuple[int, bytes]]) -> None:
    """What may not stand where it stands is not given a meaning."""
    stream = Stream()
    for event_type, body in sequence:
        stream.add(event_type, body)
    with pytest.raises(UnsupportedEvent):
        stream.read(stop=stream.pos + 1)


def test_a_rollback_ends_a_transaction_without_watched_rows() -> None:
    """Rows that a ROLLBACK in the binlog follows are refused for a watched table, and otherwise no business of ours."""
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
    """A transaction of an engine without transactions ends with COMMIT, at its end."""
    stream = Stream()
    stream.begin()
    stream.insert(1)
    stream.add(Type.QUERY, query_body("COMMIT"))
    ids, [row] = stream.read()
    assert (ids, row["pos"]) == ([1], stream.pos)


def test_a_skipped_transaction_must_end_where_it_says() -> None:
    """Its length tells where it ends, whatever it holds; a stop within it is none."""
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
    unsaid.begin()
    with pytest.raises(UnsupportedEvent, match="without the length"):
        unsaid.read(skip=skip, stop=unsaid.pos + 1)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (gtid_body(3, here=123), 123),
        (gtid_body(3, here=123, original=77), 77),
        (gtid_body(3, here=123, original=0), 123),
        (gtid_body(3)[:42], SECOND * 1_000_000),
    ],
)
def test_the_commit_time_is_that_of_the_origin(body: bytes, expected: int) -> None:
    """The origin's commit time, where it is not known this server's, and else the second of the event."""
    read = events.read_gtid(Event.parse(event(Type.GTID, body, 500), checksums=True))
    assert read.committed_at == expected
    assert read.gtid == Gtid(SOURCE, 3)


def test_a_query_is_read_behind_its_status_variables() -> None:
    """Database and text are found; bytes of another charset are kept apart."""
    body = query_body("ALTER TABLE x", "shop") + b"\xe9"
    database, text = events.read_query(Event.parse(event(Type.QUERY, body, 500), checksums=True))
    assert (database, text) == ("shop", "ALTER TABLE x\udce9")


def test_long_names_are_read_right() -> None:
    """Names and enum members of more than 127, 250 and 65535 bytes come whole."""
    names = ["ü" * 64, "b"]
    members = ["x" * 200, "y" * 300, "z" * 70_000]

    def packed(number: int) -> bytes:
        if number < 251:
            return bytes([number])
        if number < 1 << 16:
            return b"\xfc" + number.to_bytes(2, "little")
        return b"\xfd" + number.to_bytes(3, "little")

    def strings(texts: list[str]) -> bytes:
        return b"".join(packed(len(text.encode())) + text.encode() for text in texts)

    enums = packed(len(members)) + strings(members)
    fields = bytes([4]) + packed(len(strings(names))) + strings(names) + bytes([6]) + packed(len(enums)) + enums
    body = bytes(6) + b"\1\0" + b"\4shop\0" + b"\1t\0" + bytes([2, 3, 254, 2, 247, 1, 0]) + fields
    found = events.read_table_map(Event.parse(event(Type.TABLE_MAP, body, 500), checksums=True))
    assert (found.table, found.columns) == (TableId("shop", "t"), 2)
    assert found.names == tuple(names)
    assert found.enum_members == (tuple(members),)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_event_are_damaged(raw: bytes) -> None:
    """Whatever comes, it is read as an event or named damaged."""
    with pytest.raises(Damaged):
        Event.parse(raw, checksums=True)
