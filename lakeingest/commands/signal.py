"""Signals: a command stores one, then waits until the owner of the lease has carried it out.

If nobody holds the lease, the command takes it and carries out the signal itself.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeingest import errors
from lakeingest.commands.report import Report
from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.config.tables import named
from lakeingest.core.schema import TableId
from lakeingest.core.signals import OPEN, Action, Scope, Signal, State
from lakeingest.errors import LakeIngestError, LeaseHeld, Retryable, UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copied, copies
from lakeingest.mysql.source import Source
from lakeingest.pipeline.events import Observer, unobserved
from lakeingest.pipeline.signals.without_run import serve_without_run
from lakeingest.state.lease import is_held
from lakeingest.state.owner import StateOwner, assert_owner, owner_of
from lakeingest.state.signals import SignalDocument, SignalFolder, this_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.5
_WORK = {Action.RESNAPSHOT, Action.MAINTAIN}  # the other actions need no run
Reporter = Callable[[SignalDocument], None]


@dataclass(frozen=True, slots=True)
class SignalResult:
    """A signal and its state. `why` is the reason of a failure, `result` the effect of maintenance on each table."""

    number: int
    action: str
    tables: tuple[TableId, ...]
    state: str
    note: str
    why: str | None
    result: Any

    @classmethod
    def of(cls, document: SignalDocument) -> "SignalResult":
        """The state of the signal that a document holds."""
        signal, note, result = document.signal, document.note, document.result
        return cls(signal.number, signal.action.value, signal.tables, signal.state.value, note, signal.why, result)


class SignalResults(Report, tuple[SignalResult, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The signals that one command has stored."""

    headers = ("signal", "action", "tables", "state", "note")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each signal."""
        for signal in self:
            tables = ", ".join(map(str, signal.tables)) or "all"
            yield str(signal.number), signal.action, tables, signal.state, signal.why or signal.note

    def raise_failure(self) -> None:
        """Raise the error of the first signal that failed or was cancelled."""
        for signal in self:
            if signal.state == State.CANCELLED:
                raise Retryable(
                    f"signal {signal.number} was cancelled; run the same command again if it is still wanted"
                )
            if signal.state == State.FAILED:
                raise _error(signal.why or "")


def ask(
    config: Config,
    action: str,
    tables: Sequence[str] = (),
    *,
    scope: Scope | None = None,
    ddl: str | None = None,
    wait: bool = True,
    report: Reporter = lambda _: None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
) -> SignalResults:
    """Store a signal for the tables, or for all, and wait until it has ended. Without `wait` it is only stored.

    A re-snapshot is a signal for each table, and so is a rollback. `cancel` makes a signal for each re-snapshot of the
    tables that has not ended. While the command waits, `report` is called with each change of a signal.

    Raises UsageError for a table that does not belong to the pipeline.
    """
    kind, chosen = Action(action), chosen_tables(config, tables)
    if (owner := owner_of(state_of(config))) is not None:
        assert_owner(state_of(config), owner, StateOwner(config.name, owner.server))
    folder = SignalFolder(state_of(config))
    # of each signal to store: its tables, and the number of the signal that it cancels
    targets: list[tuple[tuple[TableId, ...], int | None]] = [(chosen, None)]
    if kind is Action.CANCEL:
        signals = [document.signal for document in folder.read()]
        targets = [(signal.tables, signal.number) for signal in signals if _is_open_for(signal, chosen)]
    elif kind in {Action.RESNAPSHOT, Action.ROLLBACK}:
        targets = [((table,), None) for table in chosen]
    least = _least(config, folder)
    numbers = []
    for names, cancels in targets:

        def make(number: int, names: tuple[TableId, ...] = names, cancels: int | None = cancels) -> Signal:
            return Signal(number, kind, this_process(), datetime.now(UTC), names, scope, cancels, ddl=ddl)

        numbers.append(folder.add(make, least).signal.number)
    if wait:
        _wait(config, folder, numbers, report, observe, spark)
    documents = (folder.one(number) for number in numbers)
    return SignalResults(SignalResult.of(document) for document in documents if document is not None)


def chosen_tables(config: Config, names: Sequence[str]) -> tuple[TableId, ...]:
    """The tables of these names. Raises UsageError if the pipeline has no such table.

    The source is asked only if the lake does not have all of them.
    """
    with_copy = config.tables.select(copied(open_target(config), config.target)) if names else []
    try:
        return tuple(dict.fromkeys(named(with_copy, name) for name in names))
    except UsageError:
        with Source.open(config.source) as source:
            return tuple(config.tables.choose(config.tables.select(source.tables()), names))


def _is_open_for(signal: Signal, tables: Sequence[TableId]) -> bool:
    """Whether this is a re-snapshot of one of these tables (none: of any table) that has not ended."""
    is_chosen = not tables or bool(set(signal.tables).intersection(tables))
    return signal.action is Action.RESNAPSHOT and signal.state in OPEN and is_chosen


def _least(config: Config, folder: SignalFolder) -> int:
    """The least number for a new signal: after the loss of the state folder, commits of the lake still name signals."""
    if folder.read():
        return 1
    target = open_target(config)
    tables = config.tables.select(copied(target, config.target))
    numbers = [0]
    for staged in copies(target, tables).staged.values():
        numbers += staged.progress.answered
        numbers += staged.progress.reread.signals if staged.progress.reread else ()
    return max(numbers) + 1


def _wait(
    config: Config,
    folder: SignalFolder,
    numbers: Sequence[int],
    report: Reporter,
    observe: Observer,
    spark: "SparkSession | None",
) -> None:
    """Wait until all signals have ended. While nobody else holds the lease, this process carries them out."""
    reported: dict[int, SignalDocument] = {}

    def unfinished() -> list[SignalDocument]:
        """The signals that have not ended; changed ones are reported."""
        documents = [document for number in numbers if (document := folder.one(number)) is not None]
        for document in documents:
            if reported.get(document.signal.number) != document:
                reported[document.signal.number] = document
                report(document)
        return [document for document in documents if not document.ended]

    while signals := unfinished():
        if is_held(state_of(config)):
            time.sleep(POLL_SECONDS)
            continue
        with suppress(LeaseHeld):  # a run took the lease in between, so it is the owner
            _work(config, signals, unfinished, observe, spark)


def _work(
    config: Config,
    signals: Sequence[SignalDocument],
    unfinished: Callable[[], list[SignalDocument]],
    observe: Observer,
    spark: "SparkSession | None",
) -> None:
    """Carry the signals out as the owner of the lease. Raises Retryable if one of them has not ended then."""
    names = [str(table) for document in signals for table in document.signal.tables]
    try:
        if any(document.signal.action in _WORK for document in signals):
            run(config, names, None, observe, spark, stopping=lambda: not unfinished())
        else:
            serve_without_run(config, observe)
    except LeaseHeld:
        raise
    except LakeIngestError:
        if unfinished():
            raise
    if waiting := unfinished():
        number, reason = waiting[0].signal.number, waiting[0].note or waiting[0].signal.state
        raise Retryable(f"signal {number} is not carried out yet: {reason}; it stays, and the next run goes on with it")


def _error(why: str) -> LakeIngestError:
    """The error that a signal failed with. The reason begins with its name."""
    name, _, text = why.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LakeIngestError):
        return kind(text)
    return UsageError(why)
