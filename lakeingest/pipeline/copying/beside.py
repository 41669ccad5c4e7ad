"""Copying beside the rounds of a run with `--follow`: chunks are read in the background, a wave at a time.

A round commits at most one wave, and never waits for a wave, so that the changes of other tables need not wait. The
rounds spool the binlog; these waves do not read the binlog.
"""

from collections.abc import Iterable

from lakeingest.pipeline.copying.waves import TableCopy
from lakeingest.pipeline.events import Throttled
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
        self._copy: TableCopy | None = None
        self._reported: str | None = None  # why the next wave waits, as the observer knows it

    def step(self, tables: Iterable[TableRun]) -> bool:
        """If executors have read a wave, commit it and begin the next one. True if such a wave was taken.

        One table is copied to its end. After that, the first table of `tables` that has missing chunks is copied. An
        error that concerns only the table stops the table. A wave whose chunks are too large is taken, too: nothing is
        committed then, and the next wave has smaller chunks.
        """
        watched = (table for table in tables if table.watch is Watch.WATCHED and table.copy is not None)
        waiting = [table for table in watched if table.has_missing_chunks]
        if self._table not in waiting:  # its copy is complete, or it cannot go on now
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
        """Give up the wave that is being read. Then a table is chosen again, and its first missing chunk comes next."""
        if self._copy is not None:
            self._copy.cancel()
        self._table = self._copy = None

    def _advance(self, table: TableRun) -> bool:
        """Begin the first wave; once a wave is read, commit it, and begin the next one.

        Returns False if no wave is read yet, or if the next wave waits because of a limit of the throttle.
        """
        self._copy = self._copy or TableCopy(self._edges, self._binlog, table, beside=True)
        if self._copy.wave is None:
            self._begin_unless_throttled(table, self._copy)
        if not self._copy.is_read:
            return False
        self._copy.step()
        return True

    def _begin_unless_throttled(self, table: TableRun, copy: TableCopy) -> None:
        """Begin to read a wave, or report once why it waits."""
        throttle = self._edges.throttle
        if throttle.seconds_left:  # every wave waits for its pace: this is not reported
            return
        reason = throttle.reason_to_wait()
        if reason is None:
            copy.begin()
        elif reason != self._reported:
            self._edges.observe(Throttled(table.id, reason))
        self._reported = reason
