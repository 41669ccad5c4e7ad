"""What `status` says of signals: those that have not ended, paused tables, and how long these are still covered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakeingest.commands.retention import Retention
from lakeingest.config import Config
from lakeingest.core.clocks import spoken
from lakeingest.core.position import Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.core.signals import OPEN, Action, Signal, State, agenda
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.lake.rollbacks import Rollback
from lakeingest.spool.spool import Spool
from lakeingest.state.signals import SignalDocument, SignalFolder


@dataclass(frozen=True, slots=True)
class OpenSignal:
    """A signal that has not ended: who asked for it and when, and how far it has come."""

    number: int
    action: str
    tables: tuple[TableId, ...]
    state: str
    who: str
    when: datetime
    note: str

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        asked = f"by {self.who} at {self.when:%Y-%m-%d %H:%M:%S %Z}"
        tables = ", ".join(map(str, self.tables)) or "all tables"
        return f"signal {self.number}, {self.action} of {tables} {asked}: {self.state}{note}"


@dataclass(frozen=True, slots=True)
class Paused:
    """Since when a table is paused, by whom, and how long its changes are still kept.

    `spool_bytes` is what the spool keeps for the table alone; None where there is no spool that can be read.
    `binlog_seconds` is for how long the source still keeps the binlog that was not spooled yet, 0 where it is gone;
    None where it keeps it for good, or cannot be asked. A run that follows spools on, and the table stays covered.
    """

    since: datetime
    who: str
    spool_bytes: int | None
    binlog_seconds: int | None

    def __str__(self) -> str:
        spool = "" if self.spool_bytes is None else f"; the spool keeps {self.spool_bytes:,} bytes for it"
        left = self.binlog_seconds
        binlog = "" if left is None else f"; without a run the binlog covers it for {spoken(left)} more"
        return f"paused by {self.who} at {self.since:%Y-%m-%d %H:%M:%S %Z}{spool}{binlog}"


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of a pipeline as `status` finds them."""

    documents: Sequence[SignalDocument]
    spool: Spool | None
    retention: Retention | None

    @classmethod
    def read(cls, config: Config, retention: Retention | None) -> "Signals":
        """The documents that are there now; nothing is changed."""
        documents = SignalFolder(state_of(config)).read()
        spool = None
        if documents:
            try:
                spool = Spool.load(state_of(config) / "spool")
            except LakeIngestError:  # a run removes segments at this moment, or it is damaged, which a run says
                spool = None
        return cls(documents, spool, retention)

    def of(self, table: TableId) -> tuple[OpenSignal, ...]:
        """The signals of a table that have not ended, also those for all tables."""
        found = (one for one in self.documents if one.signal.state in OPEN and one.signal.concerns(table))
        return tuple(_open(one) for one in found)

    def rolled_back(self, table: TableId, published: int | None) -> str | None:
        """What the last rollback has done, while readers see the commit that it left; `published` is what they see."""
        done = [one for one in self.documents if one.signal.action is Action.ROLLBACK and one.signal.concerns(table)]
        last = next((one for one in reversed(done) if one.signal.state is State.DONE), None)
        left = None if last is None else Rollback.of_json(last.result)
        if last is None or left is None or left.version != published:
            return None
        return f"rolled back for {last.signal.who}: {last.note}"

    def paused(self, config: Config, table: TableId, position: Position | None) -> Paused | None:
        """Since when the table, which stands at this position, is paused; None where it is not."""
        signals = [one.signal for one in self.documents]
        visible: Mapping[TableId, Progress] = {}
        if table not in agenda(signals, [table], visible, visible).paused:
            return None
        last = _last_pause(signals, table)
        spooled, unread = None, position
        if self.spool is not None:
            since = self.spool.start if position is None else max(position.place, self.spool.start)
            spooled, unread = self.spool.bytes_of(table, since), self.spool.position
        left = None if self.retention is None or unread is None else self.retention.left(config, unread)
        return Paused(last.when, last.who, spooled, left)


def _last_pause(signals: Sequence[Signal], table: TableId) -> Signal:
    void = {State.FAILED, State.CANCELLED}
    return [one for one in signals if one.action is Action.PAUSE and one.state not in void and one.concerns(table)][-1]


def _open(document: SignalDocument) -> OpenSignal:
    one = document.signal
    return OpenSignal(one.number, one.action.value, one.tables, one.state.value, one.who, one.when, document.note)
