"""Re-snapshots: not built yet."""

import enum
from collections.abc import Collection

from lakeingest.core.signals import Request
from lakeingest.errors import NotBuiltYet
from lakeingest.pipeline.binlog_run import BinlogRun
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.table_run import TableRun


class Step(enum.Enum):
    """What a step of a re-snapshot has done."""

    READING = "reading"
    MERGED = "merged"
    DONE = "done"


def step(
    edges: Edges,  # noqa: ARG001
    binlog: BinlogRun,  # noqa: ARG001
    table: TableRun,
    request: Request,  # noqa: ARG001
    settled: Collection[int],  # noqa: ARG001
    *,
    wait: bool,  # noqa: ARG001
) -> Step:
    """Not built yet."""
    raise NotBuiltYet(f"{table.id}: re-snapshots are not built yet")


def cancel(table: TableRun) -> None:
    """Drop what is read for the table in the background."""
