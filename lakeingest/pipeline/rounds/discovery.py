"""Discovery: tables that appear in the source while a run follows are looked for, and join the run."""

import time
from collections.abc import Sequence

from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError, SchemaChanged
from lakeingest.pipeline.joining.joining import join
from lakeingest.pipeline.preconditions import joinable
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.pipeline.signals.documents import look

LIST_SECONDS = 30.0  # between two lists of the source's tables while it writes nothing
LIST_SHARE = 0.01  # of the time, for lists while it writes: a new table is there with the next transactions
AGAIN_SECONDS = 300.0  # between tries of a table that cannot be copied


class Discovery:
    """Looks for new tables of a run now and then; for none where the run is for tables that were named."""

    def __init__(self, run: OpenRun) -> None:
        self._run = run
        now = time.monotonic()
        self._listed_at, self._listed_to = now, run.binlog.spool.position.at
        self._pause = 0.0
        self._tried_at = {table.id: now for table in run.requested}

    def look(self) -> None:
        """Now and then: new tables join, or are reported as stopped where they cannot be copied.

        Tables that the user may no longer read stop.
        """
        run, now = self._run, time.monotonic()
        if self._is_due(now):
            self._listed_at, self._listed_to = now, run.binlog.spool.position.at
            listed = run.edges.config.tables.select(run.edges.source.tables())
            self._pause = min(LIST_SECONDS, (time.monotonic() - now) / LIST_SHARE)
            stop_hidden(run, listed)
            if new := [table for table in listed if run.takes_new and self._is_new(table, now)]:
                self._admit(new)
                look(run)  # a new table may be paused
                self._tried_at |= dict.fromkeys(new, now)
        if any(table.is_joining for table in run.tables.values()):
            join(run)

    def _is_due(self, now: float) -> bool:
        """Whether there may be new tables: the binlog, where CREATE TABLE is, has grown, or it was long ago."""
        has_grown = self._run.binlog.spool.position.at != self._listed_to
        return now - self._listed_at >= (self._pause if has_grown else LIST_SECONDS)

    def _is_new(self, table: TableId, now: float) -> bool:
        """Whether the run does not know the table, or could not copy it, some time ago."""
        known = self._run.tables.get(table)
        if known is None:
            return True
        is_refused = known.requested and known.copy is None and known.failure is not None
        return is_refused and now - self._tried_at.get(table, 0.0) >= AGAIN_SECONDS

    def _admit(self, new: Sequence[TableId]) -> None:
        """Make the tables part of the run, those that cannot be copied as stopped tables."""
        run = self._run
        found = joinable(run.edges.config, run.edges.source, new)
        for table in new:
            schema = found.schemas.get(table)
            error: LakeIngestError | None = found.refused.get(table)
            if table in found.copied:
                error = SchemaChanged(
                    f"{table}: the source has this table again, and its copy is from before; the next run goes on with"
                    " the copy, or says why it must be made again"
                )
            known = run.tables.get(table)
            failure = None if known is None else known.failure
            if failure is not None and error is not None and _same(failure.error, error):
                continue  # it was reported
            joins = error is None and schema is not None
            options = run.edges.config.tables.of(table)
            watch = Watch.JOINING if joins else Watch.UNWATCHED
            run.tables[table] = TableRun(table, options, schema if joins else None, requested=True, watch=watch)
            if error is not None:
                fail(run.edges, run.tables[table], error)
            elif known is not None:
                clear_failure(run.edges, run.tables[table])


def _same(one: LakeIngestError, other: LakeIngestError) -> bool:
    return (type(one), str(one)) == (type(other), str(other))
