"""A run: what is new is copied, then the binlog is applied up to a stop, then every table is shown as of that stop."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.config import Config
from lakeingest.core.position import Position
from lakeingest.core.schema import TableId
from lakeingest.errors import MainMoved
from lakeingest.lake.target import Staged
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.bootstrap import bootstrap
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Observer, unobserved
from lakeingest.pipeline.merge import merge
from lakeingest.pipeline.opening import opened
from lakeingest.pipeline.publish import publish
from lakeingest.pipeline.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUBLISH_TRIES = 5  # of a run, for a table that someone compacts meanwhile


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
    """What a run came to; `caught_up` is False when the time was up first."""

    tables: tuple[TableResult, ...]
    caught_up: bool
    seconds: float

    headers = ("table", "rows", "waves", "published", "position")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a table."""
        for one in self.tables:
            position = None if one.position is None else str(one.position.at)
            yield str(one.table), one.rows, one.waves, one.published, position

    @property
    def note(self) -> str:
        """How it ended."""
        if self.caught_up:
            return f"caught up with the source in {self.seconds:.1f} s"
        return "the time was up before the end of the binlog; the same call goes on from here"


def run(
    config: Config,
    tables: Sequence[str] = (),
    max_minutes: float | None = None,
    observe: Observer = unobserved,
    spark: "SparkSession | None" = None,
) -> RunResult:
    """Bootstrap what is new, apply the binlog to the written position read after the last chunk, and publish there.

    `tables` are written `database.table`; none means all that the config includes. Stops early, at a commit, when
    `max_minutes` are over; the same call goes on from there.
    """
    began = time.monotonic()

    def out_of_time() -> bool:
        return max_minutes is not None and time.monotonic() - began > max_minutes * 60

    with opened(config, tables, observe, spark) as context, context.target.stored():  # Spark's reads are lazy
        for table in context.chosen:
            bootstrap(context, table, out_of_time)
        complete = all(context.tables[table].progress.splits.complete for table in context.chosen)
        caught_up = complete and not out_of_time()
        if caught_up:
            spool_to_now(context)
            for table in context.chosen:
                _show(context, table)
            # staging is branched again from what readers see where someone compacts that, so it needs what they need
            if all(staged.visible for staged in context.tables.values()):
                context.lease.assert_held()
                context.spool.forget(min(staged.progress.needed_from for staged in context.tables.values()))
        results = tuple(_result(context.tables[table]) for table in context.chosen)
    return RunResult(results, caught_up, time.monotonic() - began)


def _show(context: Context, table: TableId) -> None:
    """Merge and publish; when someone's compaction comes in between, once more on top of that.

    MainMoved when that happens every time, or when the spool does not reach back to what readers see: the next run
    opens one that does.
    """
    for left in reversed(range(PUBLISH_TRIES)):
        merge(context, table)
        try:
            publish(context, table)
            return
        except MainMoved:
            context.lease.assert_held()
            staged = context.target.load(table)
            if not left or staged is None or staged.progress.needed_from < context.spool.start:
                raise
            context.advance(staged)


def _result(staged: Staged) -> TableResult:
    progress = staged.progress
    return TableResult(progress.table, progress.rows, progress.wave, progress.position, staged.visible)
