"""Rolling back: what a person asks for after someone else has changed a copy, carried out by the owner of the lease.

It takes neither the source nor Spark. What is to be dropped is stored before it is dropped, so that a run may be killed
anywhere: the next one finds what is left of it, or nothing, and the signal lists all that was dropped.
"""

from dataclasses import replace

from lakeingest.config import Config
from lakeingest.core.signals import Action, Event, State
from lakeingest.errors import ForeignWrite, LakeIngestError, Retryable, Scope, UsageError
from lakeingest.files.file import File, state_of
from lakeingest.lake.formats import open_rollbacks
from lakeingest.lake.rollbacks import Rollback, Rollbacks
from lakeingest.pipeline.events import Observer, SignalMoved
from lakeingest.state.lease import Lease
from lakeingest.state.signals import SignalDocument, SignalFolder
from lakeingest.state.stopped import read_stopped, remove_stopped


def roll_back(
    rollbacks: Rollbacks, lease: Lease, state: File, folder: SignalFolder, before: SignalDocument, observe: Observer
) -> SignalDocument:
    """Carry out a signal; its document after that. It fails where nobody else changed the table.

    An error that may pass by itself leaves it as it is, with a note: the next run tries again.
    """
    [table] = before.signal.tables

    def move(event: Event, wanted: Rollback | None = None, why: str | None = None) -> SignalDocument:
        lease.assert_held()
        note, result = ("", None) if wanted is None else (str(wanted), wanted.to_json())
        moved = folder.move(before, event, why=why, note=note, result=result)
        if moved.signal.state is not before.signal.state:
            observe(SignalMoved(moved))
        return moved

    try:
        if (found := rollbacks.found(table)) is not None:
            wanted = found.after(before.result)
            before = move(Event.BEGIN, wanted)
            lease.assert_held()
            rollbacks.roll_back(table, wanted)
        elif before.signal.state is State.PENDING:
            raise UsageError(f"{table}: nobody else has changed its copy; nothing is rolled back")
    except LakeIngestError as error:
        if not (error.scope is Scope.TABLE or isinstance(error, UsageError)):
            raise
        if not isinstance(error, Retryable):
            return move(Event.FAIL, why=error.line)
        lease.assert_held()
        folder.note(before, error.line)
        return replace(before, note=error.line)
    stopped = read_stopped(state, table)
    if stopped is not None and stopped.error == ForeignWrite.__name__:
        remove_stopped(state, table)
    return move(Event.FINISH, Rollback.of_json(before.result))


def roll_all_back(config: Config, lease: Lease, observe: Observer) -> None:
    """Carry out all signals for that which have not ended, in order."""
    state = state_of(config)
    folder = SignalFolder(state)
    for document in folder.read():
        if document.signal.action is Action.ROLLBACK and not document.ended:
            roll_back(open_rollbacks(config), lease, state, folder, document, observe)
