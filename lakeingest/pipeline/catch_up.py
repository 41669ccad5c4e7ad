"""Catching up: the binlog up to the written position is spooled, then every table merged and published there."""

from lakeingest.core.schema import TableId
from lakeingest.errors import MainMoved
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.merge import merge
from lakeingest.pipeline.publish import publish

PUBLISH_TRIES = 5  # of a run, for a table that someone compacts meanwhile


def catch_up(context: Context) -> None:
    """Spool to the written position, show every chosen table as of there, forget what no table needs any more."""
    spool_to_now(context)
    for table in context.chosen:
        show(context, table)
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
    """Drop what no table of the pipeline needs any more from the spool, those that were not asked for included."""
    # staging is branched again from what readers see where someone compacts that, so it needs what they need
    if all(staged.visible for staged in context.tables.values()):
        context.lease.assert_held()
        context.spool.forget(min(staged.progress.needed_from for staged in context.tables.values()))
