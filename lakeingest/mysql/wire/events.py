"""Reads headers and checksums of binlog events, and says what the decoder does with each type of event. Pure.

This module reads only the fields that decide about positions and transactions. An event whose type is not in `ACTIONS`
is refused by the type's name, because an event that is skipped by mistake may be a lost row.
"""

import enum
import hashlib
import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from lakeingest.core.binlog.position import DomainGtid, Gtid, file_number
from lakeingest.core.tables.schema import TableId

_HEADER = struct.Struct("<IBIIIH")  # seconds, type, server id, size, end position (lowest 32 bits), flags
_CHECKSUM = struct.Struct("<I")
# Offsets in the header: the id of the server that wrote the event, and the flags
_SERVER_AT, _FLAGS_AT = 5, 17
ARTIFICIAL = 0x20
# Flags of a DOMAIN_GTID event: the transaction is a single statement without BEGIN; the transaction is prepared (XA)
STANDALONE, PREPARED = 1, 0x40
# Of a row event: the offset of its flags after the header, and the flag which says that changes by foreign keys are row
# events, too. MySQL 9.6 and newer set this flag if the server, and not the storage engine, carries out foreign keys
# (measured; events that a replica has applied have the flag, too)
ROW_FLAGS, LOGS_CASCADES = 6, 0x10
_CRC32 = 1
_BINLOG_VERSION = 4
HAS_ORIGINAL = 1 << 55  # in the first commit timestamp of a GTID event
# The first numbers that are too great:
_NUMBERS_END = 1 << 63  # for the number of a GTID
TIMES_END = 1 << 55  # for a commit time
LENGTHS_END = 1 << 62  # for a length that is added to a position, or a position
_MARIADB = 160  # the first type of MariaDB


class Damaged(ValueError):
    """The bytes are not in the form in which the server writes them."""


class Type(enum.IntEnum):
    """The event types that the decoder handles, with their numbers; from 160 on they are MariaDB's own."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    HEARTBEAT = 27
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    DOMAIN_GTID = 162
    GTID_LIST = 163


HEARTBEATS = frozenset({Type.HEARTBEAT, Type.HEARTBEAT_V2})


class Action(enum.Enum):
    """The decoder's action for an event."""

    FILE = enum.auto()  # occurs between transactions, and is skipped
    GTID = enum.auto()
    QUERY = enum.auto()
    TABLE = enum.auto()
    ROWS = enum.auto()
    COMMIT = enum.auto()
    PREPARE = enum.auto()  # ends a transaction that XA COMMIT or XA ROLLBACK decides about
    PAYLOAD = enum.auto()  # a compressed transaction, without its GTID event
    PASS = enum.auto()  # changes no row, may occur anywhere


ACTIONS: dict[int, Action] = {
    Type.FORMAT_DESCRIPTION: Action.FILE,
    Type.STOP: Action.FILE,
    Type.ROTATE: Action.FILE,
    Type.PREVIOUS_GTIDS: Action.FILE,
    Type.GTID: Action.GTID,
    Type.ANONYMOUS_GTID: Action.GTID,
    Type.GTID_TAGGED: Action.GTID,
    Type.DOMAIN_GTID: Action.GTID,
    Type.BINLOG_CHECKPOINT: Action.FILE,
    Type.GTID_LIST: Action.FILE,
    Type.QUERY: Action.QUERY,
    Type.TABLE_MAP: Action.TABLE,
    Type.WRITE_ROWS: Action.ROWS,
    Type.UPDATE_ROWS: Action.ROWS,
    Type.DELETE_ROWS: Action.ROWS,
    Type.WRITE_ROWS_V1: Action.ROWS,
    Type.UPDATE_ROWS_V1: Action.ROWS,
    Type.DELETE_ROWS_V1: Action.ROWS,
    Type.TRANSACTION_PAYLOAD: Action.PAYLOAD,
    Type.XID: Action.COMMIT,
    Type.XA_PREPARE: Action.PREPARE,
    Type.ROWS_QUERY: Action.PASS,
    Type.ANNOTATE_ROWS: Action.PASS,
    Type.TRANSACTION_CONTEXT: Action.PASS,
    Type.VIEW_CHANGE: Action.PASS,
    # these three come before a change in statement format; the QUERY event of the change is refused if need be
    Type.INTVAR: Action.PASS,
    Type.RAND: Action.PASS,
    Type.USER_VAR: Action.PASS,
}

_STATEMENT = "set binlog_format=ROW in every session of the source"
_COMPRESSED = ("a compressed event", "set log_bin_compress=OFF on the source")

# type -> (its name, the change on the source that avoids it)
REFUSED: dict[int, tuple[str, str]] = {
    17: ("a BEGIN_LOAD_QUERY event (LOAD DATA in statement format)", _STATEMENT),
    18: ("an EXECUTE_LOAD_QUERY event (LOAD DATA in statement format)", _STATEMENT),
    26: ("an INCIDENT event (changes are missing)", "find the incident in the source's error log"),
    39: ("a PARTIAL_UPDATE_ROWS event (parts of JSON values)", "set binlog_row_value_options='' in every session"),
    164: ("a START_ENCRYPTION event", "set encrypt_binlog=OFF on the source"),
    **dict.fromkeys(range(165, 172), _COMPRESSED),
}


def name_and_fix(event_type: int) -> tuple[str, str]:
    """For a type that is not in ACTIONS: its name for messages, and the change on the source that avoids the type."""
    if event_type in REFUSED:
        return REFUSED[event_type]
    whose = "MariaDB's" if event_type >= _MARIADB else "unknown"
    return f"an event of {whose} type {event_type}", "report this type to the lakeingest project"


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `data` has its bytes with the header and without the checksum.

    `size` is its size in the file, with the checksum. `end` has the lowest 32 bits of its end position in the file, 0
    if the header has none. `is_made_up` is True for an event that the server generates for the reader, and that is
    in no file; and for an event without end position that MariaDB 11 writes within a transaction.
    """

    type: int
    seconds: int
    size: int
    end: int
    is_made_up: bool
    data: bytes

    @property
    def is_artificial(self) -> bool:
        """Whether the event has the flag ARTIFICIAL, which the server sets on events that it makes up."""
        return bool(self.data[_FLAGS_AT] & ARTIFICIAL)

    @property
    def payload(self) -> bytes:
        """The bytes after the header."""
        return self.data[_HEADER.size :]

    @property
    def body(self) -> "Cursor":
        """A cursor at the start of the bytes after the header."""
        return Cursor(self.data, _HEADER.size)

    @classmethod
    def parse(cls, raw: bytes, *, checksums: bool) -> Self:
        """Read an event as the server sends it. Raises Damaged for a wrong size, checksum or format."""
        if len(raw) < _HEADER.size:
            raise Damaged(f"an event of {len(raw)} bytes")
        seconds, event_type, _, size, end, flags = _HEADER.unpack_from(raw)
        if size != len(raw):
            raise Damaged(f"an event of {len(raw)} bytes says that it has {size}")
        is_format = event_type == Type.FORMAT_DESCRIPTION  # it always has bytes for a checksum, and says if it has one
        has_checksum = has_checksums(raw) if is_format else checksums
        data = raw[: -_CHECKSUM.size] if is_format or checksums else raw
        if has_checksum and not ends_with_checksum(raw):
            raise Damaged(f"the checksum of an event of type {event_type} is wrong")
        is_made_up = not end or bool(flags & ARTIFICIAL) or event_type in HEARTBEATS
        return cls(event_type, seconds, size, end, is_made_up, data)

    @classmethod
    def from_data(cls, data: bytes) -> Self:
        """Make an event of its `data`: bytes without a checksum, whose size was proved before."""
        seconds, event_type, _, size, end, _ = _HEADER.unpack_from(data)
        return cls(event_type, seconds, size, end, is_made_up=False, data=data)


class Cursor:
    """Reads numbers and strings from `data`, in order, from the offset `at` on.

    The methods raise Damaged if the bytes end too early.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self._at = data, at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        begin, end = self._at, self._at + size
        if end > len(self._data):
            raise Damaged("an event ends too early")
        self._at = end
        return self._data[begin:end]

    def number(self, size: int) -> int:
        """An unsigned number of `size` bytes, least byte first."""
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        """A length-encoded unsigned number, of 1 to 9 bytes, in MySQL's protocol."""
        first = self.number(1)
        sizes = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        return self.number(sizes[first]) if first in sizes else first

    def variable(self) -> int:
        """An unsigned number of 1 to 9 bytes, in the format of `mysql::serialization`.

        The number of 1 bits at the low end of the first byte is the number of further bytes.
        """
        first = self.number(1)
        more = (~first & (first + 1)).bit_length() - 1  # the number of further bytes: the index of the lowest 0 bit
        value = first | self.number(more) << 8 if more else first
        return value >> 8 if more == 8 else value >> (more + 1)  # without the 1 bits and the 0 bit, if there is one

    def text(self, size: int) -> str:
        """A string of `size` bytes."""
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise Damaged(f"a name that is not UTF-8: {error}") from error

    @property
    def left(self) -> int:
        """The number of bytes that follow."""
        return len(self._data) - self._at


def ends_with_checksum(raw: bytes) -> bool:
    """Whether the last four bytes of an event are the checksum of its other bytes."""
    body = raw[: -_CHECKSUM.size]
    return bool(zlib.crc32(body) == int.from_bytes(raw[len(body) :], "little"))


def digest(raw: bytes) -> str:
    """A hash of an event's bytes, as the server sends them."""
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def has_checksums(raw: bytes) -> bool:
    """Whether this FORMAT_DESCRIPTION event says that its file has checksums. Raises Damaged for an unknown format."""
    algorithm = raw[-1 - _CHECKSUM.size]  # the byte before the checksum
    version = Cursor(raw, _HEADER.size).number(2)
    if algorithm not in {0, _CRC32} or version != _BINLOG_VERSION:
        raise Damaged(f"binlog version {version} with checksum algorithm {algorithm}")
    return algorithm == _CRC32


def read_rotate(event: Event) -> tuple[str, int]:
    """The file that a ROTATE event names, and the position at which the binlog continues in it. Raises Damaged."""
    body = event.body
    pos, file = body.number(8), body.text(body.left)
    try:
        file_number(file)
    except ValueError as error:
        raise Damaged(str(error)) from error
    if pos >= LENGTHS_END:
        raise Damaged(f"a file that continues at {pos}")
    return file, pos


@dataclass(frozen=True, slots=True)
class Beginning:
    """The fields of a GTID event about its transaction; `gtid` is None if the transaction has no GTID.

    Raises Damaged for numbers that no server writes.
    """

    gtid: Gtid | DomainGtid | None
    committed_at: int  # in µs since 1970: on the server that committed it first, if that time is known
    length: int  # bytes from the event's beginning to the transaction's end; 0 if the event does not have the length
    is_begin: bool = False  # the event also is the BEGIN
    is_xa_start: bool = False  # the event also is the XA START

    def __post_init__(self) -> None:
        number = 1 if self.gtid is None else self.gtid.number  # 1: passes the test
        if not (0 < number < _NUMBERS_END and self.committed_at < TIMES_END and self.length < LENGTHS_END):
            raise Damaged("a GTID event with impossible numbers")


def read_gtid(event: Event) -> Beginning:
    """Read a GTID event of any type. If it has no commit time, its header's time is the commit time.

    Raises Damaged for an event that is cut or has impossible numbers.
    """
    if event.type == Type.GTID_TAGGED:
        return _read_tagged_gtid(event)
    if event.type == Type.DOMAIN_GTID:
        return _read_domain_gtid(event)
    body = event.body
    body.take(1)  # flags
    server, number = str(uuid.UUID(bytes=body.take(16))), body.number(8)
    gtid = Gtid(server, number) if event.type == Type.GTID else None
    body.take(17)  # the logical clock
    if not body.left:  # an older server writes neither commit times nor the length
        return Beginning(gtid, event.seconds * 1_000_000, length=0)
    committed_here = body.number(7)
    committed_first = body.number(7) if committed_here & HAS_ORIGINAL else 0  # 0: not known, as in the event
    return Beginning(gtid, committed_first or (committed_here & ~HAS_ORIGINAL), length=body.packed())


class _Tagged(enum.IntEnum):
    """The fields of a GTID_TAGGED event up to the last one that is read."""

    FLAGS = 0
    UUID = 1
    NUMBER = 2
    TAG = 3
    LAST_COMMITTED = 4
    SEQUENCE_NUMBER = 5
    COMMITTED_AT = 6
    ORIGINAL_COMMITTED_AT = 7
    LENGTH = 8


def _read_tagged_gtid(event: Event) -> Beginning:
    """Read a GTID_TAGGED event. Raises Damaged if it lacks or garbles a field.

    Source: MySQL's source documentation, "mysql::serialization" and "Gtid_log_event".
    """
    body = event.body
    for _ in range(3):  # version, size, the last field that must not be ignored
        body.variable()
    readers: dict[int, Callable[[], Any]] = {  # all other fields are numbers
        _Tagged.UUID: lambda: bytes(body.variable() for _ in range(16)),
        _Tagged.TAG: lambda: body.text(body.variable()),
    }
    fields: dict[int, Any] = {}
    try:
        while body.left and len(fields) < len(_Tagged):
            field = body.variable()
            if field > _Tagged.LENGTH:  # the fields are in order: this one and those after it are not needed
                break
            read_field = readers.get(field, body.variable)
            fields[field] = read_field()
        number = fields[_Tagged.NUMBER] >> 1  # a signed number: its lowest bit is the sign
        gtid = Gtid(str(uuid.UUID(bytes=fields[_Tagged.UUID])), number, fields[_Tagged.TAG])
        committed_here = fields[_Tagged.COMMITTED_AT]
        return Beginning(gtid, fields.get(_Tagged.ORIGINAL_COMMITTED_AT) or committed_here, fields[_Tagged.LENGTH])
    except (KeyError, ValueError) as error:
        raise Damaged(f"a GTID_TAGGED event that lacks or garbles a field: {error}") from error


def _read_domain_gtid(event: Event) -> Beginning:
    """Read a GTID event of MariaDB. Source: MariaDB's documentation, "GTID_EVENT"."""
    body = event.body
    number, domain, flags = body.number(8), body.number(4), body.number(1)
    gtid = DomainGtid(domain, Cursor(event.data, _SERVER_AT).number(4), number)
    is_xa_start = bool(flags & PREPARED)
    is_begin = not (is_xa_start or flags & STANDALONE)  # STANDALONE: a single statement follows
    return Beginning(gtid, event.seconds * 1_000_000, length=0, is_begin=is_begin, is_xa_start=is_xa_start)


def logs_cascades(event: Event) -> bool:
    """Whether a row event has the flag LOGS_CASCADES; False if the event is too short to have flags."""
    flags = event.payload[ROW_FLAGS : ROW_FLAGS + 1]  # one byte, or none
    return bool(flags) and bool(flags[0] & LOGS_CASCADES)


def read_table_id(event: Event) -> int:
    """The table id of a TABLE_MAP or row event."""
    return event.body.number(6)


def read_table_name(event: Event) -> TableId:
    """The table of a TABLE_MAP event."""
    return _table_name(Cursor(event.data, _HEADER.size + 8))  # after table id and flags


def _table_name(body: Cursor) -> TableId:
    database = body.text(body.number(1))
    body.take(1)  # a NUL
    name = body.text(body.number(1))
    body.take(1)  # a NUL
    return TableId(database, name)
