"""The world of `tests.core.world` with prepared transactions (XA): rows are in the binlog before they count.

A reader of a segment passes over what is prepared. At XA COMMIT it looks for the rows, also before its segment. What is
prepared at the end of a segment is durable with it, so that nobody has to look further back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lakeingest.core.copies.prepared import Pending, Prepared, Xid
from lakeingest.core.tables.change import ChangeRow
from tests.core.world import ORDERS, TRANSACTIONS_MAX, Source, Statement, Table, Transaction, World

NAMES = (Xid(b"x", b"", 1), Xid(b"y", b"\0", 1))  # each is used again and again


@dataclass(frozen=True)
class XaPrepare(Transaction):
    """Rows that do not count yet."""

    xid: Xid
    rows: tuple[ChangeRow, ...]


@dataclass(frozen=True)
class XaEnd(Transaction):
    """The end of what was prepared. The binlog has no rows here."""

    xid: Xid
    is_committed: bool


class Lost(Exception):
    """The binlog has an XA COMMIT, and not its XA PREPARE any more: the table stops."""


class PreparingSource(Source):
    """A server with prepared transactions, which hold the locks of their rows."""

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        super().__init__(rows, gtids=gtids)
        self.open = dict[Xid, XaPrepare]()
        self.purged = 0  # transactions that the binlog no longer has

    def flush(self, statements: list[Statement], *, rotate: bool) -> None:
        """As the server does it; locks of what is prepared are waited for."""
        keys = {key for statement in statements for key in statement if key is not None}
        if not any(keys & {int(row.key[0]) for row in one.rows} | keys & one.keys for one in self.open.values()):
            super().flush(statements, rotate=rotate)

    def prepare(self, xid: Xid, statements: list[Statement], *, rotate: bool) -> None:
        """A client prepares a transaction: its rows are written, and the table stays."""
        before = self.written
        self.flush(statements, rotate=rotate)
        if self.written > before:
            last = self.log[-1]
            self.open[xid] = XaPrepare(last.gtid, last.place, last.keys, (), xid, last.changes)
            self.log[-1], self.tables[-1] = self.open[xid], self.tables[-2]

    def end(self, xid: Xid, *, is_committed: bool) -> None:
        """A client commits it, or rolls it back."""
        prepared, table = self.open.pop(xid), dict(self.tables[-1])
        self.flush([], rotate=False)
        last = self.log[-1]
        self.log[-1] = XaEnd(last.gtid, last.place, prepared.keys, (), xid, is_committed)
        for row in prepared.rows if is_committed else ():
            key = int(row.key[0])
            if row.kind.is_delete:
                table.pop(key, None)
            else:
                table[key] = row.values["value"]
        self.tables[-1] = table


class Preparing(World):
    """The spool has the rows of what is committed, and knows what is prepared."""

    source: PreparingSource

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        self.rows_at = dict[int, tuple[ChangeRow, ...]]()  # of each spooled transaction; durable
        self.manifests = list[tuple[int, Any]]()  # where segments end, and what is prepared there; durable
        self.looks, self.lost = 0, False
        super().__init__(rows, gtids=gtids)
        self.source = PreparingSource(rows, gtids=gtids)

    def possible(self) -> list[str]:
        """The steps that can be taken now."""
        source = self.source
        steps = {
            "prepare": source.written < TRANSACTIONS_MAX and len(source.open) < len(NAMES),
            "settle": bool(source.open),
            "purge": bool(self.spool) and source.purged < self.spooled[0],
        }
        return [*super().possible(), *(step for step, now in steps.items() if now)]

    # The source.

    def names(self) -> list[Xid]:
        """The names that are free."""
        return [xid for xid in NAMES if xid not in self.source.open]

    def prepare(self, some: int, statements: list[Statement], rotate: int) -> None:
        """A client prepares a transaction, whose name is free."""
        free = self.names()
        self.source.prepare(free[some % len(free)], statements, rotate=rotate == 0)

    def settle(self, some: int) -> None:
        """A client ends a prepared transaction."""
        waiting = sorted(self.source.open, key=NAMES.index)
        self.source.end(waiting[some % len(waiting)], is_committed=some > 0)

    def purge(self, some: int) -> None:
        """The server drops old transactions; none that the job has not read."""
        self.source.purged = min(self.source.purged + 1 + some, self.spooled[0])

    # The spool.

    def open_spool(self) -> None:
        """Nothing is known of what was prepared before."""
        super().open_spool()
        self.manifests = []

    def forward(self, some: int) -> None:
        """Two readers, side by side: both know what is prepared where the spool ends."""
        _, end = self.spooled
        super().forward(some)
        known = self.manifests[-1] if self.manifests else None
        middle = (end + self.spooled[1] + 1) // 2
        for start, stop in ((end, middle), (middle, self.spooled[1])):
            before = Pending.from_json(self.manifests[-1][1]) if self.manifests else Pending()
            self.manifests.append((stop, self.read_part(start, stop, known).after(before).to_json()))

    def reopen_spool(self) -> None:
        """What is read again from an earlier place is read without knowing what is prepared there."""
        before = self.spool
        super().reopen_spool()
        if before is not None and self.spool != before:
            begin, end = self.spooled
            self.manifests = [(end, self.read_part(begin, end, None).to_json())]

    def forget(self) -> None:
        """The last of the dropped segments still says what is prepared at its end."""
        super().forget()
        begin, _ = self.spooled
        ended = [one for one in self.manifests if one[0] <= begin]
        self.manifests = [*ended[-1:], *(one for one in self.manifests if one[0] > begin)]

    def read_part(self, start: int, stop: int, known: tuple[int, Any] | None) -> Pending:
        """Read a segment; what it leaves prepared. `known` is what is prepared at some place before it."""
        pending = Pending()
        for number, one in enumerate(self.source.log[start:stop], start):
            rows = one.changes
            match one:
                case XaPrepare():
                    self.prepared(pending, number, one)
                case XaEnd():
                    rows = self.ended(pending, start, one, known)
            self.rows_at[number] = self.spooled_at(one, rows)
        return pending

    def prepared(self, pending: Pending, number: int, one: XaPrepare) -> None:
        """The reader passes over what is prepared."""
        ends = self.source.ends
        pending.prepare(one.xid, Prepared(ends[number], ends[number + 1], frozenset({ORDERS})))

    def ended(self, pending: Pending, start: int, one: XaEnd, known: tuple[int, Any] | None) -> tuple[ChangeRow, ...]:
        """The rows of what ends, as rows of that place."""
        found = pending.end(one.xid)
        if not one.is_committed:
            return ()
        return self.rows_of(found or self.find(one.xid, start, known), one)

    def rows_of(self, found: Prepared | None, one: XaEnd) -> tuple[ChangeRow, ...]:
        """The rows of what was prepared, at the place of its commit."""
        number = len(self.source.log) if found is None else self.source.ends.index(found.start)
        if found is None or number < self.source.purged:
            raise Lost
        prepared = self.source.log[number]
        assert isinstance(prepared, XaPrepare), "no rows are there, so the copy is not the table"
        return tuple(replace(row, place=one.place) for row in prepared.rows)

    def find(self, xid: Xid, start: int, known: tuple[int, Any] | None) -> Prepared | None:
        """Where it was prepared before the segment: nothing before what is known is read, unless it is not in that."""
        self.looks += 1
        since, prepared = known or (start, [])
        pending = self.left_by(since, start).after(Pending.from_json(prepared))
        if xid not in pending.prepared:
            pending = pending.after(self.left_by(self.source.purged, since))
        return pending.prepared.get(xid)

    def left_by(self, start: int, stop: int) -> Pending:
        """What a part of the binlog leaves prepared."""
        pending = Pending()
        for number, one in enumerate(self.source.log[start:stop], start):
            if isinstance(one, XaPrepare):
                Preparing.prepared(self, pending, number, one)
            elif isinstance(one, XaEnd):
                pending.end(one.xid)
        return pending

    def spooled_at(self, one: Transaction, rows: tuple[ChangeRow, ...]) -> tuple[ChangeRow, ...]:  # noqa: ARG002
        """The rows that the spool has of a transaction."""
        return rows

    # What reads the spool.

    @contextmanager
    def spool_read(self) -> Iterator[None]:
        """The binlog as the spool has it."""
        log = self.source.log
        self.source.log = [replace(one, changes=self.rows_at.get(number, ())) for number, one in enumerate(log)]
        try:
            yield
        finally:
            self.source.log = log

    def merge(self) -> None:
        """With rows of the spool."""
        with self.spool_read():
            super().merge()

    def is_quiet(self) -> bool:
        """Whether the spool has none."""
        with self.spool_read():
            return super().is_quiet()

    def finish(self) -> None:
        """All that is prepared is committed."""
        for xid in list(self.source.open):
            self.source.end(xid, is_committed=True)
        super().finish()
