"""A run: what is new is copied, then the binlog is applied up to a stop, then every table is shown as of that stop.

One that follows goes on from there, until it is told to stop.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.config import Config
from lakeingest.core.position import Position
from lakeingest.core.schema import TableId
from lakeingest.lake.target import Staged
from lakeingest.pipeline.bootstrap import bootstrap
from lakeingest.pipeline.catch_up import catch_up
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Following, Observer, unobserved
from lakeingest.pipeline.follow import follow as follow_source
from lakeingest.pipeline.follow import persistently
from lakeingest.pipeline.opening import opened
from lakeingest.pipeline.profile import StageCost
from lakeingest.pipeline.report import Report

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

    `profile` says where the seconds went, stage by stage.
    """

    tables: tuple[TableResult, ...]
    caught_up: bool
    seconds: float
    followed: bool = False
    profile: tuple[StageCost, ...] = ()

    headers = ("table", "rows", "waves", "published", "position")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a table."""
        for one in self.tables:
            position = None if one.position is None else str(one.position.at)
            yield str(one.table), one.rows, one.waves, one.published, position

    @property
    def note(self) -> str:
        """How it ended."""
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
    """
    began = time.monotonic()

    def ends() -> bool:
        return stopping() or (max_minutes is not None and time.monotonic() - began > max_minutes * 60)

    with opened(config, tables, observe, spark) as context, context.target.stored():  # Spark's reads are lazy
        if follow:
            caught_up = bool(persistently(context, ends, lambda: _copy(context, ends)))
            if caught_up:
                observe(Following(time.monotonic() - began))
                follow_source(context, ends)
        else:
            caught_up = _copy(context, ends)
        results = tuple(_result(context.tables[table]) for table in context.chosen)
        profile = context.profile.costs(context.spark)
    return RunResult(results, caught_up, time.monotonic() - began, follow, profile)


def _copy(context: Context, ends: Callable[[], bool]) -> bool:
    """Every table as of the written position, visible; False when it was to end before that."""
    for table in context.chosen:
        bootstrap(context, table, ends)
    if ends() or not all(context.tables[table].progress.splits.complete for table in context.chosen):
        return False
    catch_up(context)
    return True


def _result(staged: Staged) -> TableResult:
    progress = staged.progress
    return TableResult(progress.table, progress.rows, progress.wave, progress.position, staged.visible)
