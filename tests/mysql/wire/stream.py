"""Binlog events and packets as a server sends them, made byte by byte, and read by either decoder."""

import os
import random
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.mysql.decoders import SLOW, SWITCH
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire.events import ACTIONS, Action, Type
from lakeingest.mysql.wire.segment import SegmentDecoder
from lakeingest.mysql.witness import rows_in
from lakeingest.rows import Part

SOURCE = "11111111-2222-3333-4444-555555555555"
FILE = "binlog.000009"
START = FilePosition(FILE, 200)
SECOND = 1_700_000_000
SCHEMA = TableSchema(TableId("shop", "orders"), (Column("id", Kind.INT32, source_type("int")),), ("id",))
XID = bytes(8)
PACKET_MAX = 0xFFFFFF
EOF = b"\xfe\0\0\2\0"

_LENGTH_AT, _LENGTH_BYTES = -12, 8  # where in the bodies made here a GTID event says its transaction's length
_CHECKSUM_BYTES = 4
Schemas = Mapping[TableId, TableSchema]
Given_co = TypeVar("Given_co", covariant=True)


def event(event_type: int, body: bytes, end: int = 0, flags: int = 0, *, checksum: bool = True) -> bytes:
    """The bytes of one event as a server sends it."""
    size = 19 + len(body) + _CHECKSUM_BYTES * checksum
    data = struct.pack("<IBIIIH", SECOND, event_type, 1, size, end & 0xFFFFFFFF, flags) + body
    return proved(data) if checksum else data


def proved(data: bytes) -> bytes:
    """An event and its checksum."""
    return data + struct.pack("<I", zlib.crc32(data))


def gtid_body(number: int, length: int = 0, original: int | None = None, here: int = 5) -> bytes:
    """The body of a GTID event of MySQL 8."""
    times = here.to_bytes(7, "little")
    if original is not None:
        times = (here | 1 << 55).to_bytes(7, "little") + original.to_bytes(7, "little")
    lengths = b"\xfe" + length.to_bytes(_LENGTH_BYTES, "little")
    return b"\1" + uuid.UUID(SOURCE).bytes + struct.pack("<QBqq", number, 2, 0, 1) + times + lengths + bytes(4)


def domain_gtid_body(number: int, domain: int = 0, *, is_standalone: bool = False) -> bytes:
    """The body of MariaDB's GTID event; its server's id is in the header."""
    return struct.pack("<QIB", number, domain, is_standalone) + bytes(6)


def query_body(text: str, database: str = "elsewhere") -> bytes:
    """The body of a QUERY event with status variables."""
    status = bytes(5) + b"\1" + bytes(8) + b"\6\3std" + b"\4" + struct.pack("<HHH", 33, 33, 8) + b"\5\0"
    fixed = struct.pack("<IIBHH", 1, 0, len(database), 0, len(status))
    return fixed + status + database.encode() + b"\0" + text.encode()


def table_map_body(table_id: int, database: str, name: str) -> bytes:
    """The body of a TABLE_MAP event of a table `id INT`."""
    names = bytes([4, 3]) + b"\2id"
    table = struct.pack("B", len(database)) + database.encode() + b"\0"
    table += struct.pack("B", len(name)) + name.encode() + b"\0"
    return table_id.to_bytes(6, "little") + b"\1\0" + table + bytes([1, 3, 0, 0]) + bytes([1, 1, 0]) + names


def rows_body(table_id: int, *ids: int) -> bytes:
    """The body of a row event of a table `id INT`, of an insert or delete."""
    rows = b"".join(b"\0" + struct.pack("<i", id_) for id_ in ids)
    return table_id.to_bytes(6, "little") + b"\1\0" + b"\2\0" + b"\1\xff" + rows


def payload_body(events: bytes, compression: str | None = "zstd") -> bytes:
    """The body of a TRANSACTION_PAYLOAD event; `broken` says zstd and is not compressed."""
    packed = pa.compress(events, "zstd", asbytes=True) if compression == "zstd" else events
    fields = ((2, b"\0" if compression else b"\xfc\xff\0"), (3, _packed(len(events))), (1, _packed(len(packed))))
    return b"".join(bytes([field, len(value)]) + value for field, value in fields) + b"\0" + packed


def _packed(number: int) -> bytes:
    """A number in MySQL's form of 1 to 9 bytes."""
    return bytes([number]) if number < 251 else b"\xfd" + number.to_bytes(3, "little")


def tagged_gtid_body(number: int, tag: str, length: int) -> bytes:
    """The body of a GTID_TAGGED event."""
    source = b"".join(map(_variable, uuid.UUID(SOURCE).bytes))
    named = (_variable(1), source, _variable(number << 1), _variable(len(tag)) + tag.encode(), b"\0", b"\0")
    fields = [*named, _variable(5), None, _variable(length)]
    body = b"".join(_variable(i) + value for i, value in enumerate(fields) if value is not None)
    return _variable(1) + _variable(len(body)) + _variable(8) + body


def _variable(number: int) -> bytes:
    """A number of 1 to 9 bytes: as many of the lowest bits are ones as bytes follow the first."""
    more = next(more for more in range(9) if more == 8 or number < 1 << 7 * (more + 1))
    if more == 8:
        return b"\xff" + number.to_bytes(8, "little")
    return (number << more + 1 | (1 << more) - 1).to_bytes(more + 1, "little")


def format_body(algorithm: int = 1, version: int = 4) -> bytes:
    """The body of a FORMAT_DESCRIPTION event."""
    return struct.pack("<H50sIB", version, b"9.7.4", 0, 19) + bytes(41) + bytes([algorithm])


def rotate_body(file: str, pos: int = 4) -> bytes:
    """The body of a ROTATE event."""
    return struct.pack("<Q", pos) + file.encode()


@dataclass
class Stream:
    """Events one after the other, as a dump from `start` sends them.

    A GTID event without a length gets that of its transaction, as far as it goes.
    """

    start: FilePosition = START
    checksums: bool = True
    raw: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pos = self.start.pos
        self._open: tuple[int, int] | None = None  # a GTID event that gets a length: its number, where it begins
        self.made_up(Type.ROTATE, rotate_body(self.start.file, self.start.pos))
        self.raw.append(event(Type.FORMAT_DESCRIPTION, format_body(algorithm=int(self.checksums)), 0, 0x20))

    def made_up(self, event_type: int, body: bytes) -> None:
        """Add an event that stands in no file."""
        self.raw.append(event(event_type, body, 0, 0x20))

    def add(self, event_type: int, body: bytes = b"", *, says_end: bool = True) -> int:
        """Add an event of the file; where it ends."""
        begins = self.pos
        self.pos += 19 + len(body) + _CHECKSUM_BYTES * self.checksums
        action = ACTIONS.get(event_type)
        if event_type == Type.DOMAIN_GTID:
            self._open = None
        elif action is Action.GTID:
            says = body[_LENGTH_AT : _LENGTH_AT + _LENGTH_BYTES] if event_type != Type.GTID_TAGGED else b"set"
            self._open = None if says.strip(b"\0") else (len(self.raw), begins)
        self.raw.append(event(event_type, body, self.pos if says_end else 0, checksum=self.checksums))
        if self._open is not None and action is not Action.FILE:
            self._lengthen(*self._open)
        return self.pos

    def _lengthen(self, number: int, begins: int) -> None:
        cut = _CHECKSUM_BYTES * self.checksums
        data = bytearray(self.raw[number][: len(self.raw[number]) - cut])
        at = len(data) + _LENGTH_AT
        data[at : at + _LENGTH_BYTES] = (self.pos - begins).to_bytes(_LENGTH_BYTES, "little")
        self.raw[number] = proved(bytes(data)) if self.checksums else bytes(data)

    def begin(self, number: int = 1, length: int = 0) -> None:
        """Add the beginning of a transaction."""
        self.add(Type.GTID, gtid_body(number, length))
        self.add(Type.QUERY, query_body("BEGIN"))

    def insert(self, *ids: int, database: str = "shop", table_id: int = 5) -> None:
        """Add a table map and rows."""
        self.add(Type.TABLE_MAP, table_map_body(table_id, database, "orders"))
        self.add(Type.WRITE_ROWS, rows_body(table_id, *ids))

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
        """The watched table's ids and the log's rows, up to `stop` or the end, by the decoder that is asked for."""
        if stop is None or isinstance(stop, int):
            stop = FilePosition(FILE, stop or self.pos)
        segment = Segment(SOURCE, 1, start or self.start, stop, GtidSet.parse(skip))
        ids: list[int] = []
        log: list[dict[str, Any]] = []
        sent = self.raw if raw is None else raw
        read = rows_in if os.environ.get(SWITCH) == SLOW else read_pieces
        for table, batch in read(sent, segment, self.start, {SCHEMA.table: SCHEMA}, gtids=gtids):
            if table is None:
                log += batch.to_pylist()
            else:
                ids += batch["id"].to_pylist()
        return ids, log


class Reader(Protocol[Given_co]):
    """What takes bytes and gives out batches: SegmentDecoder, ResultSet."""

    is_done: bool
    error: bytes | None

    def free_space(self) -> memoryview:
        """Where the next bytes go."""
        ...

    def take(self, count: int) -> Iterator[Given_co]:
        """Use so many bytes that stand there."""
        ...


def read_pieces(
    raw: Iterable[bytes], segment: Segment, begin: FilePosition, schemas: Schemas, *, gtids: bool
) -> Iterator[Part]:
    """As the witness's `rows_in`, by the fast decoder: the events as packets, in pieces of any size."""
    data = packets([*(b"\0" + one for one in raw), EOF])
    yield from feed(SegmentDecoder(segment, begin, schemas, gtids=gtids), data, random.Random(len(data)))


def packets(payloads: Iterable[bytes], first: int = 1) -> bytes:
    """Payloads in packets, the first with that number."""
    data, number = b"", first
    for payload in payloads:
        for at in range(0, len(payload) + 1, PACKET_MAX):
            part = payload[at : at + PACKET_MAX]
            data += len(part).to_bytes(3, "little") + bytes([number & 0xFF]) + part
            number += 1
    return data


def feed(reader: Reader[Given_co], data: bytes, cut: random.Random | None = None) -> Iterator[Given_co]:
    """Give the bytes to a reader until it is done, with `cut` in pieces of any size; what it gives out."""
    at = 0
    while at < len(data) and not reader.is_done and reader.error is None:
        room = reader.free_space()
        most = len(data) if cut is None else cut.choice((1, 9, 100, 3000, 100_000))
        piece = data[at : at + min(most, len(room))]
        room[: len(piece)] = piece
        at += len(piece)
        yield from reader.take(len(piece))
