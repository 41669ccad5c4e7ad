"""Wait: until readers of the copies see a part of the source's history. Runs publish it; waiting changes nothing."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakeingest.commands.copy_state import shown_state
from lakeingest.commands.report import Report
from lakeingest.commands.signal_status import Signals
from lakeingest.commands.since import parse_gtids, parse_time
from lakeingest.commands.status import status
from lakeingest.config import Config
from lakeingest.core.binlog.goal import Before, Goal, Written, is_seen
from lakeingest.core.binlog.position import GtidSet, Position, is_before
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.freshness import complete_to, fresh_as_of
from lakeingest.core.figures.shown import SHOWN, Shown, iso_time
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded, Retryable, SourceDiverged, UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.preflight import copies
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.state.fresh import read_fresh
from lakeingest.state.stopped import StoppedTables

_NAMED = 3  # so many tables are named by the error of a wait that has taken too long


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table of which readers see every change up to `complete_to`, and every change from before the time `as_of`.

    `as_of` is in seconds since 1970. Both are None if they are unknown, or if nothing is published.
    """

    table: TableId
    complete_to: Position | None
    as_of: float | None

    def __str__(self) -> str:
        if self.complete_to is None:
            return f"{self.table} (nothing is published)"
        return f"{self.table} (up to {self.complete_to.at})"


@dataclass(frozen=True, slots=True, repr=False)
class Waited(Report):
    """The tables whose readers see the goal now, and how many seconds the wait took."""

    tables: tuple[SeenTable, ...]
    seconds: float

    headers = ("table", "complete to", "as of")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table."""
        for one in self.tables:
            yield str(one.table), one.complete_to and str(one.complete_to.at), iso_time(one.as_of)


def goal_of(until: str | None, gtid: str | None) -> Goal | None:
    """The goal that a user writes. None without either text: the goal is then all that the source has written.

    Raises UsageError if `until` is no time or `gtid` is no GTID set, or if both are given.
    """
    if until is not None and gtid is not None:
        raise UsageError("--until and --gtid are two goals: give one of them")
    if gtid is not None:
        return parse_gtids(gtid)
    return None if until is None else Before(parse_time("--until", until, datetime.now(UTC)).timestamp())


def wait(
    config: Config,
    tables: Sequence[str] = (),
    goal: Goal | None = None,
    *,
    max_seconds: float | None = None,
    every: float = 1.0,
) -> Waited:
    """Look every `every` seconds until readers of all these tables see the goal.

    Without a `goal`, the goal is all that the source has written when the wait begins. Without names, the tables are
    those that runs follow.

    Raises:
        Retryable: `max_seconds` have passed.
        OperatorNeeded: a table is paused.
        UsageError: no run follows a table; or the goal is a GTID set, and the source has no GTIDs.
        LakeIngestError: the error of a table that has stopped, and that no run will try again by itself.

    """
    began = time.monotonic()
    seen = {one.table: one for one in _look(config, _followed(config, tables))}
    if goal is None:
        goal = _written(config, list(seen.values()))
    while True:
        if isinstance(goal, GtidSet):
            _require_gtids(list(seen.values()))
        missing = [one for one in seen.values() if not is_seen(goal, one.complete_to, one.as_of)]
        seconds = time.monotonic() - began
        if not missing:
            return Waited(tuple(seen.values()), seconds)
        if max_seconds is not None and seconds + every > max_seconds:  # the next look would be too late
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            names = ", ".join(map(str, missing[:_NAMED]))
            raise Retryable(f"readers do not see it yet after {spoken(seconds)}: {names}{more}")
        _require_work(config, missing)
        time.sleep(every)
        seen |= {one.table: one for one in _look(config, [one.table for one in missing])}


def _followed(config: Config, names: Sequence[str]) -> list[TableId]:
    """The tables with these names; without names, all that runs follow.

    Raises UsageError if no run follows one of the named tables; without names, if no run follows any table.
    """
    found = status(config, names)
    left = [one.table for one in found if not one.included or one.copied_once or one.in_source is False]
    if left and (names or len(left) == len(found)):
        raise UsageError(f"no run follows {', '.join(map(str, left))}; `lakeingest status` says why")
    return [one.table for one in found if one.table not in left]


def _look(config: Config, tables: Sequence[TableId]) -> list[SeenTable]:
    """What readers of each table see. Raises the error of a copy that cannot be read."""
    notes = read_fresh(state_of(config))  # before the copies: then a note is never of a later commit than its copy
    held = copies(open_target(config), tables)
    if held.unopened is not None:
        raise held.unopened
    seen = []
    for table in tables:
        if table in held.refused:
            raise held.refused[table]
        staged = held.staged.get(table)
        recorded = None if staged is None else Shown.of_text(held.properties[table].get(SHOWN, ""))
        shown = None if staged is None else shown_state(staged, recorded)
        position, note = None if shown is None else shown.position, notes.get(table)
        seen.append(SeenTable(table, complete_to(position, note), fresh_as_of(position, note)))
    return seen


def _written(config: Config, seen: Sequence[SeenTable]) -> Written:
    """All that the source has written now. Raises SourceDiverged if readers see more than that.

    Byte positions are compared only if they are of the same server. If the server's binlog ends before a position that
    readers have seen, the server has begun another binlog, as after a reset.
    """
    with BinlogSource.open(config.source) as source:
        state = source.state()  # read first: so the position, which is read after it, contains all its transactions
        written = Written(state.uuid, source.written(), state.executed)
    for one in seen:
        position = one.complete_to
        if position is not None and position.server_uuid == state.uuid and is_before(written.at, position.at):
            raise SourceDiverged(
                f"{one.table}: the binlog of the source ends at {written.at}, before the position {position.at} of the"
                " copy; the next run says what to do"
            )
    return written


def _require_gtids(seen: Sequence[SeenTable]) -> None:
    """Raise UsageError if one of the tables has no GTIDs, so that its readers never see a GTID set."""
    for one in seen:
        if one.complete_to is not None and one.complete_to.gtids is None:
            raise UsageError(
                f"{one.table} has no GTIDs, because MariaDB does not say which are visible, or gtid_mode is not ON: use"
                " --until, or neither"
            )


def _require_work(config: Config, missing: Sequence[SeenTable]) -> None:
    """Raise an error if a person has to act before readers of one of these tables can see more."""
    signals = Signals.read(config, None)
    records = StoppedTables(state_of(config))  # lists the records once: most tables have none
    for one in missing:
        stopped = records.read(one.table)
        if stopped is not None and stopped.exit != Retryable.exit_code:  # after a Retryable, the next run tries again
            raise stopped.as_error()
        if (paused := signals.pause_of(config, one.table, one.complete_to)) is not None:
            raise OperatorNeeded(f"{one.table}: {paused}; `lakeingest resume` lets it go on")
