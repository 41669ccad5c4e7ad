"""Signals: requests of people to a running pipeline, and what the owner of the lease does next about them.

Signals are numbered in their order. A signal is durable, and can be carried out twice without harm: after a crash, all
decisions are made again, from the signals and from the progress of the tables.
"""

import enum
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.rereads import Reread
from lakeingest.core.waves.scope import WHOLE, Scope
from lakeingest.errors import DAMAGED, StateUnreadable

FORMAT = 1  # of the JSON form; a reader refuses a newer format


class Action(enum.StrEnum):
    """The kinds of requests."""

    RESNAPSHOT = "resnapshot"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    MAINTAIN = "maintain"
    APPROVE = "approve"
    ROLLBACK = "rollback"
    POINT = "point"
    DROP_POINT = "drop-point"


class State(enum.StrEnum):
    """How far a signal has come. A re-snapshot is DONE when readers see its rows, not when they are on staging."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(enum.StrEnum):
    """The events in the life of a signal."""

    BEGIN = "begin"
    FINISH = "finish"
    FAIL = "fail"
    CANCEL = "cancel"


# The last event may happen again: a crash can come after an event has happened and before it is stored
TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.PENDING, Event.BEGIN): State.RUNNING,
    (State.PENDING, Event.FINISH): State.DONE,  # there is nothing to run, or another signal's rows have answered it
    (State.PENDING, Event.FAIL): State.FAILED,
    (State.PENDING, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.BEGIN): State.RUNNING,
    (State.RUNNING, Event.FINISH): State.DONE,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    (State.DONE, Event.FINISH): State.DONE,
    (State.FAILED, Event.FAIL): State.FAILED,
    (State.CANCELLED, Event.CANCEL): State.CANCELLED,
}
OPEN = frozenset({State.PENDING, State.RUNNING})
_OF_POINTS = frozenset({Action.POINT, Action.DROP_POINT})


class IllegalEvent(ValueError):
    """An event that the signal's state does not allow; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal: who asked for what, when, and how far the signal has come.

    A re-snapshot has one table and a `scope`. An approval has one table and, in `ddl`, the name of the approved DDL. A
    rollback has one table. In other signals, no table means all tables, including tables that join later. `cancels`:
    the number of the signal that a `cancel` cancels. `name`: the point that a signal makes or drops, for all tables.
    `why`: the reason of a failed signal; None for any other signal.
    """

    number: int
    action: Action
    who: str
    when: datetime
    tables: tuple[TableId, ...] = ()
    scope: Scope | None = None
    cancels: int | None = None
    state: State = State.PENDING
    why: str | None = None
    ddl: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"signals are counted from 1: {self.number}")
        if self.when.tzinfo is None:
            raise ValueError(f"a time without its zone: {self.when}")
        if (self.action is Action.RESNAPSHOT) != (self.scope is not None) or (self.scope and len(self.tables) != 1):
            raise ValueError(f"a re-snapshot has one table and a scope, and nothing else has a scope: {self}")
        if (self.action is Action.CANCEL) != (self.cancels is not None):
            raise ValueError(f"a cancel names a signal, and nothing else does: {self}")
        if (self.action is Action.APPROVE) != (self.ddl is not None) or (self.ddl and len(self.tables) != 1):
            raise ValueError(f"an approval has one table and names DDL of it, and nothing else does: {self}")
        if self.action is Action.ROLLBACK and len(self.tables) != 1:
            raise ValueError(f"a rollback has one table: {self}")
        if (self.action in _OF_POINTS) != (self.name is not None) or (self.name is not None and self.tables):
            raise ValueError(f"a signal of a point has its name and no table, and nothing else has a name: {self}")
        if (self.state is State.FAILED) != (self.why is not None):
            raise ValueError(f"a failed signal says why, and no other does: {self}")

    def concerns(self, table: TableId) -> bool:
        """Whether the signal is for this table."""
        return not self.tables or table in self.tables

    def after(self, event: Event, why: str | None = None) -> Self:
        """The signal after the event. `why`: the reason, if it fails. Raises IllegalEvent if the state forbids it."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise IllegalEvent(f"signal {self.number}: no {event} when {self.state}")
        return replace(self, state=following, why=why if following is State.FAILED else None)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {
            "format": FORMAT,
            "number": self.number,
            "action": self.action.value,
            "who": self.who,
            "when": self.when.isoformat(),
            "tables": [str(table) for table in self.tables],
            "scope": None if self.scope is None else self.scope.to_json(),
            "cancels": self.cancels,
            "state": self.state.value,
            "why": self.why,
        } | {key: value for key, value in (("ddl", self.ddl), ("name", self.name)) if value is not None}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for anything else, and for the form of a newer version."""
        try:
            if doc["format"] != FORMAT:
                raise StateUnreadable(f"a signal of format {doc['format']}, this version reads {FORMAT}")
            return cls(
                number=int(doc["number"]),
                action=Action(doc["action"]),
                who=str(doc["who"]),
                when=datetime.fromisoformat(doc["when"]),
                tables=tuple(TableId.parse(table) for table in doc["tables"]),
                scope=None if doc["scope"] is None else Scope.from_json(doc["scope"]),
                cancels=None if doc["cancels"] is None else int(doc["cancels"]),
                state=State(doc["state"]),
                why=None if doc["why"] is None else str(doc["why"]),
                ddl=None if doc.get("ddl") is None else str(doc["ddl"]),
                name=None if doc.get("name") is None else str(doc["name"]),
            )
        except DAMAGED as error:
            raise StateUnreadable(f"not a signal: {doc!r}") from error


@dataclass(frozen=True, slots=True)
class Request:
    """The re-snapshot that a table runs next. It answers all `signals`, and its `scope` is that of the first signal.

    A re-snapshot that closes a gap may have no signal; its scope is the whole table. `up_to`: the key before which all
    rows are read already; None if no row is read yet. The caller must keep this request until the last row is read:
    otherwise rows that were read before a signal came would answer that signal.
    """

    signals: tuple[int, ...]
    scope: Scope
    up_to: Key | None = None

    @property
    def number(self) -> int:
        """The number of the first signal; 0 if there is none."""
        return self.signals[0] if self.signals else 0


@dataclass(frozen=True, slots=True)
class Agenda:
    """The next actions of the owner of the lease.

    First the documents of signals change: those of `cancelled` become CANCELLED, then those of `finished` DONE, then
    those of `failed` FAILED, with the reason.

    `paused`: the paused tables, with which nothing is done: no merge, no publish, no read.
    `next`: by table, the re-snapshot that the table runs. The document of its first signal becomes RUNNING before the
    first row is read. Paused tables, and tables with missing chunks, have no entry.
    `waiting`: by table, the re-snapshots whose rows are not all read yet. A copy that is started over answers all of
    these signals, because it reads the whole table.
    `whole`: the tables that are not paused and for which a waiting signal asks for all rows.
    `superseded`: by the number of a later signal, the number of the earlier signal whose re-snapshot answers both.
    `approved`: by table, the names of the DDL that people have approved.
    `maintain`, `rollbacks` and `points`: signals to carry out, in their order. A rollback is carried out for a paused
    table, too. `points` has the signals that make a point and the signals that drop one.
    """

    cancelled: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)
    paused: frozenset[TableId] = frozenset()
    next: Mapping[TableId, Request] = field(default_factory=dict)
    waiting: Mapping[TableId, tuple[int, ...]] = field(default_factory=dict)
    whole: frozenset[TableId] = frozenset()
    superseded: Mapping[int, int] = field(default_factory=dict)
    approved: Mapping[TableId, frozenset[str]] = field(default_factory=dict)
    maintain: tuple[Signal, ...] = ()
    rollbacks: tuple[Signal, ...] = ()
    points: tuple[Signal, ...] = ()


def agenda(
    signals: Iterable[Signal],
    tables: Iterable[TableId],
    staged: Mapping[TableId, Progress],
    visible: Mapping[TableId, Progress],
) -> Agenda:
    """The next actions for these signals. `tables`: the tables that are copied now.

    `staged`: by table, the progress in the newest commit. `visible`: by table, the progress that readers see; a table
    that was never published is not in it.
    """
    ordered = sorted(signals, key=lambda signal: signal.number)
    copied = frozenset(tables)
    # Step 1: cancelled signals. A re-snapshot whose rows are all read, and a cancel, cannot be cancelled
    open_cancels = [signal for signal in ordered if signal.action is Action.CANCEL and signal.state in OPEN]
    # `seen`: the re-snapshots whose rows readers see; `answered`: also those whose rows are all on staging
    seen = {number for progress in visible.values() for number in progress.answered}
    answered = seen | {number for progress in staged.values() for number in progress.answered}
    not_cancellable = answered | {signal.number for signal in open_cancels}
    to_cancel = {signal.cancels for signal in open_cancels} - not_cancellable
    cancelled = {signal.number for signal in ordered if signal.state in OPEN and signal.number in to_cancel}
    # Step 2: how far the other signals are, and which tables are paused
    valid = [signal for signal in ordered if signal.number not in cancelled]
    resnapshots = [signal for signal in valid if signal.action is Action.RESNAPSHOT and signal.state in OPEN]
    failed = {
        signal.number: f"{signal.tables[0]} is not copied"
        for signal in resnapshots
        if signal.tables[0] not in copied and signal.number not in seen
    }
    done_at_once = {signal.number for signal in valid if signal.action in _DONE_AT_ONCE and signal.state in OPEN}
    seen_resnapshots = {signal.number for signal in resnapshots} & seen
    paused = frozenset(table for table in copied if _is_paused(valid, table))
    # Step 3: the next re-snapshot of each table
    next_requests: dict[TableId, Request] = {}
    waiting: dict[TableId, tuple[int, ...]] = {}
    whole: set[TableId] = set()
    superseded: dict[int, int] = {}
    for table in sorted(copied, key=str):
        unread = [signal for signal in resnapshots if table in signal.tables and signal.number not in answered]
        if unread:
            waiting[table] = tuple(signal.number for signal in unread)
        if table not in paused and any(signal.scope is not None and signal.scope.whole for signal in unread):
            whole.add(table)
        progress = staged.get(table)
        if progress is None or not progress.splits.complete:
            continue  # all chunks are read first
        if not unread and not progress.gap:
            continue  # nothing asks for a re-snapshot
        make_request = _gap_request if progress.gap else _next_request
        request = make_request(unread, progress.reread)
        superseded |= dict.fromkeys(request.signals[1:], request.number)
        if table not in paused:
            next_requests[table] = request
    return Agenda(
        cancelled=tuple(sorted(cancelled)),
        finished=tuple(sorted(done_at_once | seen_resnapshots)),
        failed=failed,
        paused=paused,
        next=next_requests,
        waiting=waiting,
        whole=frozenset(whole),
        superseded=superseded,
        approved={table: _approved_ddl(valid, table) for table in copied},
        maintain=_open_signals(valid, {Action.MAINTAIN}),
        rollbacks=_open_signals(valid, {Action.ROLLBACK}),
        points=_open_signals(valid, _OF_POINTS),
    )


_DONE_AT_ONCE = frozenset({Action.PAUSE, Action.RESUME, Action.CANCEL, Action.APPROVE})  # done as soon as they are read
_VOID = frozenset({State.FAILED, State.CANCELLED})  # a signal in one of these states has no effect


def _open_signals(signals: Iterable[Signal], actions: Container[Action]) -> tuple[Signal, ...]:
    """The signals for these actions that have not ended, in order."""
    return tuple(signal for signal in signals if signal.action in actions and signal.state in OPEN)


def _approved_ddl(signals: Iterable[Signal], table: TableId) -> frozenset[str]:
    """The names of the table's DDL that people have approved."""
    of_table = (signal for signal in signals if table in signal.tables and signal.state not in _VOID)
    return frozenset(signal.ddl for signal in of_table if signal.ddl is not None)


def _is_paused(signals: Sequence[Signal], table: TableId) -> bool:
    """Whether the last `pause` or `resume` of the table is a `pause`. Failed and cancelled signals do not count."""
    decisions = [
        signal.action
        for signal in signals
        if signal.action in {Action.PAUSE, Action.RESUME} and signal.state not in _VOID and signal.concerns(table)
    ]
    return bool(decisions) and decisions[-1] is Action.PAUSE


def _gap_request(unread: Sequence[Signal], running: Reread | None) -> Request:
    """The re-snapshot of all rows that closes a gap: the running one, even without open signals; else a new one."""
    if running is None:
        return Request((), WHOLE)  # it is due without a signal, and answers none
    open_numbers = {signal.number for signal in unread}
    return Request(tuple(number for number in running.signals if number in open_numbers), WHOLE, running.up_to)


def _next_request(unread: Sequence[Signal], running: Reread | None) -> Request:
    """The running re-snapshot of a table; if none runs, one for the first signal and the signals that its scope covers.

    `unread`: the open signals of the table that are not answered yet, in order; at least one.
    A re-snapshot that has begun answers no later signal, because some of its rows may have been read before that
    signal. If the signal that gave the scope is cancelled, a new re-snapshot begins for the other signals, because
    they may have other scopes.
    """
    scopes = {signal.number: signal.scope for signal in unread if signal.scope is not None}
    if running is not None and running.signals[0] in scopes:  # the signal that gave the scope is open
        answered = tuple(number for number in running.signals if number in scopes)
        return Request(answered, scopes[running.signals[0]], running.up_to)
    # a signal is RUNNING before the first row is read, so staging may not know of its re-snapshot yet
    first = next((signal for signal in unread if signal.state is State.RUNNING), unread[0])
    scope = scopes[first.number]
    if first.state is State.RUNNING:  # the re-snapshot has begun, so it answers no other signal
        return Request((first.number,), scope)
    others = [signal.number for signal in unread if signal is not first]
    return Request((first.number, *(number for number in others if scope.covers(scopes[number]))), scope)
