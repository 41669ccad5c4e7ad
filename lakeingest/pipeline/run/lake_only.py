"""Which tables need only the lake: threads may merge and publish them."""

from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun, Trust
from lakeingest.pipeline.run.watch import Watch
from lakeingest.quality.suites import user_suites
from lakeingest.spool.halts import halts

FEW_ROWS = 20_000  # change rows that a thread merges


def needs_only_lake(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Whether the table can be merged and published by a thread, which must not ask the source or change the spool.

    The table must have few changes, so that they are merged in this process, and a gate that needs no Spark.
    """
    if table.failure is not None or table.watch is not Watch.WATCHED or table.trust is not Trust.IN_FORCE:
        return False
    progress = table.progress
    may_lack_cascades = bool(table.cascade_keys or progress.cascades)
    has_reread_rows = bool(progress.patches) or progress.uncounted
    gate_needs_spark = not table.sound or bool(user_suites(edges.config.quality, table.id))
    if may_lack_cascades or has_reread_rows or gate_needs_spark or halts(binlog.spool, table.id, progress.needed_from):
        return False
    return binlog.spool.backlog(table.id, max(progress.needed_from, binlog.spool.start)) <= FEW_ROWS
