"""A commit on staging that changes no row, only the table's progress."""

from lakeingest.core.copies.progress import Progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def commit_progress(edges: Edges, table: TableRun, progress: Progress, *, sound: bool = True) -> None:
    """Commit this progress on staging, with the same rows. Raises LeaseLost if another run took over.

    `sound`: False if rows on staging were found not to agree with the table's definition.
    """
    table.advance(edges.committing.mark(table.staged, progress), sound=sound)
