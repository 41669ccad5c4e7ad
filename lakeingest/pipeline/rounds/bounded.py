"""A bounded run brings its tables up to the end that the binlog had when the run began, and serves the signals."""

import time
from collections.abc import Callable
from datetime import timedelta

from lakeingest.core.binlog.position import Place
from lakeingest.pipeline.catch_up import catch_up, trim_spool
from lakeingest.pipeline.joining.recopying import recopy_altered
from lakeingest.pipeline.points import Keeping
from lakeingest.pipeline.rounds.ledger import Ledger
from lakeingest.pipeline.rounds.measuring import Measuring
from lakeingest.pipeline.rounds.missing_chunks import copy_missing, tables_to_copy
from lakeingest.pipeline.rounds.one_round import take_round
from lakeingest.pipeline.rounds.pace import Pace
from lakeingest.pipeline.rounds.proving import Proving
from lakeingest.pipeline.rounds.usual import Comparing
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.signals.documents import process_signals
from lakeingest.pipeline.signals.restarts import restart_stopped
from lakeingest.pipeline.signals.serving import give_up_reads, serve


def run_bounded(run: OpenRun, stopping: Callable[[], bool]) -> bool:
    """Publish every table that can go on, and serve the signals. False if `stopping` said so before all publishes.

    While `throttle.window` is closed, no chunk is read, and missing chunks are left to the next run.
    """
    until, proving = run.written(), Proving(run)
    measuring = Measuring(run, proving)
    while bring_up_to_date(run, stopping, lambda: run.edges.throttle.is_window_closed, until):
        work_off(run, stopping)
        if proving.prove(stopping):  # then rows are to be read again, and compared once more
            work_off(run, stopping)
            proving.prove(stopping)
        measuring.measure()
        if not recopy_altered(run, until):  # else a table joins again: copy and publish it, too
            _finish(run, proving)
            if run.companions.tidy(run.requested, stopping):
                trim_spool(run)
            return True
    measuring.measure()
    _finish(run, proving)
    return False


def _finish(run: OpenRun, proving: Proving) -> None:
    """Keep a point, say what is unusual, and write the ledger, once readers see what the run has published."""
    Keeping(run).keep_if_due()
    Comparing(run).compare()
    Ledger(run.edges).write(proving.known)


def bring_up_to_date(
    run: OpenRun, stopping: Callable[[], bool], leaves: Callable[[], bool], until: Place | None = None
) -> bool:
    """Publish, as of the written position, every table that can go on. False if `stopping` said so before that.

    `leaves`: whether missing chunks, and so the tables to which they belong, are left to a later time. Once a table is
    published as of `until` or later, DDL that its copy cannot follow is left to the next run.
    """
    restart_stopped(run)
    while copy_missing(run, stopping, leaves):
        process_signals(run)
        if tables_to_copy(run) and not leaves():  # someone has resumed a paused table
            continue
        catch_up(run)
        if not recopy_altered(run, until):  # else a table joins again: copy and publish it, too
            return True
    return False


def work_off(run: OpenRun, stopping: Callable[[], bool]) -> None:
    """Serve every signal that this run can serve, with a round after each wave. Ends early if `stopping` says so."""
    worked_at = {table.id: time.monotonic() for table in run.requested}
    pace = Pace(timedelta(0))  # a bounded run ends soon, so its rounds do not wait
    run.signals.folder.trim()
    try:
        while not stopping() and serve(run, wait=True):
            take_round(run, stopping, worked_at, pace, beside=None)
    finally:
        give_up_reads(run)
