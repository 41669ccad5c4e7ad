"""The owner of the lease serves signals between batches.

`documents.process_signals` reads the signals, carries out those that need no work on a table (pause, resume, cancel,
approve), and records which other signals have ended. `serve` carries out one wave of a re-snapshot, rollbacks, and
maintenance. Each call makes its decisions again, from the documents and from the progress of the tables, so a run can
be killed between any two steps.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import replace

from lakeingest.core.copies.signals import Action, Agenda, Event, Request, Signal, State
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import (
    ApprovalNeeded,
    BinlogGone,
    ForeignWrite,
    LakeIngestError,
    OperatorNeeded,
    Retryable,
    SchemaChanged,
    Scope,
    StaleWriter,
    StorageFailed,
    UsageError,
)
from lakeingest.lake.formats import open_points, open_rollbacks
from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.copying.waves import THROTTLE_SECONDS
from lakeingest.pipeline.joining.starting_over import hindrance
from lakeingest.pipeline.points import drop_point, make_point
from lakeingest.pipeline.rolling_back import roll_back
from lakeingest.pipeline.run.clocks import lead
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.foreign_keys import parents_first
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import reload
from lakeingest.pipeline.signals import resnapshot
from lakeingest.pipeline.signals.documents import move, note_on, process_signals
from lakeingest.pipeline.signals.maintenance import LEFTOVER_AGE, Upkeep, maintain
from lakeingest.pipeline.signals.resnapshot import Step
from lakeingest.pipeline.signals.restarts import has_begun, start_stopped_over
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.patch_files import PatchFolder

TRIES = 5  # of a re-snapshot in a bounded run, after retryable errors
PAUSE_SECONDS = 2.0  # before the next try


def serve(run: OpenRun, *, wait: bool) -> bool:
    """Take a step of each table's next re-snapshot, and carry out rollbacks, maintenance and signals about points.

    Returns False if there was nothing to do, or only a wave to wait for.

    While one table is read, the steps of other tables are left out, so that `source.max_connections` is enough. With
    `wait`, a step waits for its wave; otherwise the wave is read in the background. An error of one table's re-snapshot
    fails the signal, and the run goes on.
    """
    agenda = process_signals(run)
    worked = start_stopped_over(run, agenda)
    if worked:  # signals have new states, so other actions are next
        agenda = process_signals(run)
    tables = {name: run.tables[name] for name in agenda.next if name in run.tables}
    going_on = [table for table in tables.values() if table.requested and table.failure is None]
    going_on = parents_first(run.binlog, going_on)
    for table in going_on:
        is_other_read = any(other.reading is not None for other in going_on if other is not table)
        if not is_other_read:
            worked |= _resnapshot_unless_throttled(run, table, agenda.next[table.id], wait=wait)
    _note_waiting(run, agenda)
    for signal in agenda.rollbacks:
        worked |= _roll_back(run, signal)
    for signal in agenda.maintain:
        worked |= _maintain(run, signal)
    for signal in agenda.points:
        worked |= _serve_point(run, signal)
    if worked:
        process_signals(run)  # store which signals have ended by this work
    return worked


def _note_waiting(run: OpenRun, agenda: Agenda) -> None:
    """For each re-snapshot signal that this run does not carry out now, note on the signal what it waits for."""
    for name, numbers in agenda.waiting.items():
        table = run.tables.get(name)
        goes_on = table is not None and table.requested and table.failure is None
        for number in numbers:
            if number in agenda.superseded:
                note_on(run, [number], f"signal {agenda.superseded[number]} reads its rows, too")
            elif name not in agenda.next or not goes_on:
                note_on(run, [number], _reason_to_wait(run, name, number, agenda))


def give_up_reads(run: OpenRun) -> None:
    """Give up all background reads for signals. Rows that are committed already are not read once more."""
    for table in run.tables.values():
        table.cancel_reading()
    run.signals.begun.clear()


def _reason_to_wait(run: OpenRun, name: TableId, number: int, agenda: Agenda) -> str:
    """Why this run does not carry out a signal now."""
    table = run.tables.get(name)
    if name in agenda.paused:
        return f"{name} is paused"
    if table is None or not table.requested:
        return "this run is for other tables"
    if table.failure is not None:  # without a hindrance, `start_stopped_over` may have noted another reason: it stays
        return hindrance(table, whole=name in agenda.whole) or run.signals.documents[number].note
    # the table goes on, but its copy has missing chunks, which are read first
    if table.copy is None or not table.staged.is_restarted:
        return f"{name} is copied for the first time"
    if has_begun(table, number):
        return f"its copy is started over: {table.progress.rows:,} rows are read"
    return "its copy was started over before; it is read again after that"


def _resnapshot_unless_throttled(run: OpenRun, table: TableRun, request: Request, *, wait: bool) -> bool:
    """Take one step of a table's re-snapshot, unless `throttle` lets no wave be begun now. False as in `_resnapshot`.

    The result is also False if the wave must wait. But with `wait`, this call then sleeps for a moment and returns
    True, so that the caller tries again. While `throttle.window` is closed, it returns False at once.
    """
    edges = run.edges
    if table.reading is not None:
        return _resnapshot(run, table, request, wait=wait)
    try:
        with translate_errors(edges.source.settings, edges.target):
            reason = edges.throttle.reason_to_wait()
    except OperatorNeeded as error:  # the load cannot be measured
        if error.scope is not Scope.TABLE:
            raise
        _end_with_error(run, table, request, error)
        return True
    if reason is None:
        return _resnapshot(run, table, request, wait=wait)
    note_on(run, request.signals[:1], f"waits: {reason}")  # a request after a gap may have no signal
    if not wait or edges.throttle.is_window_closed:
        return False
    time.sleep(THROTTLE_SECONDS)
    return True


def _resnapshot(run: OpenRun, table: TableRun, request: Request, *, wait: bool) -> bool:
    """Take one step of a table's re-snapshot. False if its wave is still being read, or the next run must try again."""
    request = run.signals.begun[table.id] = _as_begun(run, table, request)
    if request.signals and run.signals.documents[request.number].signal.state is State.PENDING:
        move(run, request.number, Event.BEGIN)
    try:
        with translate_errors(run.edges.source.settings, run.edges.target):
            taken = resnapshot.step(run.edges, run.binlog, table, request, _signals_done(run, table), wait=wait)
    except Retryable as error:
        if error.scope is not Scope.TABLE:  # the error stops the whole run
            give_up_reads(run)
            raise
        return _try_again(run, table, request, error)
    except (StorageFailed, BinlogGone):
        give_up_reads(run)
        raise
    except LakeIngestError as error:
        _end_with_error(run, table, request, error)
        return True
    if taken is Step.DONE:
        run.signals.tries.pop(request.number, None)  # only now: if each wave reset the tries, they might never end
        del run.signals.begun[table.id]
    elif taken is Step.MERGED:
        reread = table.progress.reread
        last_key = None if reread is None else reread.up_to
        up_to = "" if last_key is None else f", read again up to key {list(last_key)}"
        note_on(run, request.signals[:1], f"{table.progress.rows:,} rows in the copy{up_to}")
    return taken is not Step.READING


def _end_with_error(run: OpenRun, table: TableRun, request: Request, error: LakeIngestError) -> None:
    """End the table's re-snapshot after an error that is not retryable: its signal fails.

    But at DDL, and if the copy has a gap, the table stops, and the signal stays open: the rows are read again once the
    table goes on. Without a signal, the table stops, too.
    """
    table.cancel_reading()
    run.signals.begun.pop(table.id, None)  # it has not begun if the load of the source cannot be measured
    is_at_ddl = isinstance(error, ApprovalNeeded) or (isinstance(error, SchemaChanged) and error.by_ddl)
    if table.progress.gap or is_at_ddl or not request.signals:
        fail(run.edges, table, error)
    else:
        move(run, request.number, Event.FAIL, why=error.line)


def _as_begun(run: OpenRun, table: TableRun, request: Request) -> Request:
    """The request, with only those open signals for which its re-snapshot was begun.

    A signal that came later is not answered by rows that were read before.
    """
    begun = run.signals.begun.get(table.id)
    if begun is None or begun.number != request.number:
        return request
    documents = run.signals.documents
    still_open = (number for number in begun.signals if number in documents and not documents[number].ended)
    return replace(request, signals=tuple(still_open))


def _signals_done(run: OpenRun, table: TableRun) -> Collection[int]:
    """The signals in the table's `answered` whose documents say that they are done, or that have no document."""
    documents = run.signals.documents
    return {number for number in table.progress.answered if number not in documents or documents[number].ended}


def _try_again(run: OpenRun, table: TableRun, request: Request, error: Retryable) -> bool:
    """After a retryable error, load the table from the lake, so that the re-snapshot can be tried again.

    False after TRIES tries: then a bounded run leaves the re-snapshot to the next run.
    """
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
    """Roll the table back to our last commit. False if the signal stays open.

    A table that had stopped because of the foreign change goes on. If the spool does not reach back to that commit, the
    table goes on only in the next run.
    """
    edges, folder = run.edges, run.signals.folder
    document = run.signals.documents[signal.number]
    document = roll_back(open_rollbacks(edges.config), edges.lease, edges.state, folder, document, edges.observe)
    run.signals.documents[signal.number] = document
    table = run.tables.get(signal.tables[0])  # a rollback has one table
    is_rolled_back = document.signal.state is State.DONE
    if is_rolled_back and table and table.failure and isinstance(table.failure.error, ForeignWrite):
        # the reason of the stop is gone
        with working_on(edges, table):
            staged = edges.target.recover(table.id)
            if staged is None or staged.progress.needed_from < run.binlog.spool.start:
                raise StaleWriter(f"{table.id}: it was rolled back; run the same command again to go on with it")
            reload(edges, table, staged)
            if not (table.has_missing_chunks or table.paused):
                merge_and_publish(edges, run.binlog, table)
            clear_failure(edges, table)
    return document.ended


def _serve_point(run: OpenRun, signal: Signal) -> bool:
    """Make or drop the point that the signal names. False if it waits for tables."""
    name = signal.name or ""
    try:
        if signal.action is Action.DROP_POINT:
            drop_point(run.edges.writing, open_points(run.edges.config), name)
            move(run, signal.number, Event.FINISH)
            return True
        made = make_point(run, name)
    except LakeIngestError as error:
        if error.scope is not Scope.TABLE and not isinstance(error, UsageError):
            raise
        move(run, signal.number, Event.FAIL, why=error.line)
        return True
    if isinstance(made, str):
        note_on(run, [signal.number], made)
        return False
    move(run, signal.number, Event.FINISH, result=made.to_json())
    return True


def _maintain(run: OpenRun, signal: Signal) -> bool:
    """Maintain the signal's tables. False if this run is not for all these tables: then none of them is maintained."""
    requested = {table.id: table for table in run.requested}
    chosen = signal.tables or tuple(run.tables)  # a signal without tables is for all tables
    is_run_for_all = requested.keys() >= set(chosen)
    if not is_run_for_all:
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
    removed, freed = _sweep(run, [requested[name] for name in chosen])
    result = {
        "tables": [upkeep.to_json() for upkeep in done],
        "spool": {"files_removed": removed, "bytes_freed": freed},
    }
    note = "; ".join(map(str, done))
    if failed:
        move(run, signal.number, Event.FAIL, why="; ".join(failed), note=note, result=result)
    else:
        move(run, signal.number, Event.FINISH, note=note, result=result)
    return True


def _sweep(run: OpenRun, tables: Iterable[TableRun]) -> tuple[int, int]:
    """Delete files that killed runs have left in the state folder. Returns the numbers of files and of bytes."""
    age = LEFTOVER_AGE + lead(run.edges.source)
    files, freed = sweep(run.binlog.spool, age)
    open_signals = {number for number, document in run.signals.documents.items() if not document.ended}
    for table in tables:
        has_waiting_patches = table.copy is not None and table.progress.patches  # the next merge needs their files
        if table.definition is not None and not has_waiting_patches:
            patch_files, patch_bytes = PatchFolder.of(run.edges.writing, table.definition).sweep(age, open_signals)
            files, freed = files + patch_files, freed + patch_bytes
    return files, freed
