"""Joining: new tables are created in the lake, and the spool watches them from then on."""

from lakeingest.core.position import Place
from lakeingest.core.progress import Progress
from lakeingest.pipeline.binlog_ingest import spool_to_now
from lakeingest.pipeline.open_run import OpenRun
from lakeingest.pipeline.opening import watched_from
from lakeingest.pipeline.stopping import stop, working_on
from lakeingest.pipeline.table_run import TableRun, Watch
from lakeingest.state.definition import keep_definition


def join(run: OpenRun) -> None:
    """Create the tables that have no copy yet, empty; changes that the binlog holds from before are not applied.

    First the binlog is read up to now for the other tables. Then the DDL of a table that was just made, or is copied
    again, lies before its start. Without GTIDs a low watermark is the start of a file, so the new tables are watched
    from there on; one with such DDL in the file stops before it has a copy, and can join when the file is full.
    """
    edges, binlog = run.edges, run.binlog
    if _joining(run) and binlog.schemas:
        spool_to_now(edges, binlog)
    start = _watch(run)
    for table in _joining(run):
        with working_on(edges, table):
            at = binlog.spool.position
            progress = Progress(table.id, table.schema.fingerprint, at.server_uuid, at.epoch, start)
            edges.lease.assert_held()
            table.advance(edges.target.create(table.schema, progress.created()), sound=True)
            keep_definition(edges.config.state, table.schema)
        table.watch = Watch.UNWATCHED if table.copy is None else Watch.WATCHED


def _joining(run: OpenRun) -> list[TableRun]:
    return [table for table in run.tables.values() if table.watch is Watch.JOINING and not table.paused]


def _watch(run: OpenRun) -> Place:
    """The place from which the spool watches the new tables. A table whose changes after it cannot be read stops."""
    joining = {table.id: table.schema for table in _joining(run)}
    joined = watched_from(run.edges.config, run.edges.connection, run.binlog.spool, joining)
    for table, error in joined.stopped.items():
        stop(run.edges, run.tables[table], error)
        run.tables[table].watch = Watch.UNWATCHED
    return joined.start
