"""What the owner of the lease does about signals between batches.

`look` reads them, carries out those that take no work on a table (pause, resume, cancel), and records which others have
ended. `serve` runs one wave of each table's next re-snapshot, rollbacks and maintenance. All is decided anew each time,
from the documents and from the progress of the tables, so a run may be killed between any two of these steps.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import replace

from lakeingest.core.schema import TableId
from lakeingest.core.signals import Action, Agenda, Event, Request, Signal, State, agenda
from lakeingest.errors import (
    ApprovalNeeded,
    BinlogGone,
    ForeignWrite,
    GateFailed,
    LakeIngestError,
    Retryable,
    SchemaChanged,
    StaleWriter,
    StorageFailed,
)
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_rollbacks
from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.events import SignalMoved
from lakeingest.pipeline.joining.starting_over import hindrance, start_over
from lakeingest.pipeline.opening.opening import is_restarted
from lakeingest.pipeline.rolling_back import roll_back
from lakeingest.pipeline.run.clocks import lead
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.foreign_keys import parents_first
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import resume, stop, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import reload
from lakeingest.pipeline.signals import resnapshot
from lakeingest.pipeline.signals.maintenance import LEFTOVER_AGE, Upkeep, maintain
from lakeingest.pipeline.signals.resnapshot import Step
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.state.signals import SignalDocument

TRIES = 5  # of a bounded run, after an error that may pass by itself
PAUSE_SECONDS = 2.0  # before the next one


def look(run: OpenRun) -> Agenda:
    """Read the signals, carry out those that take no work on a table, and return what to do next about the others.

    From then on `paused` is right for each table. What was being read for a signal that is cancelled is dropped.
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
        _move(run, number, Event.CANCEL)
    for number in found.finished:
        _move(run, number, Event.FINISH)
    for number, why in found.failed.items():
        _move(run, number, Event.FAIL, why=why)
    for table in run.tables.values():
        table.paused, table.approved = table.id in found.paused, found.approved.get(table.id, frozenset())
        error = table.stop.error if table.stop is not None else None
        if isinstance(error, ApprovalNeeded) and error.ddl in table.approved:
            resume(run.edges, table)
        begun = signals.begun.get(table.id)
        if begun is not None and begun.signals and begun.signals[0] not in found.waiting.get(table.id, ()):
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
    """Run a wave of the next re-snapshots, and maintenance; True if a wave was published or a signal ended.

    One table is read at a time, so that `source.max_connections` is enough. With `wait` the wave is waited for, else it
    is read in the background. An error of one table's re-snapshot fails its signal, and the run goes on.
    """
    found = look(run)
    worked = _start_over(run, found)
    if worked:
        found = look(run)
    tables = {name: run.tables[name] for name in found.next if name in run.tables}
    going_on = [table for table in tables.values() if table.requested and table.stop is None]
    going_on = parents_first(run.binlog, going_on)
    for table in going_on:
        if not any(other.reading is not None for other in going_on if other is not table):
            worked |= _resnapshot(run, table, found.next[table.id], wait=wait)
    _note_waiting(run, found)
    for signal in found.rollbacks:
        worked |= _roll_back(run, signal)
    for signal in found.maintain:
        worked |= _maintain(run, signal)
    if worked:
        look(run)
    return worked


def _note_waiting(run: OpenRun, found: Agenda) -> None:
    """Say of each signal that this run does not carry out now what it waits for."""
    for name, numbers in found.waiting.items():
        table = run.tables.get(name)
        goes_on = table is not None and table.requested and table.stop is None
        for number in numbers:
            if number in found.superseded:
                _note(run, [number], f"signal {found.superseded[number]} reads its rows, too")
            elif name not in found.next or not goes_on:
                _note(run, [number], _waits(run, name, number, found))


def drop(run: OpenRun) -> None:
    """The run ends: nothing is read for signals any more. What is committed stays; the next run goes on from it."""
    for table in run.tables.values():
        resnapshot.cancel(table)
    run.signals.begun.clear()


def restart_stopped(run: OpenRun) -> None:
    """Start the copies of stopped tables over, where that is asked for; their chunks are missing then."""
    _start_over(run, look(run))


def _start_over(run: OpenRun, found: Agenda) -> bool:
    """The same, for signals that were looked at; whether one of them has moved.

    What cannot be started over is noted. An error of the new copy fails the signal, unless it may pass by itself.
    """
    moved = False
    for name in sorted(found.whole & run.tables.keys()):
        table = run.tables[name]
        documents = [run.signals.documents[number] for number in found.waiting[name]]
        whole = next(one.signal for one in documents if one.signal.scope is not None and one.signal.scope.whole)
        if table.stop is None or not table.requested:
            continue
        if not _has_begun(table, whole.number):
            if hindrance(table, whole=True):
                continue
            if why := start_over(run, table, over_gap=whole.scope is not None and whole.scope.gap):
                _note(run, [whole.number], f"{name} has stopped, and its copy cannot be started over: {why.line}")
                continue
            if name not in run.stops:
                _move(run, whole.number, Event.BEGIN)
                moved = True
                continue
        if not isinstance(table.stop.error, Retryable | GateFailed):
            _move(run, whole.number, Event.FAIL, why=table.stop.error.line)
            moved = True
    return moved


def _has_begun(table: TableRun, number: int) -> bool:
    """Whether the copy that is not complete was started over for this signal, too."""
    if table.copy is None or not is_restarted(table.staged) or table.progress.reread is None:
        return False
    return number in table.progress.reread.signals


def _waits(run: OpenRun, name: TableId, number: int, found: Agenda) -> str:
    """What a signal waits for that this run does not carry out now."""
    table = run.tables.get(name)
    if name in found.paused:
        return f"{name} is paused"
    if table is None or not table.requested:
        return "this run is for other tables"
    if table.stop is not None:
        return hindrance(table, whole=name in found.whole) or run.signals.documents[number].note
    if table.copy is None or not is_restarted(table.staged):
        return f"{name} is copied for the first time"
    if _has_begun(table, number):
        return f"its copy is started over: {table.progress.rows:,} rows are read"
    return "its copy was started over before; it is read again after that"


def _resnapshot(run: OpenRun, table: TableRun, request: Request, *, wait: bool) -> bool:
    request = run.signals.begun[table.id] = _as_begun(run, table, request)
    for first in request.signals[:1]:
        if run.signals.documents[first].signal.state is State.PENDING:
            _move(run, first, Event.BEGIN)
    try:
        with translate_errors(run.edges.config.source, run.edges.target):
            done = resnapshot.step(run.edges, run.binlog, table, request, _settled(run, table), wait=wait)
    except Retryable as error:
        if not error.of_table:
            drop(run)
            raise
        return _try_again(run, table, request, error)
    except (StorageFailed, BinlogGone):
        drop(run)
        raise
    except LakeIngestError as error:
        resnapshot.cancel(table)
        del run.signals.begun[table.id]
        if (
            table.progress.gap
            or isinstance(error, ApprovalNeeded)
            or (isinstance(error, SchemaChanged) and error.by_ddl)
        ):
            stop(run.edges, table, error)  # its rows are read again for the signal, too
        else:
            _move(run, request.number, Event.FAIL, why=error.line)
        return True
    if done is Step.DONE:
        run.signals.tries.pop(request.number, None)  # not after a wave, else it may be tried for ever
        del run.signals.begun[table.id]
    elif done is Step.MERGED:
        reread = table.progress.reread
        up_to = "" if reread is None or reread.up_to is None else f", read again up to key {list(reread.up_to)}"
        _note(run, request.signals[:1], f"{table.progress.rows:,} rows in the copy{up_to}")
    return done is not Step.READING


def _as_begun(run: OpenRun, table: TableRun, request: Request) -> Request:
    """The request with the signals that it was begun for: one that came later is not answered by rows read before."""
    begun = run.signals.begun.get(table.id)
    if begun is None or begun.number != request.number:
        return request
    documents = run.signals.documents
    wanted = (number for number in begun.signals if number in documents and not documents[number].ended)
    return replace(request, signals=tuple(wanted))


def _settled(run: OpenRun, table: TableRun) -> Collection[int]:
    """The signals that the table's progress has answered and whose documents say that they are done."""
    documents = run.signals.documents
    return {number for number in table.progress.answered if number not in documents or documents[number].ended}


def _try_again(run: OpenRun, table: TableRun, request: Request, error: Retryable) -> bool:
    """The table is loaded as the lake has it, to try once more; False after some tries: the next run goes on."""
    resnapshot.cancel(table)
    del run.signals.begun[table.id]
    tries = run.signals.tries[request.number] = run.signals.tries.get(request.number, 0) + 1
    _note(run, request.signals[:1], f"tried {tries} times: {error.line}")
    staged = run.edges.target.recover(table.id)
    if staged is not None:
        reload(run.edges, table, staged)
    time.sleep(PAUSE_SECONDS)
    return tries < TRIES


def _roll_back(run: OpenRun, signal: Signal) -> bool:
    """Let readers see our last commit of the table again, which then goes on; False if it is to be tried again.

    Where the spool does not reach back to that commit, the next run goes on with it.
    """
    edges, folder = run.edges, run.signals.folder
    before = run.signals.documents[signal.number]
    done = roll_back(open_rollbacks(edges.config), edges.lease, state_of(edges.config), folder, before, edges.observe)
    run.signals.documents[signal.number] = done
    table = run.tables.get(signal.tables[0])
    if done.signal.state is State.DONE and table and table.stop and isinstance(table.stop.error, ForeignWrite):
        with working_on(edges, table):
            staged = edges.target.recover(table.id)
            if staged is None or staged.progress.needed_from < run.binlog.spool.start:
                raise StaleWriter(f"{table.id}: it was rolled back; run the same command again to go on with it")
            reload(edges, table, staged)
            if not (table.has_missing_chunks or table.paused):
                merge_and_publish(edges, run.binlog, table)
            resume(edges, table)
    return done.ended


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
                done.append(maintain(run.edges, run.binlog, table))
        except LakeIngestError as error:
            if not error.of_table:
                raise
            failed.append(f"{name}: {error.line}")
    run.edges.lease.assert_held()
    removed, freed = _sweep(run, [requested[name] for name in chosen])
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


def _sweep(run: OpenRun, tables: Iterable[TableRun]) -> tuple[int, int]:
    """Delete the files of the state folder that killed runs have left; how many files and bytes."""
    age = LEFTOVER_AGE + lead(run.edges.connection)
    removed, freed = sweep(run.binlog.spool, age)
    needed = {number for number, one in run.signals.documents.items() if not one.ended}
    for table in tables:
        if table.definition is not None and not (table.copy and table.progress.patches):
            more, bytes_ = PatchFolder.of(state_of(run.edges.config), table.definition).sweep(age, needed)
            removed, freed = removed + more, freed + bytes_
    return removed, freed


def _move(
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
    """Remove what was read for a signal that is not carried out, unless the next merge needs it."""
    table = run.tables.get(signal.tables[0])
    if table is None or table.definition is None or table.copy is None or table.progress.patches:
        return
    PatchFolder.of(state_of(run.edges.config), table.schema).remove(signal.number)


def _note(run: OpenRun, numbers: Iterable[int], note: str) -> None:
    """Say how far signals have come, or what they wait for, where that is not said already."""
    documents = run.signals.documents
    for number in numbers:
        if documents[number].note != note:
            run.edges.lease.assert_held()
            run.signals.folder.note(documents[number], note)
            documents[number] = replace(documents[number], note=note)
