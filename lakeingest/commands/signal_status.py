"""Signals in `status`: the signals that have not ended, and the paused tables with the time that they stay covered."""

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
    """A signal that has not ended: who asked for it, when, and its progress in `state` and `note`."""

    number: int
    action: str
    tables: tuple[TableId, ...]
    state: str
    who: str
    when: datetime
    note: str

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        origin = f"by {self.who} at {self.when:%Y-%m-%d %H:%M:%S %Z}"
        tables = ", ".join(map(str, self.tables)) or "all tables"
        return f"signal {self.number}, {self.action} of {tables} {origin}: {self.state}{note}"


@dataclass(frozen=True, slots=True)
class Paused:
    """A paused table: since when, by whom, and how long its changes are still kept.

    `spool_bytes` are the bytes that the spool keeps for this table alone; None if no spool can be read.
    `binlog_seconds` is how long the source will keep the binlog that is not spooled yet: 0 if it is gone, None if it is
    kept for good, or if the source cannot be asked. A run with `--follow` spools on, so it keeps the table covered.
    """

    since: datetime
    who: str
    spool_bytes: int | None
    binlog_seconds: int | None

    def __str__(self) -> str:
        spool = "" if self.spool_bytes is None else f"; the spool keeps {self.spool_bytes:,} bytes for it"
        seconds = self.binlog_seconds
        binlog = "" if seconds is None else f"; without a run the binlog covers it for {spoken(seconds)} more"
        return f"paused by {self.who} at {self.since:%Y-%m-%d %H:%M:%S %Z}{spool}{binlog}"


@dataclass(frozen=True, slots=True)
class Signals:
    """The stored signals of a pipeline, with the spool and the source's retention as far as they are known."""

    documents: Sequence[SignalDocument]
    spool: Spool | None
    retention: Retention | None

    @classmethod
    def read(cls, config: Config, retention: Retention | None) -> "Signals":
        """The signals that are stored now; nothing is changed."""
        documents = SignalFolder(state_of(config)).read()
        spool = None
        if documents:
            try:
                spool = Spool.load(state_of(config) / "spool")
            except LakeIngestError:  # a run is removing segments, or the spool is damaged, which a run reports
                spool = None
        return cls(documents, spool, retention)

    def of(self, table: TableId) -> tuple[OpenSignal, ...]:
        """The signals of a table that have not ended; a signal for all tables is one of them."""
        return tuple(
            _open(document)
            for document in self.documents
            if document.signal.state in OPEN and document.signal.concerns(table)
        )

    def rolled_back(self, table: TableId, published: int | None) -> str | None:
        """The effect of the table's last rollback; None if there is none, or readers see another commit since.

        `published` is the number of the commit that readers see.
        """
        for document in reversed(self.documents):
            signal = document.signal
            if signal.action is Action.ROLLBACK and signal.concerns(table) and signal.state is State.DONE:
                rollback = Rollback.of_json(document.result)
                is_seen = rollback is not None and rollback.version == published
                return f"rolled back for {signal.who}: {document.note}" if is_seen else None
        return None

    def paused(self, config: Config, table: TableId, position: Position | None) -> Paused | None:
        """The pause of a table whose copy is at `position`; None if the table is not paused."""
        signals = [document.signal for document in self.documents]
        visible: Mapping[TableId, Progress] = {}
        if table not in agenda(signals, [table], visible, visible).paused:
            return None
        pause = _last_pause(signals, table)
        spool_bytes, unread = None, position
        if self.spool is not None:
            since = self.spool.start if position is None else max(position.place, self.spool.start)
            spool_bytes, unread = self.spool.bytes_of(table, since), self.spool.position
        seconds = None if self.retention is None or unread is None else self.retention.left(config, unread)
        return Paused(pause.when, pause.who, spool_bytes, seconds)


def _last_pause(signals: Sequence[Signal], table: TableId) -> Signal:
    """The last valid `pause` of a table; there is one, because the table is paused."""
    pauses = [signal for signal in signals if signal.action is Action.PAUSE and signal.concerns(table)]
    return [pause for pause in pauses if pause.state not in {State.FAILED, State.CANCELLED}][-1]


def _open(document: SignalDocument) -> OpenSignal:
    signal = document.signal
    action, state = signal.action.value, signal.state.value
    return OpenSignal(signal.number, action, signal.tables, state, signal.who, signal.when, document.note)
