"""Prepared transactions (XA). Their rows are in the binlog at XA PREPARE, and count where XA COMMIT stands. Pure.

In the binlog, XA PREPARE ends one transaction. XA COMMIT or XA ROLLBACK is another transaction, perhaps in another
file, or after a restart of the server. So the rows are passed over at first. At XA COMMIT they are taken from memory,
if there are few and they were passed over by the same reader; else they are read again.
DDL of their tables waits for that: the definition in force at XA COMMIT decodes them.

Source: MySQL manual, "XA Transaction SQL Statements"; MySQL's source documentation, "XA_prepare_event".
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from lakeingest.core.position import FilePosition
from lakeingest.core.prepared import Pending, Prepared, Xid
from lakeingest.core.schema import TableId
from lakeingest.mysql.wire.events import ACTIONS, Action, Damaged, Event, read_table_name
from lakeingest.mysql.wire.grammar import Sign
from lakeingest.mysql.wire.query import read_query
from lakeingest.rows import Part

SETTLES = frozenset({Sign.XA_COMMIT, Sign.XA_ROLLBACK})
KEPT_BYTES = 16 << 20  # of all transactions that are prepared at a time
_ONE_BYTES = 1 << 20  # of one of them
_SIZE_AT, _SIZE_BYTES = 9, 4  # of an event, in its header
_FORMATS = 1 << 32  # a statement may have the format as a signed number
_XID = re.compile(r"x'([0-9a-f]*)',x'([0-9a-f]*)',(-?\d+)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The transaction whose rows these are: its file's number, its place there, its time in µs since 1970, its GTID."""

    file: int
    pos: int
    committed_at: int
    gtid: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that was prepared and is committed now: where its rows are, and the events of them if known."""

    found: Prepared
    events: bytes | None


class Replay(Protocol):
    """Reads prepared transactions, which are elsewhere in the binlog."""

    def find(self, xid: Xid, at: FilePosition) -> Prepared:
        """Where the transaction was prepared that is committed at `at`, and was prepared before the segment.

        UnsupportedEvent if the binlog does not show it.
        """

    def prove_prepared(self, xid: Xid, at: FilePosition) -> None:
        """UnsupportedEvent if the transaction that is rolled back at `at` had ended before that."""

    def rows(self, found: Prepared, at: FilePosition, stamp: Stamp) -> Iterator[Part]:
        """The change rows of a prepared transaction, as rows of the transaction `stamp`, which commits it at `at`."""


class Preparing:
    """The prepared transactions of a segment: which are prepared at the end of the last event, and their events.

    A transaction that was prepared before the segment is found by `replay`. Without it nothing is committed, and
    no events are kept.
    """

    def __init__(self, replay: Replay | None, watched: Collection[TableId]) -> None:
        self.pending = Pending()
        self._replay, self._watched = replay, watched
        self._events, self._tables = bytearray(), set[TableId]()  # of the transaction that is being prepared
        self._is_doubted = False  # whether it has a statement that was passed over, which may be a change
        self._kept, self._bytes = dict[Xid, bytes](), 0

    def begin(self) -> None:
        """A transaction begins. Where it is one that will be prepared, XA START calls this, or a GTID event does."""
        self._is_doubted = False

    def add(self, event: Event) -> None:
        """Add a TABLE_MAP or row event to the transaction that is being prepared."""
        if ACTIONS[event.type] is Action.TABLE:
            self._tables.add(read_table_name(event))
        if self._replay and len(self._events) <= _ONE_BYTES:
            self._events += _bare(event)

    def state(self, event: Event, sign: Sign, at: FilePosition) -> Committed | None:
        """Handle a statement in the transaction that begins at `at`; the prepared transaction that it commits.

        UnsupportedEvent if that is not in the binlog any more.
        """
        if sign in SETTLES:
            return self._settle(event, sign, at)
        if sign is Sign.XA_START:
            self.begin()
        self._is_doubted |= sign is Sign.PASSED
        return None

    def prepare(self, event: Event, start: FilePosition, stop: FilePosition) -> Committed | None:
        """Handle an XA_PREPARE event, which ends a transaction; what is committed there (ONE PHASE)."""
        xid, is_committed = read_prepare(event)
        found = Prepared(start, stop, None if self._is_doubted else frozenset(self._tables))
        events = bytes(self._events) if len(self._events) <= _ONE_BYTES and not self._is_doubted else None
        self._events, self._tables = bytearray(), set()
        if is_committed:
            return self._committed(found, events)
        self.pending.prepare(xid, found)
        if events is not None and self._bytes + len(events) <= KEPT_BYTES and self._committed(found, events):
            self._kept[xid] = events
            self._bytes += len(events)
        return None

    def _settle(self, event: Event, sign: Sign, at: FilePosition) -> Committed | None:
        xid = xid_of(event)
        found, events = self.pending.end(xid), self._kept.pop(xid, None)
        self._bytes -= len(events or b"")
        if self._replay is None:
            return None
        if sign is Sign.XA_ROLLBACK:
            if found is None:
                self._replay.prove_prepared(xid, at)
            return None
        return self._committed(found or self._replay.find(xid, at), events)

    def _committed(self, found: Prepared, events: bytes | None) -> Committed | None:
        """What is committed, if tables that are read have rows in it."""
        return Committed(found, events) if self._replay and found.changed(self._watched) else None


def xid_of(event: Event) -> Xid:
    """The transaction that an XA statement is about, in a QUERY event; Damaged for any other statement."""
    found = _XID.search(read_query(event).text)
    if found is None:
        raise Damaged("an XA statement without the name of its transaction")
    global_part, branch, format_ = found.groups()
    try:
        return Xid(bytes.fromhex(global_part), bytes.fromhex(branch), int(format_) % _FORMATS)
    except ValueError as error:
        raise Damaged(f"an XA statement: {error}") from error


def read_prepare(event: Event) -> tuple[Xid, bool]:
    """The transaction that an XA_PREPARE event ends, and whether it is committed there (ONE PHASE)."""
    body = event.body
    is_committed, format_ = bool(body.number(1)), body.number(4)
    sizes = body.number(4), body.number(4)
    global_part, branch = (body.take(size) for size in sizes)
    return Xid(global_part, branch, format_), is_committed


def _bare(event: Event) -> bytes:
    """The bytes of an event without its checksum, as in a TRANSACTION_PAYLOAD event."""
    data = event.data
    return data[:_SIZE_AT] + len(data).to_bytes(_SIZE_BYTES, "little") + data[_SIZE_AT + _SIZE_BYTES :]
