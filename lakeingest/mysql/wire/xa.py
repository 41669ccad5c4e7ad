"""Prepared transactions (XA). Their rows are in the binlog at XA PREPARE, and count where XA COMMIT stands. Pure.

In the binlog, XA PREPARE ends one transaction. XA COMMIT or XA ROLLBACK is another transaction, perhaps in another
file, or after a restart of the server. So the rows are passed over at first, and read again at XA COMMIT.
DDL of their tables waits for that: the definition in force at XA COMMIT decodes them.

Source: MySQL manual, "XA Transaction SQL Statements"; MySQL's source documentation, "XA_prepare_event".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lakeingest.core.position import FilePosition
from lakeingest.mysql.wire.events import Damaged, Event
from lakeingest.mysql.wire.grammar import Sign
from lakeingest.mysql.wire.query import read_query
from lakeingest.rows import Part

SETTLES = frozenset({Sign.XA_COMMIT, Sign.XA_ROLLBACK})
_FORMATS = 1 << 32  # a statement may have the format as a signed number
_XID = re.compile(r"x'([0-9a-f]*)',x'([0-9a-f]*)',(-?\d+)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of an XA transaction. It can be used again once the transaction has ended."""

    global_part: bytes
    branch: bytes
    format: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where a prepared transaction is in the binlog: from its GTID event to the end of its XA_PREPARE event."""

    start: FilePosition
    stop: FilePosition


@dataclass(frozen=True, slots=True)
class Stamp:
    """The transaction whose rows these are: its file's number, its place there, its time in µs since 1970, its GTID."""

    file: int
    pos: int
    committed_at: int
    gtid: str | None


@dataclass(slots=True)
class Pending:
    """The transactions that are prepared at some place of the binlog, as far as they were seen before it.

    `ended` are those that have ended and were prepared before the reader began.
    """

    prepared: dict[Xid, Prepared] = field(default_factory=dict)
    ended: set[Xid] = field(default_factory=set)

    def end(self, xid: Xid) -> Prepared | None:
        """The transaction has ended; where it was prepared, None if that was not seen."""
        found = self.prepared.pop(xid, None)
        if found is None:
            self.ended.add(xid)
        return found

    def settle(self, event: Event, sign: Sign, at: FilePosition, replay: "Replay | None") -> Prepared | None:
        """Handle an XA COMMIT or XA ROLLBACK in the transaction that begins at `at`; what is committed there.

        UnsupportedEvent if `replay` does not find it. Without `replay`, None for what was not seen.
        """
        xid, is_committed = xid_of(event), sign is Sign.XA_COMMIT
        if is_committed and replay is not None and xid not in self.prepared:
            self.prepared |= replay.pending(xid, at).prepared
        found = self.end(xid)
        return found if is_committed else None

    def prepare(self, event: Event, found: Prepared) -> Prepared | None:
        """Handle an XA_PREPARE event, which ends the transaction `found`; what is committed there (ONE PHASE)."""
        xid, is_committed = read_prepare(event)
        if is_committed:
            return found
        self.prepared[xid] = found
        return None

    def add_older(self, older: "Pending") -> None:
        """Add what an earlier part of the binlog, which ends where this one begins, left prepared."""
        left = {xid: found for xid, found in older.prepared.items() if xid not in self.ended}
        self.prepared = left | self.prepared
        self.ended |= older.ended


class Replay(Protocol):
    """Reads prepared transactions, which are elsewhere in the binlog."""

    def pending(self, xid: Xid, before: FilePosition) -> Pending:
        """What is prepared at this place, with the transaction `xid`; UnsupportedEvent if the binlog lacks it."""

    def rows(self, found: Prepared, stamp: Stamp) -> Iterator[Part]:
        """The change rows of a prepared transaction, as rows of the transaction `stamp`."""


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
