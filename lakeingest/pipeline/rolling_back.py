"""Rolling back: someone else has changed a copy, and a person asks to drop these changes.

The owner of the lease drops them, without the source and without Spark. The list of the changes is stored before they
are dropped. So if a run is killed at any moment, the next run drops the rest, and the signal lists all of them.
"""

from dataclasses import replace

from lakeingest.config import Config
from lakeingest.core.copies.signals import Action, Event, State
from lakeingest.errors import ForeignWrite, LakeIngestError, Retryable, Scope, UsageError
from lakeingest.files.file import File, state_of
from lakeingest.lake.formats import open_rollbacks
from lakeingest.lake.rollbacks import Rollback, Rollbacks
from lakeingest.pipeline.events import Observer, SignalMoved
from lakeingest.state.lease import Lease
from lakeingest.state.signals import SignalDocument, SignalFolder
from lakeingest.state.stopped import StoppedTables, read_stopped


def roll_back(
    rollbacks: Rollbacks, lease: Lease, state: File, folder: SignalFolder, document: SignalDocument, observe: Observer
) -> SignalDocument:
    """Carry out a rollback signal, and return its new document.

    If nobody else has changed the table, a new signal fails, but a signal that was begun is finished, because an
    earlier run has dropped the changes. A retryable error leaves the signal open, with a note: the next run tries the
    rollback again. Any other error of the table fails the signal.
    """
    [table] = document.signal.tables

    def move(event: Event, rollback: Rollback | None = None, why: str | None = None) -> SignalDocument:
        """Store an event of the signal, and return the new document, which lists the changes of the rollback."""
        note, result = ("", None) if rollback is None else (str(rollback), rollback.to_json())
        moved = folder.move(document, event, why=why, note=note, result=result)
        if moved.signal.state is not document.signal.state:
            observe(SignalMoved(moved))
        return moved

    try:
        if (foreign := rollbacks.found(table)) is not None:
            rollback = foreign.with_interrupted(document.result)  # and the changes that a killed run has dropped
            document = move(Event.BEGIN, rollback)  # the list of changes is stored before they are dropped
            lease.assert_held()
            rollbacks.roll_back(table, rollback)
        elif document.signal.state is State.PENDING:
            raise UsageError(f"{table}: nobody else has changed its copy; nothing is rolled back")
    except LakeIngestError as error:
        concerns_signal = error.scope is Scope.TABLE or isinstance(error, UsageError)
        if not concerns_signal:
            raise
        if not isinstance(error, Retryable):
            return move(Event.FAIL, why=error.line)
        folder.note(document, error.line)
        return replace(document, note=error.line)
    stopped = read_stopped(state, table)
    if stopped is not None and stopped.error == ForeignWrite.__name__:  # the reason of the stop is gone
        StoppedTables(state).remove(table)
    return move(Event.FINISH, Rollback.of_json(document.result))  # with the changes that were stored at its begin


def roll_all_back(config: Config, lease: Lease, observe: Observer) -> None:
    """Carry out all open rollback signals, in order."""
    state = state_of(config)
    folder = SignalFolder(state, lease.assert_held)
    for document in folder.read():
        if document.signal.action is Action.ROLLBACK and not document.ended:
            roll_back(open_rollbacks(config), lease, state, folder, document, observe)
