"""A commit on staging that changes no row, only the table's progress."""

from lakeingest.core.progress import Progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def commit_progress(edges: Edges, table: TableRun, progress: Progress) -> None:
    """Commit this progress on staging, with the same rows. Raises LeaseLost if another run took over."""
    table.advance(edges.committing.mark(table.staged, progress), sound=True)
