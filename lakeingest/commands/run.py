"""Run: copy new tables, apply the binlog up to a position, and publish every table as of this position.

With `follow`, the run then keeps the tables up to date until a person or a scheduler ends the run.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.binlog.position import Position
from lakeingest.core.figures.bill import Bill
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import has_notes, package_of
from lakeingest.monitoring.reporting import reported
from lakeingest.pipeline.events import LeftAsItIs, Observer, unobserved
from lakeingest.pipeline.opening.absent_tables import none_to_update
from lakeingest.pipeline.opening.opening import opened
from lakeingest.pipeline.rounds.bounded import run_bounded
from lakeingest.pipeline.rounds.follow import follow as follow_source
from lakeingest.pipeline.rounds.missing_chunks import tables_to_copy
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.metering import Meter
from lakeingest.pipeline.run.profile import StageCost
from lakeingest.pipeline.run.quiet_tables import QuietTables, open_target
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.settings import runs_here
from lakeingest.state.stopped import Stopped, most_serious

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableResult:
    """The state of a table after a run."""

    table: TableId
    rows: int
    waves: int
    position: Position | None
    published: bool


@dataclass(frozen=True, slots=True, repr=False)
class RunResult(Report):
    """The result of a run.

    `followed`: the run was asked to follow the source. `caught_up`: all tables that are neither stopped nor paused have
    caught up with the source; False if the run was ended before that, because its time was up or someone ended it.
    `stopped` are the tables that stay at their last commit because of an error. `paused` are the tables that someone
    has paused. `left` are tables whose copies are not updated, each with the reason: the source no longer has the
    table, the table is no longer included, or its missing chunks wait for `throttle.window`. `profile` is the time that
    each stage took, `bill` what the whole run took and costs. `unusual` are tables into which more or less was written
    than usual, each with the numbers. `done` are tables that are copied only once (`tables.startup`), and
    that an earlier run has copied: this run has left them as they are.
    """

    tables: tuple[TableResult, ...]
    caught_up: bool
    seconds: float
    followed: bool = False
    profile: tuple[StageCost, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    paused: tuple[TableId, ...] = ()
    left: tuple[tuple[TableId, str], ...] = ()
    bill: Bill | None = None
    unusual: tuple[tuple[TableId, str], ...] = ()
    done: tuple[TableId, ...] = ()

    headers = ("table", "rows", "waves", "published", "position")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table."""
        for table in self.tables:
            position = None if table.position is None else str(table.position.at)
            yield str(table.table), table.rows, table.waves, table.published, position

    @property
    def notes(self) -> Sequence[str]:
        """How the run ended, a line for each table that stopped, is paused, not updated or unusual, and the bill."""
        stopped = (f"{failure.table}: {failure}" for failure in self.stopped)
        paused = (f"{table}: paused; `lakeingest resume {table}` lets it go on" for table in self.paused)
        not_updated = (f"{table} {reason}" for table, reason in self.left)
        unusual = (f"{table}: unusual: {finding}" for table, finding in self.unusual)
        bill = () if self.bill is None else (str(self.bill),)
        done = (f"{len(self.done):,} tables are copied, and are copied only once",) if self.done else ()
        return [self._ending_note, *stopped, *paused, *not_updated, *done, *unusual, *bill]

    @property
    def _ending_note(self) -> str:
        """How the run ended, in one line."""
        if self.followed and self.caught_up:
            return f"caught up with the source and followed it, {self.seconds:.1f} s in all"
        if self.followed:
            return "stopped before it had caught up with the source; the next run goes on from here"
        if self.caught_up:
            return f"caught up with the source in {self.seconds:.1f} s"
        return "the time was up before the end of the binlog; the same call goes on from here"


def _import_all() -> None:
    """Import what workers need."""
    from lakeingest.workers import import_all

    import_all()


@contextmanager
def forked_nursery(config: Config) -> Iterator[Nursery | None]:
    """Within the block: a fork of this process, from which `run` can fork its own workers.

    None if this process cannot be forked (`Nursery.forked`), or if the workers of this run are on other machines. The
    fork comes after the imports of a run, so that the workers need not import the modules again. What only workers
    need is imported by the fork, once a run has work for it. So are the modules of the format, if notes may spare the
    run a look at its copies.
    """
    if not has_notes(config):  # else a run with nothing to do may need none of the format's modules
        package_of(config)  # imports them
    nursery = Nursery.forked(_import_all) if runs_here(config) else None
    try:
        yield nursery
    finally:
        if nursery is not None:
            nursery.end()


def run(
    config: Config,
    tables: Sequence[str] = (),
    max_minutes: float | None = None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
    *,
    follow: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    nursery: Nursery | None = None,
) -> RunResult:
    """Copy new tables, apply the binlog, and publish.

    The binlog is applied up to the position that the source has written once the last chunk is read. `tables` are names
    of the form `database.table`; without names, all included tables are meant. With `follow`, the run goes on after
    that, and connects again if the source was unreachable. A run ends early, after a commit, when `max_minutes` are
    over or `stopping` returns True. The same call continues from this commit. `nursery` is that of `forked_nursery`, if
    there is one.

    A table with an error stays at its last commit, and the other tables go on. At the end, the most serious error of
    these tables is raised, with the RunResult as its `result`. An error that concerns all tables ends the run at once.

    Raises UsageError for `follow` if tables are copied only once.
    """
    if follow and config.tables.copies_once:
        raise UsageError("tables.startup is snapshot_only, so there is nothing to follow; run without --follow")

    def run_for(observer: Observer) -> RunResult:
        return _run(config, tables, max_minutes, observer, spark, follow=follow, stopping=stopping, nursery=nursery)

    return reported(config, observe, run_for, follow=follow)


def _run(
    config: Config,
    tables: Sequence[str],
    max_minutes: float | None,
    observe: Observer,
    spark: "SparkSession | None",
    *,
    follow: bool,
    stopping: Callable[[], bool],
    nursery: Nursery | None,
) -> RunResult:
    """Do what `run` does, except for its reports: the events go to `observe` alone."""
    began, meter = time.monotonic(), Meter.begin()

    def must_end() -> bool:
        return stopping() or (max_minutes is not None and time.monotonic() - began > max_minutes * 60)

    # to name errors: without noted positions, which are not read before the source is asked
    target = open_target(config, quiet=QuietTables(state_of(config), {}))
    with translate_errors(config.source, target):
        if done := none_to_update(config, tables):  # each is copied only once, and is copied: no lease is needed
            return RunResult((), caught_up=True, seconds=time.monotonic() - began, done=tuple(sorted(done)))
    with (
        translate_errors(config.source, target),
        opened(config, tables, observe, spark, nursery) as open_run,
    ):
        for table_id, reason in open_run.left.items():
            observe(LeftAsItIs(table_id, reason))
        caught_up = follow_source(open_run, must_end, began) if follow else run_bounded(open_run, must_end)
        results = tuple(_result(table) for table in open_run.requested)
        failures = open_run.failures.values()
        paused = tuple(table.id for table in open_run.paused)
        left = tuple(open_run.left.items())
        if caught_up and not follow:  # chunks are missing only because of the window
            wait = f"has missing chunks, which wait for throttle.window, {config.throttle.window}"
            left += tuple((table.id, wait) for table in tables_to_copy(open_run))
        profile = open_run.edges.profile.costs(open_run.edges.executors.session)
        bill = meter.bill_of(config, open_run.edges.profile)
        for table_id, reason in left[len(open_run.left) :]:  # the first ones were reported when the run began
            observe(LeftAsItIs(table_id, reason))
    records = tuple(failure.record for failure in failures)
    seconds = time.monotonic() - began
    result = RunResult(
        results,
        caught_up,
        seconds,
        followed=follow,
        profile=profile,
        stopped=records,
        paused=paused,
        left=left,
        bill=bill,
        unusual=tuple(open_run.edges.unusual.items()),
        done=tuple(sorted(open_run.done)),
    )
    if failures:
        error = most_serious(failure.error for failure in failures)
        error.result = result
        raise error
    return result


def _result(table: TableRun) -> TableResult:
    """The state of a table after the run; zeros and None if it has no copy."""
    if table.copy is None:
        return TableResult(table.id, 0, 0, None, published=False)
    progress = table.progress
    return TableResult(table.id, progress.rows, progress.wave, progress.position, table.staged.visible)
