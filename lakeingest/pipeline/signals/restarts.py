"""Restarts: the copy of a stopped table is started over if a signal asks for all its rows."""

from lakeingest.core.copies.signals import Agenda, Event, Signal
from lakeingest.errors import GateFailed, Retryable
from lakeingest.pipeline.joining.starting_over import hindrance, start_over
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.signals.documents import move, note_on, process_signals


def restart_stopped(run: OpenRun) -> None:
    """Process the signals, and start the copies of stopped tables over if signals ask for that."""
    start_stopped_over(run, process_signals(run))


def start_stopped_over(run: OpenRun, agenda: Agenda) -> bool:
    """Start over the copy of each stopped table for which a signal asks for all rows. True if a signal has a new state.

    If a copy cannot be started over, the reason is noted on the signal. If the new copy stops with an error, the signal
    fails; but after a retryable error or a failed gate the signal stays open.
    """
    has_new_state = False
    for name in sorted(agenda.whole & run.tables.keys()):
        table = run.tables[name]
        signals = [run.signals.documents[number].signal for number in agenda.waiting[name]]
        signal = next(signal for signal in signals if signal.scope is not None and signal.scope.whole)
        if table.failure is None or not table.requested:
            continue
        if not has_begun(table, signal.number):
            if not _try_to_start_over(run, table, signal):
                continue
            if name not in run.failures:  # the new copy has begun, and has not stopped
                move(run, signal.number, Event.BEGIN)
                has_new_state = True
                continue
        # the new copy has stopped, now or before
        if not isinstance(table.failure.error, Retryable | GateFailed):
            move(run, signal.number, Event.FAIL, why=table.failure.error.line)
            has_new_state = True
    return has_new_state


def _try_to_start_over(run: OpenRun, table: TableRun, signal: Signal) -> bool:
    """Start the copy over for a signal. False if that cannot be done now; the reason is noted on the signal."""
    if hindrance(table, whole=True):
        return False  # `serving` notes the reason
    why = start_over(run, table, over_gap=signal.scope is not None and signal.scope.gap)
    if why is not None:
        note_on(run, [signal.number], f"{table.id} has stopped, and its copy cannot be started over: {why.line}")
    return why is None


def has_begun(table: TableRun, number: int) -> bool:
    """Whether the table's copy is being started over for this signal, perhaps also for others."""
    if table.copy is None or not table.staged.is_restarted or table.progress.reread is None:
        return False
    return number in table.progress.reread.signals
