"""From the spool into staging.

A merge reads a table's part of the spool from the least mark of its splits, keeps what each split still needs,
collapses it and merges it.
"""

import time

from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.core.wave import plan_merge
from lakeingest.lake.target import Effects
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Merged
from lakeingest.spark.changes import applicable, collapse, read_changes


def merge(context: Context, table: TableId) -> None:
    """Bring every finished split of the table to the spool's stop, in one marked merge on staging."""
    began = time.monotonic()
    staged, stop = context.tables[table], context.spool.position
    progress, key = staged.progress, context.schemas[table].key
    if progress.position is not None and progress.splits.stop == stop.place:
        return
    covered_from = max(progress.covered_from, context.spool.start)
    plan = plan_merge(progress.splits, stop.place, context.spool.log(), covered_from)
    paths = context.spool.files(table, plan.start, plan.stop)
    if not paths:
        context.lease.assert_held()
        context.advance(context.target.mark(staged, progress.merged(plan, stop, 0, 0)))
        return
    changes = read_changes(context.spark, paths, plan.start, plan.stop)
    kept = applicable(changes, plan, key)

    def after(effects: Effects) -> Progress:
        context.lease.assert_held()
        return progress.merged(plan, stop, effects.inserted, effects.deleted)

    merged, effects = context.target.merge(staged, collapse(kept, key), key, after)
    context.advance(merged)
    counts = changes.count(), kept.count()
    context.observe(
        Merged(table, *counts, effects.inserted, effects.updated, effects.deleted, time.monotonic() - began)
    )
