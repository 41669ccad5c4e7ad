"""The documents of signals: each has the signal's state, and a note on how far the signal has come."""

from collections.abc import Iterable
from dataclasses import replace

from lakeingest.core.copies.signals import Action, Agenda, Event, Signal, agenda
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ApprovalNeeded
from lakeingest.pipeline.events import SignalMoved
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.state.signals import SignalDocument


def process_signals(run: OpenRun) -> Agenda:
    """Read the signals, carry out those that need no work on a table, and return what to do next about the others.

    Afterwards each table has its current `paused` and `approved`, and reads for cancelled signals are given up.
    """
    signals = run.signals
    documents = signals.documents = {document.signal.number: document for document in signals.folder.read()}
    copied = {table.id: table for table in run.tables.values() if table.copy is not None}
    signals.visible |= {name: table.progress for name, table in copied.items() if table.staged.visible}
    decided = agenda(
        [document.signal for document in documents.values()],
        {*run.tables, *named_tables(run, documents.values())},
        {name: table.progress for name, table in copied.items()},
        signals.visible,
    )
    signals.waiting = decided.waiting
    for number in decided.cancelled:
        move(run, number, Event.CANCEL)
    for number in decided.finished:
        move(run, number, Event.FINISH)
    for number, why in decided.failed.items():
        move(run, number, Event.FAIL, why=why)
    for table in run.tables.values():
        table.obey(paused=table.id in decided.paused, approved=decided.approved.get(table.id, frozenset()))
        error = table.failure.error if table.failure is not None else None
        if isinstance(error, ApprovalNeeded) and error.ddl in table.approved:
            clear_failure(run.edges, table)
        _give_up_unwanted_read(run, table)
    return decided


def _give_up_unwanted_read(run: OpenRun, table: TableRun) -> None:
    """Give up reading rows of the table again if the signal that chose these rows was cancelled, or has ended."""
    signals = run.signals
    begun = signals.begun.get(table.id)
    if begun is None or not begun.signals:
        return
    chooser = begun.signals[0]
    if chooser not in signals.waiting.get(table.id, ()):
        del signals.begun[table.id]
        table.cancel_reading()


def named_tables(run: OpenRun, documents: Iterable[SignalDocument]) -> list[TableId]:
    """The included tables that signals name, also tables that are not part of this run."""
    return run.edges.config.tables.select({table for document in documents for table in document.signal.tables})


def poll_paused(run: OpenRun, table: TableRun) -> bool:
    """Process the signals between the waves of a copy. True if the table is paused now.

    If there are no signals, only their folder is listed: `process_signals` looks at every table, which is slow after
    each wave if there are thousands of tables.
    """
    if run.signals.documents or run.signals.folder.read():
        process_signals(run)
    return table.paused


def move(
    run: OpenRun, number: int, event: Event, *, why: str | None = None, note: str = "", result: object = None
) -> None:
    """Store an event of a signal in its document. If a re-snapshot fails or is cancelled, also remove its patches.

    If `note` is empty, the old note stays, unless the signal is cancelled.
    """
    signals = run.signals
    document = signals.documents[number]
    text = note or ("" if event is Event.CANCEL else document.note)
    moved = signals.documents[number] = signals.folder.move(document, event, why=why, note=text, result=result)
    if moved.signal.state is not document.signal.state:
        run.edges.observe(SignalMoved(moved))
    if moved.ended:
        signals.tries.pop(number, None)
    if event in {Event.FAIL, Event.CANCEL} and moved.signal.action is Action.RESNAPSHOT:
        _remove_patches(run, moved.signal)


def _remove_patches(run: OpenRun, signal: Signal) -> None:
    """Remove the patches of a re-snapshot that failed or was cancelled. While patches wait for a merge, remove none."""
    table = run.tables.get(signal.tables[0])  # a re-snapshot has one table
    if table is None or table.definition is None or table.copy is None or table.progress.patches:
        return
    PatchFolder.of(run.edges.writing, table.schema).remove(signal.number)


def note_on(run: OpenRun, numbers: Iterable[int], note: str) -> None:
    """Note in the documents of signals how far these have come, or what they wait for.

    A note that a document already has is not stored again.
    """
    documents = run.signals.documents
    for number in numbers:
        if documents[number].note != note:
            run.signals.folder.note(documents[number], note)
            documents[number] = replace(documents[number], note=note)
