"""Copies that begin empty at a place of the binlog which `tables.startup` names, before the spool's end.

Such a copy needs the same spool as a copy whose position is this place: the stored spool goes on, or a new spool begins
there, or the table stops because the source has purged the binlog (`core.copies.resuming`).
"""

from collections.abc import Mapping
from dataclasses import replace

from lakeingest.config import Config
from lakeingest.config.startup import StartAt
from lakeingest.core.binlog.position import FIRST_EPOCH, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded, RestartNeeded, SchemaChanged, of_table
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.joining.joining import create
from lakeingest.pipeline.opening.loading import Loaded
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.stopping import fail, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spool.spool import Spool


def with_starts(config: Config, source: BinlogSource, loaded: Loaded) -> tuple[Loaded, Mapping[TableId, Position]]:
    """The loaded tables, and the position at which the copy of each new table is to begin.

    There are no positions if `tables.startup` names no place, or if the source's binlog does not have the place. In the
    second case, the new tables of the returned `Loaded` have failed. The positions have the first epoch.
    """
    begins, new = config.tables.begins_at, [table for table, staged in loaded.staged.items() if staged is None]
    if begins is None or not new:
        return loaded, {}
    try:
        position = start_position(source, begins)
    except (RestartNeeded, OperatorNeeded) as error:
        kept = {table: staged for table, staged in loaded.staged.items() if staged is not None}
        schemas = {table: schema for table, schema in loaded.schemas.items() if table not in new}
        failed = {**loaded.failed, **dict.fromkeys(new, error)}
        return replace(loaded, schemas=schemas, staged=kept, failed=failed), {}
    return loaded, dict.fromkeys(new, position)


def start_position(source: BinlogSource, begins: StartAt) -> Position:
    """The position of a place in the source's binlog, with the first epoch.

    Raises OperatorNeeded if the place is not there, and BinlogGone if the source has purged it.
    """
    server = source.here(FIRST_EPOCH)
    if begins.position is not None:
        return server.position_at(begins.position)
    return server.position_after(begins.gtids) if begins.time is None else server.position_before(begins.time)


def begin_copies(
    edges: Edges, spool: Spool, tables: Mapping[TableId, TableRun], starts: Mapping[TableId, Progress]
) -> None:
    """Make the copies that begin with this progress. From now on the spool watches their tables.

    A table stops if DDL has changed it in the part of the binlog that is read for it: nobody knows its definition
    before that DDL.
    """
    joining = {table: tables[table] for table in starts if tables[table].failure is None}
    for table in joining.values():  # the definition that is in force now
        with working_on(edges, table), of_table():
            table.joins_by(edges.source.stable_schema(table.id, table.schema.choices))
    schemas = {table.id: table.schema for table in joining.values() if table.failure is None}
    if not schemas:
        return
    # a stored spool that does not watch a table yet has no changes of it before the spool's end
    is_ahead = all(spool.watched_from(table) == spool.position.place for table in schemas)
    since = spool.position if is_ahead else spool.opened
    altered = edges.source.last_ddl(Segment.after(since, edges.source.written()), schemas)
    for name, table in joining.items():
        if name in altered:
            why = f"its changes are read from {since.at} on, and DDL changed it after that"
            fail(edges, table, SchemaChanged(f"{name}: {why}: name a later place in tables.startup"))
        if table.failure is None:
            with working_on(edges, table):
                create(edges, table, _first_progress(edges.source, table, starts[name]))
                table.joined()


def _first_progress(source: BinlogSource, table: TableRun, start: Progress) -> Progress:
    """The progress of a copy's first commit: `start`, with what only the run knows of the table."""
    position, cascades = start.position, None
    assert position is not None  # noqa: S101 - the copy begins there
    if table.cascade_keys:
        cascades = CascadesRead(table.cascade_keys, position.place)
    # without GTIDs, rows that are read again need earlier changes: the spool is extended to them then (`cover_lows`)
    covered_from = position.start_of_file.place if source.reads_from_file_start(position) else position.place
    return replace(start, fingerprint=table.schema.fingerprint, covered_from=covered_from, cascades=cascades)
