"""Signals in `status`: the signals that have not ended, and how long the changes of paused tables are still kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakeingest.commands.retention import Retention
from lakeingest.config import Config
from lakeingest.core.binlog.position import Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.signals import OPEN, Action, Signal, State, agenda
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.lake.rollbacks import Rollback
from lakeingest.spool.spool import Spool
from lakeingest.state.signals import SignalDocument, SignalFolder


@dataclass(frozen=True, slots=True)
class OpenSignal:
    """A signal that has not ended: who asked for it and when. `state` and `note` say how far it has come."""

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
    """The pause of a table: since when, by whom, and how long the table's changes are still kept.

    `spool_bytes` is the number of bytes that the spool keeps for this table alone; None if no spool can be read.
    `binlog_seconds` is how long the source will keep the binlog that no run has spooled yet. It is 0 if the source has
    deleted this binlog, and None if the source keeps it for ever or cannot be asked. As long as a run with `--follow`
    is at work, this run spools the table's changes, so none are lost.
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
    """The stored signals of a pipeline. `spool` and `retention` are None if unknown or not needed."""

    documents: Sequence[SignalDocument]
    spool: Spool | None
    retention: Retention | None

    @classmethod
    def read(cls, config: Config, retention: Retention | None) -> "Signals":
        """Read the stored signals; nothing is changed."""
        documents = SignalFolder(state_of(config)).read()
        spool = None
        if documents:  # without signals no table is paused, and only pauses need the spool
            try:
                spool = Spool.load(state_of(config) / "spool")
            except LakeIngestError:  # a run is removing segments, or the spool is damaged: a run reports the damage
                spool = None
        return cls(documents, spool, retention)

    def of(self, table: TableId) -> tuple[OpenSignal, ...]:
        """The signals that concern a table and have not ended; signals for all tables are included."""
        return tuple(
            _open_signal(document)
            for document in self.documents
            if document.signal.state in OPEN and document.signal.concerns(table)
        )

    def rollback_note(self, table: TableId, published: int | None) -> str | None:
        """A text about the table's last rollback, if readers still see the commit of this rollback; otherwise None.

        `published` is the number of the commit that readers see now.
        """
        for document in reversed(self.documents):
            signal = document.signal
            if signal.action is Action.ROLLBACK and signal.concerns(table) and signal.state is State.DONE:
                rollback = Rollback.of_json(document.result)
                # this is the last rollback: earlier ones do not count
                is_seen = rollback is not None and rollback.version == published
                return f"rolled back for {signal.who}: {document.note}" if is_seen else None
        return None

    def pause_of(self, config: Config, table: TableId, position: Position | None) -> Paused | None:
        """The pause of a table whose copy is at `position`; None if the table is not paused."""
        signals = [document.signal for document in self.documents]
        no_progress: Mapping[TableId, Progress] = {}  # whether a table is paused does not depend on its progress
        if table not in agenda(signals, [table], no_progress, no_progress).paused:
            return None
        pause = _last_pause(signals, table)
        if self.spool is None:  # the next run reads the binlog from the copy's position on
            spool_bytes, unread_since = None, position
        else:
            # only changes after the copy's position are counted: the copy has the earlier ones
            counted_from = self.spool.start if position is None else max(position.place, self.spool.start)
            spool_bytes, unread_since = self.spool.bytes_of(table, counted_from), self.spool.position
        seconds = None
        if self.retention is not None and unread_since is not None:
            seconds = self.retention.seconds_left(config, unread_since)
        return Paused(pause.when, pause.who, spool_bytes, seconds)


def _last_pause(signals: Sequence[Signal], table: TableId) -> Signal:
    """Of a paused table, the last `pause` signal that neither failed nor was cancelled."""
    pauses = [signal for signal in signals if signal.action is Action.PAUSE and signal.concerns(table)]
    return [pause for pause in pauses if pause.state not in {State.FAILED, State.CANCELLED}][-1]


def _open_signal(document: SignalDocument) -> OpenSignal:
    """The signal of a document, which has not ended."""
    signal = document.signal
    action, state = signal.action.value, signal.state.value
    return OpenSignal(signal.number, action, signal.tables, state, signal.who, signal.when, document.note)
