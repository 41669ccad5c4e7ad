"""From the spool into staging.

A merge reads a table's part of the spool from the least mark of its splits, keeps what each split still needs,
collapses it and merges it.
"""

import time
from typing import TYPE_CHECKING

from lakeingest.core.schema import TableId
from lakeingest.core.wave import plan_merge
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Merged
from lakeingest.spark.changes import DELETED, applicable, collapse, read_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    kept = applicable(changes, plan, key).persist()
    collapsed = collapse(kept, key).persist()
    try:
        present = context.target.read(table, staged.version, context.spark).select(*key)
        inserted, updated, deleted = _effects(collapsed, present, key)
        after = progress.merged(plan, stop, inserted, deleted)
        context.lease.assert_held()
        if inserted or updated or deleted:
            context.advance(context.target.merge(staged, context.spark, collapsed, key, after))
        else:
            context.advance(context.target.mark(staged, after))
        counts = changes.count(), kept.count()
    finally:
        collapsed.unpersist()
        kept.unpersist()
    context.observe(Merged(table, *counts, inserted, updated, deleted, time.monotonic() - began))


def _effects(collapsed: "DataFrame", present: "DataFrame", key: tuple[str, ...]) -> tuple[int, int, int]:
    """How many keys the merge will insert, update and delete, counted before it and apart from it."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    there = F.col("_lakeingest_there").isNotNull()
    gone = F.col(DELETED)
    row = (
        collapsed.select(*key, DELETED)
        .join(present.withColumn("_lakeingest_there", F.lit(1)), on=list(key), how="left")
        .agg(F.count_if(~gone & ~there), F.count_if(~gone & there), F.count_if(gone & there))
        .first()
    )
    return (row[0], row[1], row[2]) if row else (0, 0, 0)
