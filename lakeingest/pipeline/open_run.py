"""An open run: what the stages that concern all tables work on. A stage of one table takes its `TableRun` instead."""

from dataclasses import dataclass

from lakeingest.core.schema import TableId
from lakeingest.pipeline.binlog_run import BinlogRun
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.table_run import TableRun


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The edges of a run, its tables by name, and its binlog. The requested tables are the first of the tables.

    `takes_new`: the run is for all included tables, so that others which appear in the source join it.
    """

    edges: Edges
    tables: dict[TableId, TableRun]
    binlog: BinlogRun
    takes_new: bool

    @property
    def requested(self) -> tuple[TableRun, ...]:
        """The tables that this run is to bring up to date."""
        return tuple(table for table in self.tables.values() if table.requested)

    @property
    def going_on(self) -> tuple[TableRun, ...]:
        """The requested tables that have not stopped."""
        return tuple(table for table in self.requested if table.stop is None)

    @property
    def stopped(self) -> tuple[TableRun, ...]:
        """The tables that have stopped."""
        return tuple(table for table in self.tables.values() if table.stop is not None)
