"""What the owner of the lease does about signals between batches.

`documents.look` reads them, carries out those that take no work on a table (pause, resume, cancel), and records which
others have ended. `serve` runs one wave of each table's next re-snapshot, rollbacks and maintenance. All is decided
anew each time, from the documents and from the progress of the tables, so a run may be killed between any two of these
steps.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import replace

from lakeingest.core.schema import TableId
from lakeingest.core.signals import Agenda, Event, Request, Signal, State
from lakeingest.errors import (
    ApprovalNeeded,
    BinlogGone,
    ForeignWrite,
    LakeIngestError,
    Retryable,
    SchemaChanged,
    Scope,
    StaleWriter,
    StorageFailed,
)
from lakeingest.lake.formats import open_rollbacks
from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.joining.starting_over import hindrance
from lakeingest.pipeline.rolling_back import roll_back
from lakeingest.pipeline.run.clocks import lead
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.foreign_keys import parents_first
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import reload
from lakeingest.pipeline.signals import resnapshot
from lakeingest.pipeline.signals.documents import look, move, note_on
from lakeingest.pipeline.signals.maintenance import LEFTOVER_AGE, Upkeep, maintain
from lakeingest.pipeline.signals.resnapshot import Step
from lakeingest.pipeline.signals.restarts import has_begun, start_stopped_over
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.patch_files import PatchFolder

TRIES = 5  # of a bounded run, after an error that may pass by itself
PAUSE_SECONDS = 2.0  # before the next one


def serve(run: OpenRun, *, wait: bool) -> bool:
    """Run a wave of the next re-snapshots, and maintenance; True if a wave was published or a signal ended.

    One table is read at a time, so that `source.max_connections` is enough. With `wait` the wave is waited for, else it
    is read in the background. An error of one table's re-snapshot fails its signal, and the run goes on.
    """
    found = look(run)
    worked = start_stopped_over(run, found)
    if worked:
        found = look(run)
    tables = {name: run.tables[name] for name in found.next if name in run.tables}
    going_on = [table for table in tables.values() if table.requested and table.failure is None]
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
        goes_on = table is not None and table.requested and table.failure is None
        for number in numbers:
            if number in found.superseded:
                note_on(run, [number], f"signal {found.superseded[number]} reads its rows, too")
            elif name not in found.next or not goes_on:
                note_on(run, [number], _waits(run, name, number, found))


def drop(run: OpenRun) -> None:
    """The run ends: nothing is read for signals any more. What is committed stays; the next run goes on from it."""
    for table in run.tables.values():
        table.cancel_reading()
    run.signals.begun.clear()


def _waits(run: OpenRun, name: TableId, number: int, found: Agenda) -> str:
    """What a signal waits for that this run does not carry out now."""
    table = run.tables.get(name)
    if name in found.paused:
        return f"{name} is paused"
    if table is None or not table.requested:
        return "this run is for other tables"
    if table.failure is not None:
        return hindrance(table, whole=name in found.whole) or run.signals.documents[number].note
    if table.copy is None or not table.staged.is_restarted:
        return f"{name} is copied for the first time"
    if has_begun(table, number):
        return f"its copy is started over: {table.progress.rows:,} rows are read"
    return "its copy was started over before; it is read again after that"


def _resnapshot(run: OpenRun, table: TableRun, request: Request, *, wait: bool) -> bool:
    request = run.signals.begun[table.id] = _as_begun(run, table, request)
    for first in request.signals[:1]:
        if run.signals.documents[first].signal.state is State.PENDING:
            move(run, first, Event.BEGIN)
    try:
        with translate_errors(run.edges.source.settings, run.edges.target):
            done = resnapshot.step(run.edges, run.binlog, table, request, _settled(run, table), wait=wait)
    except Retryable as error:
        if error.scope is not Scope.TABLE:
            drop(run)
            raise
        return _try_again(run, table, request, error)
    except (StorageFailed, BinlogGone):
        drop(run)
        raise
    except LakeIngestError as error:
        table.cancel_reading()
        del run.signals.begun[table.id]
        if (
            table.progress.gap
            or isinstance(error, ApprovalNeeded)
            or (isinstance(error, SchemaChanged) and error.by_ddl)
        ):
            fail(run.edges, table, error)  # its rows are read again for the signal, too
        else:
            move(run, request.number, Event.FAIL, why=error.line)
        return True
    if done is Step.DONE:
        run.signals.tries.pop(request.number, None)  # not after a wave, else it may be tried for ever
        del run.signals.begun[table.id]
    elif done is Step.MERGED:
        reread = table.progress.reread
        up_to = "" if reread is None or reread.up_to is None else f", read again up to key {list(reread.up_to)}"
        note_on(run, request.signals[:1], f"{table.progress.rows:,} rows in the copy{up_to}")
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
    table.cancel_reading()
    del run.signals.begun[table.id]
    tries = run.signals.tries[request.number] = run.signals.tries.get(request.number, 0) + 1
    note_on(run, request.signals[:1], f"tried {tries} times: {error.line}")
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
    done = roll_back(open_rollbacks(edges.config), edges.lease, edges.state, folder, before, edges.observe)
    run.signals.documents[signal.number] = done
    table = run.tables.get(signal.tables[0])
    if done.signal.state is State.DONE and table and table.failure and isinstance(table.failure.error, ForeignWrite):
        with working_on(edges, table):
            staged = edges.target.recover(table.id)
            if staged is None or staged.progress.needed_from < run.binlog.spool.start:
                raise StaleWriter(f"{table.id}: it was rolled back; run the same command again to go on with it")
            reload(edges, table, staged)
            if not (table.has_missing_chunks or table.paused):
                merge_and_publish(edges, run.binlog, table)
            clear_failure(edges, table)
    return done.ended


def _maintain(run: OpenRun, signal: Signal) -> bool:
    """Maintain the signal's tables; False where this run cannot, because they are not all its own."""
    requested = {table.id: table for table in run.requested}
    chosen = signal.tables or tuple(requested)
    if not requested.keys() >= set(chosen) or (not signal.tables and len(requested) < len(run.tables)):
        note_on(run, [signal.number], "this run is for other tables")
        return False
    move(run, signal.number, Event.BEGIN)
    done: list[Upkeep] = []
    failed: list[str] = []
    for name in chosen:
        table = requested[name]
        if table.paused or table.failure is not None or table.copy is None or table.has_missing_chunks:
            reason = "it is paused" if table.paused else "its copy is not complete, or has stopped"
            done.append(Upkeep(name, left_out=reason))
            continue
        try:
            with translate_errors(run.edges.source.settings, run.edges.target):
                done.append(maintain(run.edges, run.binlog, table))
        except LakeIngestError as error:
            if error.scope is not Scope.TABLE:
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
        move(run, signal.number, Event.FAIL, why="; ".join(failed), note=note, result=result)
    else:
        move(run, signal.number, Event.FINISH, note=note, result=result)
    return True


def _sweep(run: OpenRun, tables: Iterable[TableRun]) -> tuple[int, int]:
    """Delete the files of the state folder that killed runs have left; how many files and bytes."""
    age = LEFTOVER_AGE + lead(run.edges.source)
    removed, freed = sweep(run.binlog.spool, age)
    needed = {number for number, one in run.signals.documents.items() if not one.ended}
    for table in tables:
        if table.definition is not None and not (table.copy and table.progress.patches):
            more, bytes_ = PatchFolder.of(run.edges.state, table.definition).sweep(age, needed)
            removed, freed = removed + more, freed + bytes_
    return removed, freed
