"""The line of each event of a run, for logs, terminals, notebooks and reports; and how serious the event is."""

import time
from collections.abc import Callable
from typing import Literal

from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.freshness import age
from lakeingest.core.printable import printable
from lakeingest.pipeline.events import (
    ClockWrong,
    Event,
    FailedOver,
    Following,
    GateRun,
    LeftAsItIs,
    Lifted,
    Measured,
    Merged,
    PointMade,
    Published,
    Quarantined,
    RowsDiffer,
    RowsReread,
    ShownApart,
    SignalMoved,
    SourceLost,
    Spooled,
    StartedOver,
    TableStopped,
    Throttled,
    TookBack,
    TookOver,
    Undelivered,
    Unusual,
    WaveCommitted,
    WentBack,
)

Level = Literal["info", "warning", "error"]
HEARTBEAT_SECONDS = 60.0  # so long after the last line, a run that follows says that it is at work
_WARNINGS = (
    ClockWrong
    | LeftAsItIs
    | Quarantined
    | RowsDiffer
    | ShownApart
    | SourceLost
    | TookBack
    | Undelivered
    | Unusual
    | WentBack
)
_SHOWN_ALWAYS = (
    PointMade
    | Published
    | ShownApart
    | SignalMoved
    | SourceLost
    | TableStopped
    | StartedOver
    | Lifted
    | RowsDiffer
    | Throttled
    | TookBack
    | TookOver
    | Undelivered
    | Unusual
)


def line_maker(now: Callable[[], float] = time.monotonic) -> Callable[[Event], str | None]:
    """Returns a function that gives the line of each event of a run; None for an event without a line.

    Once the run has caught up and follows the source, only publishes, signals, DDL and problems have a line. If there
    is no such line for HEARTBEAT_SECONDS, the next measurement of the tables has one. `now`: a monotonic clock.
    """
    is_following, said_at = False, now()

    def line_of(event: Event) -> str | None:
        nonlocal is_following, said_at
        text = None
        if not is_following or isinstance(event, _SHOWN_ALWAYS):
            text = line(event)
        elif isinstance(event, Measured) and now() - said_at >= HEARTBEAT_SECONDS:
            text = _heartbeat(event, now() - said_at)
        is_following |= isinstance(event, Following)  # set after its own line, so that this event has one
        said_at = said_at if text is None else now()
        return text

    return line_of


def level(event: Event) -> Level:
    """How serious an event is. An error: a table stopped, and does not go on in this run."""
    match event:
        case TableStopped():
            return "warning" if event.again else "error"
        case GateRun():
            return "warning" if event.failed or event.warnings else "info"
    return "warning" if isinstance(event, _WARNINGS) else "info"


def _heartbeat(event: Measured, quiet_seconds: float) -> str:
    """How far the tables are, in one line, after so many seconds without a line."""
    tables = event.tables
    lags = [table.lag_bytes for table in tables if table.lag_bytes is not None]
    moments = [table.as_of for table in tables if table.as_of is not None]
    facts = [f"{len(tables):,} tables"]
    if lags:
        facts.append(f"at most {max(lags):,} bytes behind")
    if (oldest := age(min(moments, default=None), time.time())) is not None:
        facts.append(f"readers see them as of {spoken(oldest)} ago or later")
    counts = {
        "with an unknown lag": len(tables) - len(lags),
        "stopped": sum(bool(table.error) for table in tables),
        "paused": sum(table.paused for table in tables),
    }
    facts += [f"{number:,} {what}" for what, number in counts.items() if number]
    return f"following, nothing to say for {spoken(quiet_seconds)}: {', '.join(facts)}"


# Ends the line of a merge if the copied rows may have some of its changes already
_REPEATED = "; without GTIDs, all changes since the binlog file began, most of which the copied rows had already"


def line(event: Event) -> str | None:
    """The line of an event, with only printable characters; None for an event that has no line."""
    text = _raw_line(event)
    return None if text is None else printable(text)


def _raw_line(event: Event) -> str | None:
    """The line of an event, in which names may have unprintable characters; None for an event that has no line."""
    match event:
        case WaveCommitted():
            rate = event.rows / event.seconds if event.seconds else 0  # a wave can take no measurable time
            return (
                f"{event.table}: wave {event.wave}, {event.chunks} chunks, {event.rows:,} rows in {event.seconds:.1f} s"
                f" ({rate:,.0f} rows/s)" + (", the last" if event.complete else "")
            )
        case RowsReread():
            last = ", the last" if event.is_last else ""
            return f"{event.table}: {event.rows:,} rows read again in {event.seconds:.1f} s{last}"
        case Spooled() if event.transactions:  # without transactions, there is no line
            return (
                f"binlog: {event.rows:,} change rows of {event.transactions:,} transactions spooled, up to {event.stop}"
            )
        case Merged():
            return (
                f"{event.table}: merged {event.applied:,} of {event.read:,} change rows:"
                f" {event.inserted:,} keys inserted, {event.updated:,} updated, {event.deleted:,} deleted"
                f" ({event.seconds:.1f} s)"
                f"{_REPEATED if event.repeats else ''}"
            )
        case Throttled():
            return f"{event.table}: its copy waits: {event.reason}"
        case GateRun():
            verdict = f"{event.failed} of {event.evaluated} expectations fail" if event.failed else "passed"
            warnings = f", {event.warnings} warnings" if event.warnings else ""
            return f"{event.table}: gate {event.stage}: {verdict}{warnings} ({event.seconds:.1f} s)"
        case Published():
            return f"{event.table}: published {event.rows:,} rows as of {event.position}"
        case ClockWrong() | RowsDiffer():
            return event.finding
        case Undelivered():
            return f"{event.what}: {event.reason}; the run goes on"
    return _line_of_other_event(event)


def _line_of_other_event(event: Event) -> str | None:
    """The line of an event for which `_raw_line` has none of its own; None for an event that has no line.

    Such events are about the source, a signal, a point, a table that stops, or how a copy goes on.
    """
    match event:
        case Following():
            return f"caught up with the source in {event.seconds:.1f} s; from now on each publish is a line"
        case FailedOver():
            return f"the source is another server now, {event.server_uuid}: {event.tables:,} tables go on with it"
        case TableStopped():
            return f"{event.table}: {_stop_reason(event)}"
        case LeftAsItIs():
            return f"{event.table} {event.reason}"
        case SignalMoved():
            return str(event.document)
        case PointMade():
            others = f", {event.left_out:,} left out" if event.left_out else ""
            return f"point {event.name}: {event.tables:,} tables as of {event.position}{others}"
        case ShownApart():
            return f"{event.tables:,} tables are not published at once, as of one place: {event.reason}"
        case SourceLost():  # leave out the advice at the end of the reason, because the run itself tries again
            return f"{event.reason.partition('; run the same')[0]}; trying again in {event.pause:.1f} s"
    return _line_of_copy(event)


def _line_of_copy(event: Event) -> str | None:
    """The line of an event that says how the copy of a table goes on; None for any other event."""
    match event:
        case WentBack():
            return f"{event.table}: {event.reason}; going on from the newest commit whose files are whole"
        case StartedOver():
            how = "rows are compared with the source" if event.compared else "copy is started over"
            return f"{event.table}: its {how}; readers see the old rows until that is complete"
        case TookOver():
            taken = f"the table that {event.stopped} made ({event.rows:,} rows)"
            return f"{event.table}: {taken} is compared with the source; until the end, readers see it as it is"
        case TookBack():
            return (
                f"{event.table}: its publish took back a clustering of someone else ({', '.join(event.commits)});"
                " queries on its files fail, and can be repeated; do not cluster a copy that changes, or pause it first"
            )
        case Lifted():
            return f"{event.table}: its DDL is followed, up to {event.position}"
        case Unusual():
            return f"{event.table}: unusual: {event.finding}"
        case Quarantined():
            return f"{event.table}: {event.rows:,} rows that fail moved to the quarantine of {event.listed:,} keys"
    return None


def _stop_reason(event: TableStopped) -> str:
    """Why a table stopped, in one line."""
    reason = " ".join(str(event.error).split())
    if event.again:  # leave out the end of the message, which says what to do, because nobody has to do anything
        return f"its rows are read again, because {reason.rpartition('; ')[0] or reason}"
    return f"stopped, the other tables go on: {reason}"
