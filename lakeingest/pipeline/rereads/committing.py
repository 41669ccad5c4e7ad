"""Rows that were read again become part of staging: a commit names their patches, which wait for the next merge."""

import time
from collections.abc import Sequence
from typing import Protocol

from lakeingest.core.binlog.position import Position, latest
from lakeingest.core.copies.progress import Progress
from lakeingest.pipeline.binlog.watermarks import position_of_high
from lakeingest.pipeline.events import RowsReread
from lakeingest.pipeline.rereads.tasks import Patched
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.commit_progress import commit_progress
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


class Reread(Protocol):
    """A step of a table's progress: it names the patches of rows that were read again."""

    def __call__(self, *, nulled: int, read_to: Position) -> Progress:
        """The progress after this step.

        `nulled`: the number of values that are NULL because the user chose so. `read_to`: the greatest high watermark.
        """


def commit_reread(
    edges: Edges,
    binlog: BinlogRun,
    table: TableRun,
    patched: Sequence[Patched],
    reread: Reread,
    began: float,
    *,
    is_last: bool,
) -> None:
    """Commit, on staging, the progress that names the patches of rows that were read again.

    `began`: the time of the monotonic clock at which the read began. `is_last`: no requested row is left to read.
    `patched` is not empty.
    """
    read_to = position_of_high(edges, binlog, latest(part.high for part in patched))
    progress = reread(nulled=sum(part.nulled for part in patched), read_to=read_to)
    binlog.add_boundaries(part.high for part in patched)
    commit_progress(edges, table, progress, sound=all(part.sound for part in patched))
    rows, seconds = sum(part.cost.rows for part in patched), time.monotonic() - began
    edges.observe(RowsReread(table.id, len(patched), rows, seconds, is_last))
