"""Catching up: the binlog up to the written position is spooled, then every table merged and published there."""

from lakeingest.core.schema import TableId
from lakeingest.errors import MainMoved
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.merge import merge
from lakeingest.pipeline.publish import publish

PUBLISH_TRIES = 5  # of a run, for a table that someone compacts meanwhile


def catch_up(context: Context) -> None:
    """Spool to the written position, show every table that has not stopped as of there, forget what is not needed."""
    spool_to_now(context)
    for table in context.going_on:
        with context.working_on(table):
            show(context, table)
            context.go_on(table)
    forget(context)


def show(context: Context, table: TableId) -> None:
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


def forget(context: Context) -> None:
    """Drop what no table of the pipeline needs any more from the spool, not asked for and stopped ones included."""
    needed_from = context.needed_from
    if needed_from is not None:
        context.lease.assert_held()
        context.spool.forget(needed_from, context.config.changelog.keep)
