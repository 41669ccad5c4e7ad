"""Whether readers of a copy see every change that the spool has of its table."""

from lakeingest.pipeline.run.foreign_keys import has_changed_parent
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun, Trust
from lakeingest.pipeline.run.watch import Watch


def has_changes(run: OpenRun, table: TableRun) -> bool:
    """Whether the spool has something that the copy still lacks.

    That is a change of the table, a change of a parent that foreign keys may have carried to the table, or DDL over
    which the rows are not lifted.
    """
    return (
        table.watch is Watch.AT_DDL
        or run.binlog.spool.backlog(table.id, table.progress.needed_from) > 0
        or has_changed_parent(run.binlog, table)
    )


def is_current(run: OpenRun, table: TableRun) -> bool:
    """Whether readers see every change of the table up to the end of the spool."""
    if table.copy is None or table.failure is not None or table.watch is not Watch.WATCHED:
        return False
    is_whole = table.staged.visible and table.trust is Trust.IN_FORCE and table.has_cascades
    return is_whole and not has_changes(run, table)
