"""Follows prepared transactions (XA): their rows are before XA PREPARE, and take effect at XA COMMIT. Pure.

In the binlog, XA PREPARE ends one transaction. XA COMMIT or XA ROLLBACK is another transaction, perhaps in another
file, or after a restart of the server. So a reader does not decode the rows at XA PREPARE. It keeps the events of a
small transaction in memory. At XA COMMIT it decodes the rows from the kept events, or else from the binlog's events.
The rows are decoded by the table's definition at XA COMMIT. The table had the same definition at XA PREPARE, because
DDL waits for prepared transactions.

Source: MySQL manual, "XA Transaction SQL Statements"; MySQL's source documentation, "XA_prepare_event".
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.copies.prepared import Pending, Prepared, Xid
from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.wire.events import ACTIONS, Action, Damaged, Event, read_table_name
from lakeingest.mysql.wire.grammar import Sign
from lakeingest.mysql.wire.query import read_query
from lakeingest.rows import Part

ENDS = frozenset({Sign.XA_COMMIT, Sign.XA_ROLLBACK})
KEPT_BYTES = 16 << 20  # at most, of the events of all transactions that are prepared at a time
_TRANSACTION_BYTES = 1 << 20  # at most, of the events of one prepared transaction
_SIZE_AT, _SIZE_BYTES = 9, 4  # the offset and the bytes of an event's size in its header
_FORMATS = 1 << 32  # the number of formats: in a statement a format is a signed number, in an event an unsigned number
_XID = re.compile(r"x'([0-9a-f]*)',x'([0-9a-f]*)',(-?\d+)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The transaction that rows belong to: the parts of its place, its commit time and its GTID."""

    file: int  # the number of the file
    pos: int
    committed_at: int  # in µs since 1970
    gtid: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """A prepared transaction that is committed: `prepared` says where its rows are in the binlog.

    `events` are its TABLE_MAP and row events, None if they were not kept in memory.
    """

    prepared: Prepared
    events: bytes | None


class Replay(Protocol):
    """Reads prepared transactions from the binlog, also from the binlog before the segment."""

    def find(self, xid: Xid, at: FilePosition) -> Prepared:
        """Find a transaction that was prepared before the segment. The segment commits it at `at`.

        Raises UnsupportedEvent if the binlog does not have the transaction's XA PREPARE.
        """

    def prove_prepared(self, xid: Xid, at: FilePosition) -> None:
        """Raise UnsupportedEvent if the transaction, which is rolled back at `at`, had ended before `at`."""

    def rows(self, prepared: Prepared, at: FilePosition, stamp: Stamp) -> Iterator[Part]:
        """The change rows of a prepared transaction, as rows of the transaction `stamp`, which commits them at `at`."""


class Preparing:
    """The transactions that are prepared at the reader's position (`pending`), and the events of small ones (`_kept`).

    Rows of tables in `watched` are read. `replay` finds a transaction that was prepared before the segment. Without
    `replay` the methods return no committed transaction, and no events are kept.
    """

    def __init__(self, replay: Replay | None, watched: Collection[TableId]) -> None:
        self.pending = Pending()
        self._replay, self._watched = replay, watched
        # The next three are of the transaction between XA START and XA PREPARE:
        self._events, self._tables = bytearray(), set[TableId]()
        self._has_passed_statement = False  # a statement that was passed over may be a change of any table
        # The events of prepared transactions, and the sum of their sizes:
        self._kept, self._kept_bytes = dict[Xid, bytes](), 0

    def begin(self) -> None:
        """Begin a transaction at XA START, which is a statement or a part of MariaDB's GTID event."""
        self._has_passed_statement = False

    def add(self, event: Event) -> None:
        """Add a TABLE_MAP or row event to the transaction that is being prepared."""
        if ACTIONS[event.type] is Action.TABLE:
            self._tables.add(read_table_name(event))
        # beyond the limit the events are incomplete, and `prepare` drops them
        if self._replay and len(self._events) <= _TRANSACTION_BYTES:
            self._events += _without_checksum(event)

    def handle(self, event: Event, sign: Sign, at: FilePosition) -> Committed | None:
        """Handle a statement of the transaction that begins at `at`; return the prepared transaction that it commits.

        None if the statement is no XA COMMIT, or the committed transaction has no rows of tables that are read. Raises
        UnsupportedEvent if the statement ends a transaction that the binlog no longer has as prepared.
        """
        if sign in ENDS:
            return self._end_prepared(event, sign, at)
        if sign is Sign.XA_START:
            self.begin()
        self._has_passed_statement |= sign is Sign.PASSED
        return None

    def prepare(self, event: Event, start: FilePosition, stop: FilePosition) -> Committed | None:
        """Handle an XA_PREPARE event, which ends the transaction from `start` to `stop`.

        Returns the transaction if the event also commits it (ONE PHASE) and it has rows of tables that are read; None
        otherwise.
        """
        xid, is_committed = read_prepare(event)
        # with None, the tables are not known: the transaction may have changed any table
        prepared = Prepared(start, stop, None if self._has_passed_statement else frozenset(self._tables))
        # beyond the limit, `add` adds no more events; a statement that was passed over is never added
        has_all_events = len(self._events) <= _TRANSACTION_BYTES and not self._has_passed_statement
        events = bytes(self._events) if has_all_events else None
        self._events, self._tables = bytearray(), set()
        if is_committed:
            return self._committed_if_read(prepared, events)
        self.pending.prepare(xid, prepared)
        # keep the events only as far as the memory allows, and only if the rows would be read at XA COMMIT
        has_space = self._kept_bytes + len(events or b"") <= KEPT_BYTES
        if events is not None and has_space and self._committed_if_read(prepared, events):
            self._kept[xid] = events
            self._kept_bytes += len(events)
        return None

    def _end_prepared(self, event: Event, sign: Sign, at: FilePosition) -> Committed | None:
        """End a prepared transaction; return it at XA COMMIT, if it has rows of tables that are read, else None."""
        xid = xid_of(event)
        prepared = self.pending.end(xid)  # None if it was prepared before the segment
        events = self._kept.pop(xid, None)
        self._kept_bytes -= len(events or b"")
        if self._replay is None:
            return None
        if sign is Sign.XA_ROLLBACK:
            if prepared is None:  # it may have ended before the segment, too
                self._replay.prove_prepared(xid, at)
            return None
        return self._committed_if_read(prepared or self._replay.find(xid, at), events)

    def _committed_if_read(self, prepared: Prepared, events: bytes | None) -> Committed | None:
        """The transaction with its events; None if it has no rows of tables that are read, or without `replay`."""
        return Committed(prepared, events) if self._replay and prepared.changed(self._watched) else None


def xid_of(event: Event) -> Xid:
    """The name of the transaction in an XA statement of a QUERY event. Raises Damaged for any other statement."""
    match = _XID.search(read_query(event).text)
    if match is None:
        raise Damaged("an XA statement without the name of its transaction")
    global_part, branch, format_ = match.groups()
    try:
        return Xid(bytes.fromhex(global_part), bytes.fromhex(branch), int(format_) % _FORMATS)
    except ValueError as error:
        raise Damaged(f"an XA statement: {error}") from error


def read_prepare(event: Event) -> tuple[Xid, bool]:
    """The name of the transaction that an XA_PREPARE event ends, and whether the event commits it (ONE PHASE)."""
    body = event.body
    is_committed = bool(body.number(1))
    format_ = body.number(4)
    global_size = body.number(4)
    branch_size = body.number(4)
    global_part = body.take(global_size)
    branch = body.take(branch_size)
    return Xid(global_part, branch, format_), is_committed


def _without_checksum(event: Event) -> bytes:
    """The bytes of an event without its checksum, and with the size that its header then must have."""
    data = event.data
    return data[:_SIZE_AT] + len(data).to_bytes(_SIZE_BYTES, "little") + data[_SIZE_AT + _SIZE_BYTES :]
