"""An open run: the value that stages of all tables work on. A stage of one table takes a `TableRun`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.companion_tables import CompanionTables, NoCompanions
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.signal_run import SignalRun
from lakeingest.pipeline.run.table_run import Failure, TableRun


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The edges of a run, its tables by name, its binlog and its signals. `tables` begins with the requested tables.

    `takes_new`: the run is for all included tables, so new tables of the source join the run. `left`: tables with a
    copy that are not in `tables`, each with the reason why the copy is not updated. `done`: tables that are copied only
    once, and are not in `tables` because they are copied.
    """

    edges: Edges
    tables: dict[TableId, TableRun]
    binlog: BinlogRun
    signals: SignalRun
    takes_new: bool
    left: Mapping[TableId, str]
    done: frozenset[TableId]
    companions: CompanionTables = field(default_factory=NoCompanions)

    @property
    def requested(self) -> tuple[TableRun, ...]:
        """The tables that this run is to bring up to date."""
        return tuple(table for table in self.tables.values() if table.requested)

    @property
    def going_on(self) -> tuple[TableRun, ...]:
        """The requested tables that have not stopped, and are not paused: those with the highest priority first."""
        going_on = (table for table in self.requested if table.failure is None and not table.paused)
        return tuple(sorted(going_on, key=lambda table: -table.options.priority))

    @property
    def copied(self) -> tuple[TableRun, ...]:
        """The tables that go on, and have a copy without missing chunks, sorted by priority.

        Of the same priority, the table that lags most comes first. So each table has its turn, even if every run is
        killed before it comes to the last table.
        """
        copied = [table for table in self.going_on if table.copy is not None and not table.has_missing_chunks]
        return tuple(sorted(copied, key=lambda table: (-table.options.priority, table.progress.needed_from)))

    @property
    def paused(self) -> tuple[TableRun, ...]:
        """The requested tables that are paused."""
        return tuple(table for table in self.requested if table.paused)

    def written(self) -> Place:
        """The end of the source's binlog now."""
        return replace(self.binlog.spool.position, at=self.edges.source.written()).place

    @property
    def failures(self) -> dict[TableId, Failure]:
        """Why tables have stopped, in the order in which they stopped."""
        failures = {table.id: table.failure for table in self.tables.values() if table.failure is not None}
        return dict(sorted(failures.items(), key=lambda entry: entry[1].at))
