"""Discovery: a run that follows the source looks for new tables in it, and lets them join."""

import time
from collections.abc import Sequence

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, SchemaChanged
from lakeingest.pipeline.joining.joining import join
from lakeingest.pipeline.preconditions import joinable
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.pipeline.signals.documents import process_signals

LIST_SECONDS = 30.0  # between two lists of the source's tables while the source writes nothing
LIST_SHARE = 0.01  # the share of the run's time for such lists while the source writes, so that new tables join soon
AGAIN_SECONDS = 300.0  # between two tries of a table that cannot be copied


class Discovery:
    """Looks for new tables from time to time, and for tables that are hidden now.

    A run that is for named tables does not take new tables.
    """

    def __init__(self, run: OpenRun) -> None:
        self._run = run
        now = time.monotonic()
        self._listed_at, self._listed_to = now, run.binlog.spool.position.at
        self._pause = 0.0
        self._tried_at = {table.id: now for table in run.requested}

    def look(self) -> None:
        """If it is time, list the source's tables: let new tables join, and stop tables that are hidden from the user.

        A new table that cannot be copied becomes a stopped table.
        """
        run, now = self._run, time.monotonic()
        if self._is_due(now):
            self._listed_at, self._listed_to = now, run.binlog.spool.position.at
            listed = run.edges.config.tables.select(run.edges.source.tables())
            self._pause = min(LIST_SECONDS, (time.monotonic() - now) / LIST_SHARE)  # a slow list makes the pause long
            stop_hidden(run, listed)
            takes_new = run.takes_new and run.edges.config.tables.begins_at is None  # else the next run takes them
            if new := [table for table in listed if takes_new and self._is_new(table, now)]:
                self._admit(new)
                process_signals(run)  # a new table may be paused
                self._tried_at |= dict.fromkeys(new, now)
        if any(table.is_joining for table in run.tables.values()):
            join(run)

    def _is_due(self, now: float) -> bool:
        """Whether the pause after the last list of the tables is over.

        The pause is short if the binlog has grown since that list, because a CREATE may be in it.
        """
        has_grown = self._run.binlog.spool.position.at != self._listed_to
        return now - self._listed_at >= (self._pause if has_grown else LIST_SECONDS)

    def _is_new(self, table: TableId, now: float) -> bool:
        """Whether the table is unknown to the run, or could not be copied and is to be tried again."""
        table_run = self._run.tables.get(table)
        if table_run is None:
            return True
        is_refused = table_run.requested and table_run.copy is None and table_run.failure is not None
        return is_refused and now - self._tried_at.get(table, 0.0) >= AGAIN_SECONDS

    def _admit(self, new: Sequence[TableId]) -> None:
        """Make the tables part of the run: they join, or, if they cannot be copied, they are stopped tables."""
        run = self._run
        checked = joinable(run.edges.config, run.edges.source, new)
        for table in new:
            schema = checked.schemas.get(table)
            error: LakeIngestError | None = checked.refused.get(table)
            if table in checked.copied:
                error = SchemaChanged(
                    f"{table}: the source has this table again, and its copy is from before; the next run goes on with"
                    " the copy, or says why it must be made again"
                )
            tried = run.tables.get(table)  # None if the table was never tried
            earlier = None if tried is None else tried.failure
            is_reported = earlier is not None and error is not None and _is_same_error(earlier.error, error)
            if is_reported:
                continue
            joins = error is None and schema is not None
            options = run.edges.config.tables.of(table)
            watch = Watch.JOINING if joins else Watch.UNWATCHED
            run.tables[table] = TableRun(table, options, schema if joins else None, requested=True, watch=watch)
            if error is not None:
                fail(run.edges, run.tables[table], error)
            elif tried is not None:  # the table was refused before, and joins now
                clear_failure(run.edges, run.tables[table])


def _is_same_error(error: LakeIngestError, other: LakeIngestError) -> bool:
    return (type(error), str(error)) == (type(other), str(other))
