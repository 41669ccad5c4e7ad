"""The world of `tests.core.preparing` on a server like MariaDB: an XA COMMIT has its place before its rows are visible.

A view tells its place, and may lack such rows. The server lists what is prepared, and what is being committed.
"""

from typing import Any

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.prepared import Pending, Xid
from lakeingest.core.tables.change import ChangeRow
from tests.core.preparing import Preparing, PreparingSource, XaEnd, XaPrepare
from tests.core.world import CALM, Read, Statement, Table, TellsItsPlace


class LateSource(PreparingSource):
    """Rows of an XA COMMIT are `hidden` at first, and locked. Its number in the binlog is the key."""

    def __init__(self, rows: Table, *, tells_ends: bool) -> None:
        super().__init__(rows, gtids=False)
        self.tells_ends = tells_ends
        self.hidden = dict[int, XaEnd]()

    def flush(self, statements: list[Statement], *, rotate: bool) -> None:
        """As the server does it; locks of what is hidden are waited for."""
        keys = {key for statement in statements for key in statement if key is not None}
        if not any(keys & one.keys for one in self.hidden.values()):
            super().flush(statements, rotate=rotate)

    def end(self, xid: Xid, *, is_committed: bool) -> None:
        """A client commits it, or rolls it back."""
        super().end(xid, is_committed=is_committed)
        last = self.log[-1]
        assert isinstance(last, XaEnd)
        self.hidden[len(self.log) - 1] = last

    def is_told(self, xid: Xid) -> bool:
        """Whether views tell places after XA PREPARE: only then it is listed, and can be ended."""
        return self.open[xid] in self.log[: self.visible]

    @property
    def listed(self) -> set[Xid]:
        """What is prepared, and what is being ended."""
        return {xid for xid in self.open if self.is_told(xid)} | {one.xid for one in self.hidden.values()}

    @property
    def shown(self) -> Table:
        """The table as a view shows it that is opened now."""
        table = dict(self.tables[self.visible])
        for number, one in self.hidden.items():
            for key in one.keys if number < self.visible else ():
                table.pop(key, None)
                table |= {key: self.tables[number][key]} if key in self.tables[number] else {}
        return table


class Late(Preparing, TellsItsPlace):
    """A chunk reads low, then the list, then its rows and high. `settled` is proved when a wave is planned."""

    CALM = ("show", *CALM)
    source: LateSource

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        super().__init__(rows, gtids=gtids)
        self.source = LateSource(rows, tells_ends=not gtids)
        self.lowered = 0

    def begin(self) -> None:
        """A run does not know what was older for the run before."""
        super().begin()
        self.settled = Place(0, 0, 0)
        self.older, self.gone = frozenset[Xid](), set[Xid]()
        self.asked = list[Read]()  # the chunks that have asked for the list

    def possible(self) -> list[str]:
        """The steps that can be taken now."""
        source, steps = self.source, super().possible()
        now = {
            "show": any(number < source.visible for number in source.hidden),
            "prepare": any(xid not in source.open and xid not in source.listed for xid in self.names()),
            "settle": any(map(source.is_told, source.open)),
        }
        refused = {step for step, can in now.items() if not can}
        if "plan_wave" in steps and not self.can_settle():
            refused.add("plan_wave")
        return [*(["show"] if now["show"] else []), *(step for step in steps if step not in refused)]

    # The source.

    def names(self) -> list[Xid]:
        """The names that a client may use now."""
        return [xid for xid in super().names() if xid not in self.source.listed]

    def settle(self, some: int) -> None:
        """A client ends a transaction that it knows to be prepared."""
        source = self.source
        hidden = {xid: source.open.pop(xid) for xid in list(source.open) if not source.is_told(xid)}
        super().settle(some)
        source.open |= hidden

    def show(self, some: int = 0) -> None:
        """The rows of an XA COMMIT become visible, and the server lists it no longer."""
        told = [number for number in self.source.hidden if number < self.source.visible]
        del self.source.hidden[told[some % len(told)]]

    # The spool.

    def ended(self, pending: Pending, start: int, one: XaEnd, known: tuple[int, Any] | None) -> tuple[ChangeRow, ...]:
        """Ends of what this reader has not seen prepared are remembered within a run."""
        if one.xid not in pending.prepared:
            self.gone.add(one.xid)
        return super().ended(pending, start, one, known)

    # Waves.

    def can_settle(self) -> bool:
        """Whether the list and the binlog prove that views have each XA COMMIT before the spool's end."""
        _, end = self.spooled
        pending = Pending.from_json(self.manifests[-1][1] if self.manifests else [])
        unknown = self.source.listed - pending.prepared.keys() - self.known_older()
        return not any(self.is_ended(xid, end) for xid in unknown)

    def known_older(self) -> frozenset[Xid]:
        """What was found to be prepared before the spool, and has not ended since."""
        return self.older - self.gone

    def is_ended(self, xid: Xid, end: int) -> bool:
        """Whether its last entry is an end, before `end`; if it has none after that, and is not ended, it is older."""
        log = self.source.log
        if any(isinstance(one, XaPrepare | XaEnd) and one.xid == xid for one in log[end : self.source.visible]):
            return False
        before = [one for one in log[self.source.purged : end] if isinstance(one, XaPrepare | XaEnd) and one.xid == xid]
        if before and isinstance(before[-1], XaEnd):
            return True
        self.older = self.known_older() | {xid}
        return False

    def plan_wave(self) -> None:
        """From here on, the spool's end is settled."""
        super().plan_wave()
        self.settled = self.source.places[self.spooled[1]]

    def read(self, some: int) -> None:
        """The next step of one of the chunks."""
        reading = [read for read in self.reads if not read.high]
        read = reading[some % len(reading)]
        if read.low is None:
            read.low = self.view()
        elif not any(read is one for one in self.asked):
            self.ask(read)
            self.asked.append(read)
        else:
            self.look(read)

    def ask(self, read: Read) -> None:
        """Ask for the list: with a transaction in it, low is what is settled."""
        if self.source.listed:
            self.lowered += 1
            read.low = self.settled

    def look(self, read: Read) -> None:
        """Read the rows, and high, in a view."""
        read.rows = tuple(row for row in self.source.shown.items() if self.wants(row, read))
        read.high = self.view()
