"""What the owner of the lease does about signals between batches.

`look` reads them, carries out what takes no work on a table (pause, resume, cancel), and writes down what has come of
the others. `serve` runs one wave of each table's next re-snapshot, and maintenance. All is decided anew each time, from
the documents and from the progress of the tables, so a run may be killed between any two of these steps.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import replace

from lakeingest.core.schema import TableId
from lakeingest.core.signals import Action, Agenda, Event, Request, Signal, State, agenda
from lakeingest.errors import BinlogGone, LakeIngestError, Retryable, StorageFailed
from lakeingest.pipeline import resnapshot
from lakeingest.pipeline.edge_errors import translate_errors
from lakeingest.pipeline.events import SignalMoved
from lakeingest.pipeline.maintenance import LEFTOVER_AGE, Upkeep, maintain
from lakeingest.pipeline.open_run import OpenRun
from lakeingest.pipeline.resnapshot import Step
from lakeingest.pipeline.table_run import TableRun
from lakeingest.state.signals import SignalDocument

TRIES = 5  # of a bounded run, after an error that may pass by itself
PAUSE_SECONDS = 2.0  # before the next one


def look(run: OpenRun) -> Agenda:
    """Read the signals and do what takes no work on a table; what is to be done next about the others.

    From then on `paused` is right for each table. What was being read for a signal that is cancelled is dropped.
    """
    signals = run.signals
    documents = signals.documents = {one.signal.number: one for one in signals.folder.read()}
    copied = {table.id: table for table in run.tables.values() if table.copy is not None}
    signals.shown |= {name: table.progress for name, table in copied.items() if table.staged.visible}
    found = agenda(
        [one.signal for one in documents.values()],
        {*run.tables, *included(run, documents.values())},
        {name: table.progress for name, table in copied.items()},
        signals.shown,
    )
    for number in found.cancelled:
        _move(run, number, Event.CANCEL)
    for number in found.finished:
        _move(run, number, Event.FINISH)
    for number, why in found.failed.items():
        _move(run, number, Event.FAIL, why=why)
    for table in run.tables.values():
        table.paused = table.id in found.paused
        begun = signals.begun.get(table.id)
        if begun is not None and begun.signals[0] not in found.waiting.get(table.id, ()):
            del signals.begun[table.id]
            resnapshot.cancel(table)
    return found


def included(run: OpenRun, documents: Iterable[SignalDocument]) -> list[TableId]:
    """The tables that signals name and the pipeline includes, also those that this run has nothing to do with."""
    return run.edges.config.tables.select({table for one in documents for table in one.signal.tables})


def is_paused(run: OpenRun, table: TableRun) -> bool:
    """Whether the table is paused now; asked after each wave of its copy."""
    look(run)
    return table.paused


def serve(run: OpenRun, *, wait: bool) -> bool:
    """Run one wave of each table's next re-snapshot, and maintenance; True where something came of it.

    With `wait` each wave is waited for, else waves are read in the background. An error of one table's re-snapshot
    fails its signal, and the run goes on.
    """
    found = look(run)
    worked = False
    for name, request in found.next.items():
        if (table := run.tables.get(name)) is None or (why := _hindrance(table)):
            _note(run, request.signals, "this run is for other tables" if table is None else why)
            continue
        worked |= _resnapshot(run, table, request, wait=wait)
    for name, numbers in found.waiting.items():
        if name not in found.next:
            _note(run, numbers, f"{name} is paused" if name in found.paused else f"{name} is copied for the first time")
    for number, before in found.superseded.items():
        _note(run, [number], f"signal {before} reads its rows, too")
    for signal in found.maintain:
        worked |= _maintain(run, signal)
    if worked:
        look(run)
    return worked


def drop(run: OpenRun) -> None:
    """The run ends: nothing is read for signals any more. What is committed stays; the next run goes on from it."""
    for table in run.tables.values():
        resnapshot.cancel(table)
    run.signals.begun.clear()


def _hindrance(table: TableRun) -> str:
    """Why a table's re-snapshot cannot be run now; empty where it can."""
    if table.stop is not None:
        return f"{table.id} has stopped: {table.stop.record.error}: {table.stop.record.message}"
    return "" if table.requested else "this run is for other tables"


def _resnapshot(run: OpenRun, table: TableRun, request: Request, *, wait: bool) -> bool:
    request = run.signals.begun[table.id] = _as_begun(run, table, request)
    first = request.signals[0]
    if run.signals.documents[first].signal.state is State.PENDING:
        _move(run, first, Event.BEGIN)
    try:
        with translate_errors(run.edges.config.source, run.edges.target):
            done = resnapshot.step(run.edges, run.binlog, table, request, _settled(run, table), wait=wait)
    except Retryable as error:
        if not error.of_table:
            drop(run)
            raise
        return _try_again(run, table, first, error)
    except (StorageFailed, BinlogGone):
        drop(run)
        raise
    except LakeIngestError as error:
        resnapshot.cancel(table)
        del run.signals.begun[table.id]
        _move(run, first, Event.FAIL, why=_named(error))
        return True
    run.signals.tries.pop(first, None)
    if done is Step.DONE:
        del run.signals.begun[table.id]
    elif done is Step.MERGED:
        reread = table.progress.reread
        up_to = "" if reread is None or reread.up_to is None else f", read again up to key {list(reread.up_to)}"
        _note(run, [first], f"{table.progress.rows:,} rows in the copy{up_to}")
    return done is not Step.READING


def _as_begun(run: OpenRun, table: TableRun, request: Request) -> Request:
    """The request with the signals that it was begun for: one that came later is not answered by rows read before."""
    begun = run.signals.begun.get(table.id)
    if begun is None or begun.signals[0] != request.signals[0]:
        return request
    over = {number for number in begun.signals if run.signals.documents[number].ended}
    return replace(request, signals=tuple(number for number in begun.signals if number not in over))


def _settled(run: OpenRun, table: TableRun) -> Collection[int]:
    """The signals that the table's progress has answered and whose documents say that they are done."""
    documents = run.signals.documents
    return {number for number in table.progress.answered if number not in documents or documents[number].ended}


def _try_again(run: OpenRun, table: TableRun, number: int, error: Retryable) -> bool:
    """The table is loaded as the lake has it, to try once more; False after some tries: the next run goes on."""
    resnapshot.cancel(table)
    del run.signals.begun[table.id]
    tries = run.signals.tries[number] = run.signals.tries.get(number, 0) + 1
    _note(run, [number], f"tried {tries} times: {_named(error)}")
    staged = run.edges.target.recover(table.id)
    if staged is not None:
        table.advance(staged)
    time.sleep(PAUSE_SECONDS)
    return tries < TRIES


def _maintain(run: OpenRun, signal: Signal) -> bool:
    """Maintain the signal's tables; False where this run cannot, because they are not all its own."""
    requested = {table.id: table for table in run.requested}
    chosen = signal.tables or tuple(requested)
    if not requested.keys() >= set(chosen) or (not signal.tables and len(requested) < len(run.tables)):
        _note(run, [signal.number], "this run is for other tables")
        return False
    _move(run, signal.number, Event.BEGIN)
    done: list[Upkeep] = []
    failed: list[str] = []
    for name in chosen:
        table = requested[name]
        if table.paused or table.stop is not None or table.copy is None or table.has_missing_chunks:
            reason = "it is paused" if table.paused else "its copy is not complete, or has stopped"
            done.append(Upkeep(name, left_out=reason))
            continue
        try:
            with translate_errors(run.edges.config.source, run.edges.target):
                done.append(maintain(run.edges, run.binlog.spool, table))
        except LakeIngestError as error:
            if not error.of_table:
                raise
            failed.append(f"{name}: {_named(error)}")
    run.edges.lease.assert_held()
    removed, freed = run.binlog.spool.sweep(LEFTOVER_AGE)
    result = {
        "tables": [one.to_json() for one in done],
        "spool": {"files_removed": removed, "bytes_freed": freed},
    }
    note = "; ".join(map(str, done))
    if failed:
        _move(run, signal.number, Event.FAIL, why="; ".join(failed), note=note, result=result)
    else:
        _move(run, signal.number, Event.FINISH, note=note, result=result)
    return True


def _move(
    run: OpenRun, number: int, event: Event, *, why: str | None = None, note: str = "", result: object = None
) -> None:
    """Write down what has happened to a signal."""
    signals = run.signals
    before = signals.documents[number]
    run.edges.lease.assert_held()
    kept = note or ("" if event is Event.CANCEL else before.note)
    moved = signals.documents[number] = signals.folder.move(before, event, why=why, note=kept, result=result)
    if moved.signal.state is not before.signal.state:
        run.edges.observe(SignalMoved(moved))
    if moved.ended and moved.signal.action not in {Action.PAUSE, Action.RESUME}:
        signals.tries.pop(number, None)


def _note(run: OpenRun, numbers: Iterable[int], note: str) -> None:
    """Say how far signals have come, or what they wait for, where that is not said already."""
    documents = run.signals.documents
    for number in numbers:
        if documents[number].note != note:
            run.edges.lease.assert_held()
            run.signals.folder.note(documents[number], note)
            documents[number] = replace(documents[number], note=note)


def _named(error: LakeIngestError) -> str:
    return f"{error.runbook}: {' '.join(str(error).split())}"
