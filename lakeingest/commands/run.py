"""A run: what is new is copied, then the binlog is applied up to a stop, then every table is shown as of that stop.

One that follows goes on from there, until it is told to stop.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.position import Position
from lakeingest.core.schema import TableId
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.catch_up import catch_up
from lakeingest.pipeline.copying import copy_missing
from lakeingest.pipeline.edge_errors import translate_errors
from lakeingest.pipeline.events import Following, Observer, unobserved
from lakeingest.pipeline.follow import follow as follow_source
from lakeingest.pipeline.follow import persistently, work_off
from lakeingest.pipeline.open_run import OpenRun
from lakeingest.pipeline.opening import opened
from lakeingest.pipeline.profile import StageCost
from lakeingest.pipeline.signals import look
from lakeingest.pipeline.table_run import TableRun
from lakeingest.state.stopped import Stopped, most_serious

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableResult:
    """Where a table stands after a run."""

    table: TableId
    rows: int
    waves: int
    position: Position | None
    published: bool


@dataclass(frozen=True, slots=True, repr=False)
class RunResult(Report):
    """What a run came to; `caught_up` is False when the time was up first. `followed`: it went on from there.

    `profile` says where the seconds went, stage by stage. `stopped` are the tables that stay where they were, each with
    its error, and `paused` those that stay because someone asked for it; `caught_up` is said of the others.
    """

    tables: tuple[TableResult, ...]
    caught_up: bool
    seconds: float
    followed: bool = False
    profile: tuple[StageCost, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    paused: tuple[TableId, ...] = ()

    headers = ("table", "rows", "waves", "published", "position")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a table."""
        for one in self.tables:
            position = None if one.position is None else str(one.position.at)
            yield str(one.table), one.rows, one.waves, one.published, position

    @property
    def note(self) -> str:
        """How it ended, and a line for each table that stopped or is paused."""
        paused = (f"{table}: paused; `lakeingest resume {table}` lets it go on" for table in self.paused)
        return "\n".join([self._ending, *(f"{one.table}: {one}" for one in self.stopped), *paused])

    @property
    def _ending(self) -> str:
        if self.followed and self.caught_up:
            return f"caught up with the source and followed it, {self.seconds:.1f} s in all"
        if self.followed:
            return "stopped before it had caught up with the source; the next run goes on from here"
        if self.caught_up:
            return f"caught up with the source in {self.seconds:.1f} s"
        return "the time was up before the end of the binlog; the same call goes on from here"


def run(
    config: Config,
    tables: Sequence[str] = (),
    max_minutes: float | None = None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
    *,
    follow: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Bootstrap what is new, apply the binlog to the written position read after the last chunk, and publish there.

    `tables` are written `database.table`; none means all that the config includes. With `follow` it goes on and on, and
    connects to the source again when that was away. Stops early, at a commit, when `max_minutes` are over or `stopping`
    says so; the same call goes on from there.

    A table that must stop stays where it is, and the others go on. At the end the most serious of these tables' errors
    is raised, with the RunResult as its `result`. Errors that concern all tables end the run at once.
    """
    began = time.monotonic()

    def ends() -> bool:
        return stopping() or (max_minutes is not None and time.monotonic() - began > max_minutes * 60)

    with translate_errors(config.source, open_target(config)), opened(config, tables, observe, spark) as open_run:
        if follow:
            caught_up = bool(persistently(open_run, ends, lambda: _copy(open_run, ends)))
            if caught_up:
                observe(Following(time.monotonic() - began))
                follow_source(open_run, ends)
        else:
            caught_up = _copy(open_run, ends)
            if caught_up:
                work_off(open_run, ends)
        results = tuple(_result(table) for table in open_run.requested)
        stops = [table.stop for table in open_run.stopped if table.stop is not None]
        paused = tuple(table.id for table in open_run.paused)
        profile = open_run.edges.profile.costs(open_run.edges.executors.session)
    records = tuple(stop.record for stop in stops)
    result = RunResult(results, caught_up, time.monotonic() - began, follow, profile, records, paused)
    if stops:
        error = most_serious(stop.error for stop in stops)
        error.result = result
        raise error
    return result


def _copy(open_run: OpenRun, ends: Callable[[], bool]) -> bool:
    """Publish every table that can go on as of the written position; False when the run was to end before that."""
    look(open_run)
    if not copy_missing(open_run, ends):
        return False
    look(open_run)
    catch_up(open_run)
    return True


def _result(table: TableRun) -> TableResult:
    if table.copy is None:
        return TableResult(table.id, 0, 0, None, published=False)
    progress = table.progress
    return TableResult(table.id, progress.rows, progress.wave, progress.position, table.staged.visible)
