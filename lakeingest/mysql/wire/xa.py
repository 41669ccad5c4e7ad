"""Follows prepared transactions (XA): their rows are in the binlog at XA PREPARE, and count at XA COMMIT. Pure.

In the binlog, XA PREPARE ends one transaction. XA COMMIT or XA ROLLBACK is another transaction, perhaps in another
file, or after a restart of the server. So the rows are passed over at first. At XA COMMIT they are taken from memory,
if there are few and they were passed over by the same reader; else they are read again. The definition in force at XA
COMMIT decodes them, since DDL of a table waits for the end of its prepared transactions.

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

ENDS = frozenset({Sign.XA_COMMIT, Sign.XA_ROLLBACK})
KEPT_BYTES = 16 << 20  # of all transactions that are prepared at a time
_ONE_BYTES = 1 << 20  # of one prepared transaction
_SIZE_AT, _SIZE_BYTES = 9, 4  # of an event, in its header
_FORMATS = 1 << 32  # a statement may have the format as a signed number
_XID = re.compile(r"x'([0-9a-f]*)',x'([0-9a-f]*)',(-?\d+)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The transaction that rows belong to: its file's number, its place there, its time in µs since 1970, its GTID."""

    file: int
    pos: int
    committed_at: int
    gtid: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """A prepared transaction that is committed now: `found` is the place of its rows, `events` their events if kept."""

    found: Prepared
    events: bytes | None


class Replay(Protocol):
    """Reads prepared transactions at other places of the binlog."""

    def find(self, xid: Xid, at: FilePosition) -> Prepared:
        """Where a transaction was prepared: before the segment. The segment commits it at `at`.

        Raises UnsupportedEvent if the binlog has no XA PREPARE of it.
        """

    def prove_prepared(self, xid: Xid, at: FilePosition) -> None:
        """Raise UnsupportedEvent if the transaction that is rolled back at `at` had ended before."""

    def rows(self, prepared: Prepared, at: FilePosition, stamp: Stamp) -> Iterator[Part]:
        """The change rows of a prepared transaction, as rows of the transaction `stamp`, which commits it at `at`."""


class Preparing:
    """The transactions that are prepared at the end of the segment's last event, and the events of small ones.

    `replay` finds a transaction that was prepared before the segment. Without `replay` nothing is committed, and no
    events are kept.
    """

    def __init__(self, replay: Replay | None, watched: Collection[TableId]) -> None:
        self.pending = Pending()
        self._replay, self._watched = replay, watched
        self._events, self._tables = bytearray(), set[TableId]()  # of the transaction that is being prepared
        self._is_doubted = False  # whether it has a statement that was passed over, which may be a change
        self._kept, self._bytes = dict[Xid, bytes](), 0

    def begin(self) -> None:
        """Begin a transaction that will be prepared. XA START and a GTID event that is XA START call it."""
        self._is_doubted = False

    def add(self, event: Event) -> None:
        """Add a TABLE_MAP or row event to the transaction that is being prepared."""
        if ACTIONS[event.type] is Action.TABLE:
            self._tables.add(read_table_name(event))
        if self._replay and len(self._events) <= _ONE_BYTES:
            self._events += _bare(event)

    def state(self, event: Event, sign: Sign, at: FilePosition) -> Committed | None:
        """Handle a statement in the transaction that begins at `at`; return the prepared transaction that it commits.

        None if it commits none whose rows are read. Raises UnsupportedEvent if the binlog has lost that transaction.
        """
        if sign in ENDS:
            return self._end(event, sign, at)
        if sign is Sign.XA_START:
            self.begin()
        self._is_doubted |= sign is Sign.PASSED
        return None

    def prepare(self, event: Event, start: FilePosition, stop: FilePosition) -> Committed | None:
        """Handle an XA_PREPARE event, which ends the transaction from `start` to `stop`.

        Returns the transaction if the event also commits it (ONE PHASE).
        """
        xid, is_committed = read_prepare(event)
        prepared = Prepared(start, stop, None if self._is_doubted else frozenset(self._tables))
        events = bytes(self._events) if len(self._events) <= _ONE_BYTES and not self._is_doubted else None
        self._events, self._tables = bytearray(), set()
        if is_committed:
            return self._committed(prepared, events)
        self.pending.prepare(xid, prepared)
        # kept only if they are few and their tables are read
        if events is not None and self._bytes + len(events) <= KEPT_BYTES and self._committed(prepared, events):
            self._kept[xid] = events
            self._bytes += len(events)
        return None

    def _end(self, event: Event, sign: Sign, at: FilePosition) -> Committed | None:
        """End a prepared transaction at XA COMMIT or XA ROLLBACK; return it if it commits rows of read tables."""
        xid = xid_of(event)
        prepared, events = self.pending.end(xid), self._kept.pop(xid, None)
        self._bytes -= len(events or b"")
        if self._replay is None:
            return None
        if sign is Sign.XA_ROLLBACK:
            if prepared is None:
                self._replay.prove_prepared(xid, at)
            return None
        return self._committed(prepared or self._replay.find(xid, at), events)

    def _committed(self, prepared: Prepared, events: bytes | None) -> Committed | None:
        """The transaction to commit; None if it has no rows of tables that are read."""
        return Committed(prepared, events) if self._replay and prepared.changed(self._watched) else None


def xid_of(event: Event) -> Xid:
    """The transaction that an XA statement in a QUERY event names. Raises Damaged for any other statement."""
    match = _XID.search(read_query(event).text)
    if match is None:
        raise Damaged("an XA statement without the name of its transaction")
    global_part, branch, format_ = match.groups()
    try:
        return Xid(bytes.fromhex(global_part), bytes.fromhex(branch), int(format_) % _FORMATS)
    except ValueError as error:
        raise Damaged(f"an XA statement: {error}") from error


def read_prepare(event: Event) -> tuple[Xid, bool]:
    """The transaction that an XA_PREPARE event ends, and whether the event commits it (ONE PHASE)."""
    body = event.body
    is_committed, format_ = bool(body.number(1)), body.number(4)
    sizes = body.number(4), body.number(4)
    global_part, branch = (body.take(size) for size in sizes)
    return Xid(global_part, branch, format_), is_committed


def _bare(event: Event) -> bytes:
    """The bytes of an event without its checksum, as in a TRANSACTION_PAYLOAD event."""
    data = event.data
    return data[:_SIZE_AT] + len(data).to_bytes(_SIZE_BYTES, "little") + data[_SIZE_AT + _SIZE_BYTES :]
