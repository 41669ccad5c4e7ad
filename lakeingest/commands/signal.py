"""Signals: a command stores a signal, then waits until the owner of the lease has carried out the signal.

If nobody holds the lease, the command takes the lease and carries out the signal itself.
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
from lakeingest.config.tables import table_named
from lakeingest.core.copies.signals import OPEN, Action, Signal, State
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import Scope
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
_NEED_RUN = {Action.RESNAPSHOT, Action.MAINTAIN, Action.POINT}  # only a run can carry out these actions
Reporter = Callable[[SignalDocument], None]


@dataclass(frozen=True, slots=True)
class SignalResult:
    """A signal and how far it has come. `why` is the reason if it failed.

    `result` is what the action has left as a JSON document, such as the effect of `maintain` on each table.
    """

    number: int
    action: str
    tables: tuple[TableId, ...]
    state: str
    note: str
    why: str | None
    result: Any

    @classmethod
    def of(cls, document: SignalDocument) -> "SignalResult":
        """The result of the signal in this document."""
        signal, note, result = document.signal, document.note, document.result
        return cls(signal.number, signal.action.value, signal.tables, signal.state.value, note, signal.why, result)


class SignalResults(Report, tuple[SignalResult, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The signals that a command has stored, with their results."""

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
                raise _error_of_signal(signal.why or "")


def ask(
    config: Config,
    action: str,
    tables: Sequence[str] = (),
    *,
    scope: Scope | None = None,
    ddl: str | None = None,
    name: str | None = None,
    wait: bool = True,
    report: Reporter = lambda _: None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
) -> SignalResults:
    """Store signals for the tables, and wait until all signals have ended; with `wait=False`, only store them.

    Most actions are one signal for all the tables; without names, for all tables of the pipeline. `resnapshot` and
    `rollback` are one signal for each table. `cancel` is one signal for each re-snapshot that concerns one of the
    tables, and has not ended. While the command waits, `report` is called with each signal that has changed. `scope` is
    for `resnapshot`, `ddl` the DDL that `approve` approves, and `name` the name of a point.

    Raises UsageError for a table that does not belong to the pipeline.
    """
    kind, chosen = Action(action), chosen_tables(config, tables)
    if (owner := owner_of(state_of(config))) is not None:
        # refuse the folder of another pipeline; the server is not compared, because the source is not asked
        assert_owner(state_of(config), owner, StateOwner(config.name, owner.server))
    folder = SignalFolder(state_of(config))
    # for each signal to store: its tables, and for `cancel` the number of the re-snapshot to cancel
    to_store: list[tuple[tuple[TableId, ...], int | None]] = [(chosen, None)]
    if kind is Action.CANCEL:
        signals = [document.signal for document in folder.read()]
        to_store = [(signal.tables, signal.number) for signal in signals if _is_cancellable(signal, chosen)]
    elif kind in {Action.RESNAPSHOT, Action.ROLLBACK}:
        to_store = [((table,), None) for table in chosen]
    least_number = _least_number(config, folder)
    numbers = []  # of the stored signals
    for concerned, cancels in to_store:
        make_signal = _signal_maker(kind, concerned, scope, cancels, ddl, name)
        numbers.append(folder.add(make_signal, least_number).signal.number)
    if wait:
        _wait(config, folder, numbers, report, observe, spark)
    documents = (folder.one(number) for number in numbers)  # None for a signal that is not stored any more
    return SignalResults(SignalResult.of(document) for document in documents if document is not None)


def _signal_maker(
    kind: Action,
    tables: tuple[TableId, ...],
    scope: Scope | None,
    cancels: int | None,
    ddl: str | None,
    name: str | None,
) -> Callable[[int], Signal]:
    """A function that makes a signal of this process, as of now, with the given number."""
    return lambda number: Signal(
        number, kind, this_process(), datetime.now(UTC), tables, scope, cancels, ddl=ddl, name=name
    )


def chosen_tables(config: Config, names: Sequence[str]) -> tuple[TableId, ...]:
    """The tables with these names; without names, none. Raises UsageError if the pipeline has no such table.

    The source is asked only if a table has no copy in the lake.
    """
    with_copy = config.tables.select(copied(open_target(config), config.target)) if names else []
    try:
        return tuple(dict.fromkeys(table_named(with_copy, name) for name in names))
    except UsageError:
        with Source.open(config.source) as source:
            return tuple(config.tables.choose(config.tables.select(source.tables()), names))


def _is_cancellable(signal: Signal, tables: Sequence[TableId]) -> bool:
    """Whether this signal is a re-snapshot of one of these tables, and has not ended. Empty `tables` stand for all."""
    is_chosen = not tables or bool(set(signal.tables).intersection(tables))
    return signal.action is Action.RESNAPSHOT and signal.state in OPEN and is_chosen


def _least_number(config: Config, folder: SignalFolder) -> int:
    """The least number that a new signal can have.

    Normally this is 1, because `SignalFolder.add` takes the number after the greatest number in the folder. If the
    folder has no signals, perhaps its signals were lost. Commits in the lake still have the numbers of lost signals, so
    the number of a new signal is greater than all numbers in the commits.
    """
    if folder.read():
        return 1
    target = open_target(config)
    tables = config.tables.select(copied(target, config.target))
    numbers_in_commits = [0]
    for staged in copies(target, tables).staged.values():
        numbers_in_commits += staged.progress.answered
        numbers_in_commits += staged.progress.reread.signals if staged.progress.reread else ()
    return max(numbers_in_commits) + 1


def _wait(
    config: Config,
    folder: SignalFolder,
    numbers: Sequence[int],
    report: Reporter,
    observe: Observer,
    spark: "SparkSession | None",
) -> None:
    """Wait until all signals have ended. If nobody holds the lease, this process carries them out."""
    reported: dict[int, SignalDocument] = {}

    def poll_unfinished() -> list[SignalDocument]:
        """The signals that have not ended. Each signal that has changed since the last call is reported."""
        stored = [folder.one(number) for number in numbers]  # None for a signal that is not stored any more
        documents = [document for document in stored if document is not None]
        for document in documents:
            if reported.get(document.signal.number) != document:
                reported[document.signal.number] = document
                report(document)
        return [document for document in documents if not document.ended]

    while signals := poll_unfinished():
        if is_held(state_of(config)):
            time.sleep(POLL_SECONDS)
            continue
        with suppress(LeaseHeld):  # a run has taken the lease in between, so that run carries out the signals
            _carry_out(config, signals, poll_unfinished, observe, spark)


def _carry_out(
    config: Config,
    signals: Sequence[SignalDocument],
    poll_unfinished: Callable[[], list[SignalDocument]],
    observe: Observer,
    spark: "SparkSession | None",
) -> None:
    """Carry out the signals as the owner of the lease. Raises LeaseHeld if another process has the lease.

    If a signal has not ended afterwards, the error of this work is raised, or Retryable if the work had no error. If
    all signals have ended, an error of this work is ignored.
    """
    # the tables of all signals, for a run; no names stand for all tables
    names = [str(table) for document in signals for table in document.signal.tables]
    try:
        if any(document.signal.action in _NEED_RUN for document in signals):
            run(config, names, observe=observe, spark=spark, stopping=lambda: not poll_unfinished())
        else:
            serve_without_run(config, observe)
    except LeaseHeld:
        raise  # also if all signals have ended: the caller looks at them again
    except LakeIngestError:
        if poll_unfinished():
            raise
    if waiting := poll_unfinished():
        number, reason = waiting[0].signal.number, waiting[0].note or waiting[0].signal.state
        raise Retryable(f"signal {number} is not carried out yet: {reason}; it stays, and the next run goes on with it")


def _error_of_signal(why: str) -> LakeIngestError:
    """The error with which a signal failed. The text `why` has the form `NameOfError: message`.

    It is a UsageError if `why` does not begin with the name of an error of lakeingest.
    """
    name, _, text = why.partition(": ")
    kind = errors.named(name)
    return UsageError(why) if kind is None else kind(text)
