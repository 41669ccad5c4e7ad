"""A commit on staging that changes no row: only what is known of the table."""

from lakeingest.core.progress import Progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def commit_progress(edges: Edges, table: TableRun, progress: Progress) -> None:
    """Let the staged rows have this progress from now on. LeaseLost where another run took over."""
    table.advance(edges.committing.mark(table.staged, progress), sound=True)
