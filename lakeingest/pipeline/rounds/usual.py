"""Says what is unusual about a table: compares the run with earlier runs (`core.proofs.usual`)."""

import time
from dataclasses import dataclass, field

from lakeingest.core.proofs.usual import Counts, Usual
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.pipeline.events import Undelivered, Unusual
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.state.usual import read_usual, store_usual

SPAN_SECONDS = 3_600.0  # after which a run that follows compares what it has written


@dataclass(slots=True)
class Comparing:
    """What is usual for a run's tables. It does nothing, and reads nothing, without `quality.unusual: warn`."""

    run: OpenRun
    _usual: dict[TableId, Usual] = field(default_factory=dict, init=False)
    _next_at: float = field(default_factory=lambda: time.monotonic() + SPAN_SECONDS, init=False)

    def compare_if_due(self) -> None:
        """Compare, if SPAN_SECONDS have passed since the last comparison; without one, since this object was made."""
        if time.monotonic() >= self._next_at:
            self.compare()

    def compare(self) -> None:
        """Report what is unusual about each table that readers see, and keep its counts.

        An error is reported, and the run goes on.
        """
        edges = self.run.edges
        if edges.config.quality.unusual != "warn":
            return
        try:
            for table in self.run.requested:
                if table.failure is None and table.copy is not None and table.copy.published is not None:
                    self._report(table.id, "; ".join(self._findings(table)))
        except LakeIngestError as error:
            edges.observe(Undelivered("quality.unusual", error.line))
        self._next_at = time.monotonic() + SPAN_SECONDS

    def _report(self, table: TableId, finding: str) -> None:
        """Keep the finding in place of the table's earlier one, and tell the observer. '': nothing is unusual."""
        self.run.edges.unusual.pop(table, None)
        if finding:
            self.run.edges.unusual[table] = finding
            self.run.edges.observe(Unusual(table, finding))

    def _findings(self, table: TableRun) -> list[str]:
        """What is unusual about the table. If no key has changed since the last counts, only the time since can be.

        If something has changed, or if there are no counts yet, new counts are stored.
        """
        if table.id not in self._usual:
            self._usual[table.id] = read_usual(self.run.edges.state, table.id)
        usual, written, now = self._usual[table.id], self.run.edges.tally.take(table.id), time.time()
        rows, last = table.progress.rows, usual.last
        if last is not None and not written.changed and rows == last.rows:
            pause = usual.pause(now)
            return [] if pause is None else [pause]
        since = now if last is None else last.until
        known = self._usual[table.id] = usual.after(Counts(since, now, rows, written))
        store_usual(self.run.edges.writing, table.id, known)
        return known.findings()
