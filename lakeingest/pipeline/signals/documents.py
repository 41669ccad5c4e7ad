"""The documents of signals: read, moved to their next state, and noted how far they have come."""

from collections.abc import Iterable
from dataclasses import replace

from lakeingest.core.schema import TableId
from lakeingest.core.signals import Action, Agenda, Event, Signal, agenda
from lakeingest.errors import ApprovalNeeded
from lakeingest.pipeline.events import SignalMoved
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.state.signals import SignalDocument


def look(run: OpenRun) -> Agenda:
    """Read the signals, carry out those that take no work on a table, and return what to do next about the others.

    From then on `paused` is right for each table. Reads for a signal that is cancelled are dropped.
    """
    signals = run.signals
    documents = signals.documents = {one.signal.number: one for one in signals.folder.read()}
    copied = {table.id: table for table in run.tables.values() if table.copy is not None}
    signals.visible |= {name: table.progress for name, table in copied.items() if table.staged.visible}
    found = agenda(
        [one.signal for one in documents.values()],
        {*run.tables, *included(run, documents.values())},
        {name: table.progress for name, table in copied.items()},
        signals.visible,
    )
    signals.waiting = found.waiting
    for number in found.cancelled:
        move(run, number, Event.CANCEL)
    for number in found.finished:
        move(run, number, Event.FINISH)
    for number, why in found.failed.items():
        move(run, number, Event.FAIL, why=why)
    for table in run.tables.values():
        table.obey(paused=table.id in found.paused, approved=found.approved.get(table.id, frozenset()))
        error = table.failure.error if table.failure is not None else None
        if isinstance(error, ApprovalNeeded) and error.ddl in table.approved:
            clear_failure(run.edges, table)
        begun = signals.begun.get(table.id)
        if begun is not None and begun.signals and begun.signals[0] not in found.waiting.get(table.id, ()):
            del signals.begun[table.id]
            table.cancel_reading()
    return found


def included(run: OpenRun, documents: Iterable[SignalDocument]) -> list[TableId]:
    """The tables that signals name and the pipeline includes, also those that this run has nothing to do with."""
    return run.edges.config.tables.select({table for one in documents for table in one.signal.tables})


def poll_paused(run: OpenRun, table: TableRun) -> bool:
    """Look at the signals, and say whether the table is paused now: between the waves of a copy."""
    look(run)
    return table.paused


def move(
    run: OpenRun, number: int, event: Event, *, why: str | None = None, note: str = "", result: object = None
) -> None:
    """Write down what has happened to a signal."""
    signals = run.signals
    before = signals.documents[number]
    run.edges.lease.assert_held()
    stays = note or ("" if event is Event.CANCEL else before.note)
    moved = signals.documents[number] = signals.folder.move(before, event, why=why, note=stays, result=result)
    if moved.signal.state is not before.signal.state:
        run.edges.observe(SignalMoved(moved))
    if moved.ended:
        signals.tries.pop(number, None)
    if event in {Event.FAIL, Event.CANCEL} and moved.signal.action is Action.RESNAPSHOT:
        _remove_patches(run, moved.signal)


def _remove_patches(run: OpenRun, signal: Signal) -> None:
    """Remove the patches of a signal that is not carried out, unless the next merge needs it."""
    table = run.tables.get(signal.tables[0])
    if table is None or table.definition is None or table.copy is None or table.progress.patches:
        return
    PatchFolder.of(run.edges.state, table.schema).remove(signal.number)


def note_on(run: OpenRun, numbers: Iterable[int], note: str) -> None:
    """Say how far signals have come, or what they wait for, where that is not said already."""
    documents = run.signals.documents
    for number in numbers:
        if documents[number].note != note:
            run.edges.lease.assert_held()
            run.signals.folder.note(documents[number], note)
            documents[number] = replace(documents[number], note=note)
