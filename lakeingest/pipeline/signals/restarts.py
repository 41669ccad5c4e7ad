"""Restarts: the copies of stopped tables are started over where a signal asks for that."""

from lakeingest.core.signals import Agenda, Event
from lakeingest.errors import GateFailed, Retryable
from lakeingest.pipeline.joining.starting_over import hindrance, start_over
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.signals.documents import look, move, note_on


def restart_stopped(run: OpenRun) -> None:
    """Start the copies of stopped tables over, where that is asked for; their chunks are missing then."""
    start_stopped_over(run, look(run))


def start_stopped_over(run: OpenRun, found: Agenda) -> bool:
    """The same, for signals that were looked at; whether one of them has moved.

    What cannot be started over is noted. An error of the new copy fails the signal, unless it may pass by itself.
    """
    moved = False
    for name in sorted(found.whole & run.tables.keys()):
        table = run.tables[name]
        documents = [run.signals.documents[number] for number in found.waiting[name]]
        whole = next(one.signal for one in documents if one.signal.scope is not None and one.signal.scope.whole)
        if table.failure is None or not table.requested:
            continue
        if not has_begun(table, whole.number):
            if hindrance(table, whole=True):
                continue
            if why := start_over(run, table, over_gap=whole.scope is not None and whole.scope.gap):
                note_on(run, [whole.number], f"{name} has stopped, and its copy cannot be started over: {why.line}")
                continue
            if name not in run.failures:
                move(run, whole.number, Event.BEGIN)
                moved = True
                continue
        if not isinstance(table.failure.error, Retryable | GateFailed):
            move(run, whole.number, Event.FAIL, why=table.failure.error.line)
            moved = True
    return moved


def has_begun(table: TableRun, number: int) -> bool:
    """Whether the copy that is not complete was started over for this signal, too."""
    if table.copy is None or not table.staged.is_restarted or table.progress.reread is None:
        return False
    return number in table.progress.reread.signals
