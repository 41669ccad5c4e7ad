"""Copying beside the rounds of a run that follows: chunks are read in the background, a wave at a time.

A round commits at most one wave and never waits for one, so that the log of the other tables does not stall. The
rounds spool the binlog; these waves do not read it.
"""

from collections.abc import Iterable

from lakeingest.pipeline.copying.planner import Planner
from lakeingest.pipeline.copying.waves import Wave, begin_wave, commit_wave, end_wave
from lakeingest.pipeline.events import Planned
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch


class CopyingBeside:
    """Copies tables one after the other; `step` is called once in each round, after the binlog was spooled."""

    def __init__(self, edges: Edges, binlog: BinlogRun) -> None:
        self._edges, self._binlog = edges, binlog
        self._table: TableRun | None = None
        self._planner: Planner | None = None
        self._wave: Wave | None = None

    def step(self, tables: Iterable[TableRun]) -> bool:
        """Commit the wave that was read, and begin to read the next one; whether there was a wave to commit.

        Of the tables the first with missing chunks is copied. An error of the table stops it.
        """
        watched = (table for table in tables if table.watch is Watch.WATCHED and table.copy is not None)
        waiting = [table for table in watched if table.has_missing_chunks]
        if self._table not in waiting:
            self.cancel()
            self._table = waiting[0] if waiting else None
        if self._table is None:
            return False
        committed = False
        with working_on(self._edges, self._table):
            try:
                committed = self._advance(self._table)
            except BaseException:
                self.cancel()
                raise
        return committed

    def cancel(self) -> None:
        """Nobody wants what is being read: the next step begins with the table's first missing chunk."""
        if self._wave is not None:
            self._wave.outcomes.cancel()
        self._table = self._planner = self._wave = None

    def _advance(self, table: TableRun) -> bool:
        edges, binlog = self._edges, self._binlog
        if self._planner is None:
            self._planner = Planner(edges.source, table.schema, table.options, edges.executors.at_once_beside)
            edges.observe(Planned(table.id, self._planner.estimated_rows))
        planner = self._planner
        if self._wave is None:
            self._wave = begin_wave(edges, binlog, table, planner, table.progress.splits.copied_up_to, beside=True)
        if not self._wave.outcomes.is_done:
            return False
        read, self._wave = self._wave, None
        copied = end_wave(edges, binlog, table, planner, read)
        lower = read.keys.upper if copied else read.keys.lower
        if not copied or lower is not None:
            self._wave = begin_wave(edges, binlog, table, planner, lower, beside=True)
        if copied:
            commit_wave(edges, binlog, table, read, copied)
        if self._wave is None:  # that was the last one
            self.cancel()
        return True
