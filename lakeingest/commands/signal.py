"""Signals as people ask for them: made durable, and waited for until the owner of the lease has carried them out.

Where nobody holds the lease, the command takes it and works itself.
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
from lakeingest.pipeline.signals.without_run import settle
from lakeingest.state.lease import is_held
from lakeingest.state.owner import StateOwner, assert_owner, owner_of
from lakeingest.state.signals import SignalDocument, SignalFolder, this_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.5
_WORK = {Action.RESNAPSHOT, Action.MAINTAIN}  # the others take no work on a table
Reporter = Callable[[SignalDocument], None]


@dataclass(frozen=True, slots=True)
class SignalResult:
    """A signal and its state; `result` is what maintenance has done to each table."""

    number: int
    action: str
    tables: tuple[TableId, ...]
    state: str
    note: str
    why: str | None
    result: Any

    @classmethod
    def of(cls, document: SignalDocument) -> "SignalResult":
        """The result that a document tells."""
        one = document.signal
        return cls(one.number, one.action.value, one.tables, one.state.value, document.note, one.why, document.result)


class SignalResults(Report, tuple[SignalResult, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The signals that were asked for at once."""

    headers = ("signal", "action", "tables", "state", "note")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a signal."""
        for one in self:
            tables = ", ".join(map(str, one.tables)) or "all"
            yield str(one.number), one.action, tables, one.state, one.why or one.note

    def raise_failure(self) -> None:
        """Raise the error of the first signal that failed or was cancelled."""
        for one in self:
            if one.state == State.CANCELLED:
                raise Retryable(f"signal {one.number} was cancelled; run the same command again if it is still wanted")
            if one.state == State.FAILED:
                raise _error(one.why or "")


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
    """Make a signal for the tables, or for all, and wait until it has ended; without `wait` it is only made durable.

    A re-snapshot is a signal for each table, and so is a rollback. `cancel` makes a signal for each re-snapshot of the
    tables that has not ended. UsageError for a table that is not the pipeline's. While it waits, `report` is called
    with each change.
    """
    asked, chosen = Action(action), chosen_tables(config, tables)
    if (found := owner_of(state_of(config))) is not None:
        assert_owner(state_of(config), found, StateOwner(config.name, found.server))
    folder = SignalFolder(state_of(config))
    wanted: list[tuple[tuple[TableId, ...], int | None]] = [(chosen, None)]
    if asked is Action.CANCEL:
        opened = [one.signal for one in folder.read() if _is_open_for(one.signal, chosen)]
        wanted = [(one.tables, one.number) for one in opened]
    elif asked in {Action.RESNAPSHOT, Action.ROLLBACK}:
        wanted = [((table,), None) for table in chosen]
    least = _least(config, folder)
    numbers = []
    for names, cancels in wanted:

        def make(number: int, names: tuple[TableId, ...] = names, cancels: int | None = cancels) -> Signal:
            return Signal(number, asked, this_process(), datetime.now(UTC), names, scope, cancels, ddl=ddl)

        numbers.append(folder.add(make, least).signal.number)
    if wait:
        _wait(config, folder, numbers, report, observe, spark)
    documents = (folder.one(number) for number in numbers)
    return SignalResults(SignalResult.of(one) for one in documents if one is not None)


def chosen_tables(config: Config, names: Sequence[str]) -> tuple[TableId, ...]:
    """The tables of these names; UsageError where the pipeline has no such table.

    The source is asked only for a name that the lake does not have.
    """
    known = config.tables.select(copied(open_target(config), config.target)) if names else []
    try:
        return tuple(dict.fromkeys(named(known, name) for name in names))
    except UsageError:
        with Source.open(config.source) as source:
            return tuple(config.tables.choose(config.tables.select(source.tables()), names))


def _is_open_for(signal: Signal, tables: Sequence[TableId]) -> bool:
    chosen = not tables or bool(set(signal.tables).intersection(tables))
    return signal.action is Action.RESNAPSHOT and signal.state in OPEN and chosen


def _least(config: Config, folder: SignalFolder) -> int:
    """The least number for a new signal: where the state folder was lost, commits of the lake still name signals."""
    if folder.read():
        return 1
    target = open_target(config)
    tables = config.tables.select(copied(target, config.target))
    progresses = [one.progress for one in copies(target, tables).staged.values()]
    named = [number for one in progresses for number in (*one.answered, *(one.reread.signals if one.reread else ()))]
    return max(named, default=0) + 1


def _wait(
    config: Config,
    folder: SignalFolder,
    numbers: Sequence[int],
    report: Reporter,
    observe: Observer,
    spark: "SparkSession | None",
) -> None:
    """Until all have ended; this process works itself while no other one holds the lease."""
    reported: dict[int, SignalDocument] = {}

    def left() -> list[SignalDocument]:
        documents = [one for number in numbers if (one := folder.one(number)) is not None]
        for one in documents:
            if reported.get(one.signal.number) != one:
                reported[one.signal.number] = one
                report(one)
        return [one for one in documents if not one.ended]

    while opened := left():
        if is_held(state_of(config)):
            time.sleep(POLL_SECONDS)
            continue
        with suppress(LeaseHeld):  # a run took it in between: that one is the owner
            _work(config, opened, left, observe, spark)


def _work(
    config: Config,
    signals: Sequence[SignalDocument],
    left: Callable[[], list[SignalDocument]],
    observe: Observer,
    spark: "SparkSession | None",
) -> None:
    """Carry the signals out as the owner of the lease."""
    names = [str(table) for one in signals for table in one.signal.tables]
    try:
        if any(one.signal.action in _WORK for one in signals):
            run(config, names, None, observe, spark, stopping=lambda: not left())
        else:
            settle(config, observe)
    except LeaseHeld:
        raise
    except LakeIngestError:
        if left():
            raise
    if waiting := left():
        one = waiting[0]
        raise Retryable(
            f"signal {one.signal.number} is not carried out yet: {one.note or one.signal.state}; it stays, and the next"
            " run goes on with it"
        )


def _error(why: str) -> LakeIngestError:
    """The error that a signal failed with, by its name at the begin of the reason."""
    name, _, text = why.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LakeIngestError):
        return kind(text)
    return UsageError(why)
