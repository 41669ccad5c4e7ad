"""Joining: the copy of a table is begun, or begun again, and from then on the spool watches the table."""

from collections.abc import Mapping, Sequence

from lakeingest.config.tables import Tables
from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.startup import begun_empty
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import Retryable, SplitUnstable, of_table
from lakeingest.pipeline.binlog.coverage import watched_from
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.events import StartedOver
from lakeingest.pipeline.joining.known_names import assert_names_known
from lakeingest.pipeline.joining.over_gap import (
    definition_of_rows,
    go_on_over_gap,
    is_worth_comparing,
    lift_over_gap,
    origins_of,
)
from lakeingest.pipeline.joining.taking_over import take_over
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import know_foreign_keys
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import fail, working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.side_by_side import side_by_side
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.state.definition import keep_definition, keep_layout, keep_restart


def join(run: OpenRun) -> None:
    """Begin the copies of all tables that join, and let the spool watch these tables.

    A new table gets an empty copy. A copy that is started over is emptied on staging, or keeps its rows, which are then
    compared with the source (`over_gap`). A copy that is started over answers the signals that wait for the table.

    The spool watches a table from the table's start on, which is a place of the binlog. Without GTIDs a low watermark
    is the start of a binlog file, so the table's start is the start of that file, or the end of the table's last DDL in
    the file. If a change after its start cannot be replayed, the table stops, and can join only once the source has
    begun a new file.

    With `tables.startup: latest`, a new copy begins empty at the end of the spool. With `adopt`, another tool's table
    becomes the copy (`taking_over`).
    """
    edges, binlog = run.edges, run.binlog
    # Step 1: spool to the written position: then each table's start is after its CREATE, and after all earlier changes,
    # some of which may be unreplayable. This is needed if the spool watches tables, if a joining table has a copy, or
    # if the tables may start before the end of the spool
    needs_spooling = any(
        binlog.schemas or table.copy is not None or edges.source.has_low_at_file_start(binlog.spool.position)
        for table in _joining(run)
    )
    if needs_spooling:
        spool_to_now(edges, binlog)
    # Step 2: read the definitions and the foreign keys that are in force at the starts
    for table in _joining(run):
        with working_on(edges, table), of_table():
            definition = edges.source.stable_schema(table.id, table.schema.choices)
            assert_names_known(table, definition)  # DDL may have come since the definition was read first
            table.joins_by(definition)
    _leave_out_failed(run)
    if _joining(run):
        know_foreign_keys(edges, binlog)
        _leave_out_failed(run)
    # Step 3: let the spool watch the tables, before the commit of a copy names the place from which on it is watched
    starts = _watch_joining(run)
    if edges.config.tables.begins_empty or edges.config.tables.adopts:
        _stop_altered(run, [table for table in _joining(run) if table.copy is None])
        _leave_out_failed(run)

    # Step 4: make the copies; the progress of each has its start
    def begin(table: TableRun) -> None:
        """Make the first copy of a table, or start its copy over. From now on the table is watched."""
        with working_on(edges, table):
            end, start = binlog.spool.position, starts[table.id]
            cascades = CascadesRead(table.cascade_keys, start) if table.cascade_keys else None
            position = end if end.place == start else None  # an earlier start is known only as a place
            fingerprint = table.schema.fingerprint
            new = Progress(
                table.id, fingerprint, end.server_uuid, end.epoch, start, position=position, cascades=cascades
            )
            if table.copy is None:
                if not take_over(edges, table, new, end):
                    create(edges, table, _first_progress(edges.config.tables, new, end))
            else:
                _start_over(run, table, new)
            table.joined()

    first_copies = [table for table in _joining(run) if table.copy is None]
    side_by_side(begin, first_copies, edges.config.target.tables_at_once)
    for table in _joining(run):  # an earlier copy is compared with the source, which has one connection
        if table.failure is None:
            begin(table)
    _leave_out_failed(run)


def _first_progress(tables: Tables, new: Progress, end: Position) -> Progress:
    """The progress with which a new copy is made; `end` is the end of the spool.

    Raises Retryable if the copy is to begin at an earlier place: only when a run begins, its spool can reach back.
    """
    if tables.begins_at is not None:
        raise Retryable(f"{new.table}: its copy begins at a position; the next run begins it")
    return begun_empty(new, end) if tables.begins_empty else new.created()


def create(edges: Edges, table: TableRun, progress: Progress) -> None:
    """Make the first commit of a new copy, with this progress, and store the definition of its rows."""
    table.advance(edges.committing.create(table.schema, progress), sound=True)
    keep_definition(edges.writing, table.schema, is_new=True)


def _stop_altered(run: OpenRun, tables: Sequence[TableRun]) -> None:
    """Stop each of the tables that DDL has changed after the end of the spool.

    The definitions that the run has read must be in force at this end: copies that begin there without missing chunks
    are lifted over each later DDL.
    """
    edges, since = run.edges, run.binlog.spool.position
    schemas = {table.id: table.schema for table in tables if table.failure is None}
    if not schemas:
        return
    altered = edges.source.last_ddl(Segment.after(since, edges.source.written()), schemas)
    for name in altered:
        why = "its definition was changed after the place where its copy begins; run the same command again"
        fail(edges, run.tables[name], SplitUnstable(f"{name}: {why}"))


def _start_over(run: OpenRun, table: TableRun, new: Progress) -> None:
    """Begin a copy again on staging, and note for readers of the changelog where the old copy ends."""
    edges, staged = run.edges, table.staged
    signals = run.signals.waiting.get(table.id, ())
    is_complete = staged.progress.splits.complete
    compares = table.watch is Watch.REJOINING and (
        is_complete or is_worth_comparing(edges.source, staged, table.schema)
    )
    spool = run.binlog.spool
    # these two use the stored definition, which is replaced below
    old_schema = definition_of_rows(edges.config, staged, table.schema)
    lift = lift_over_gap(edges.config, edges.source, spool, staged, table.schema) if compares else None
    # Step 1: change the state folder; if the run is killed before the commit, the next run takes both steps again
    if staged.published is not None:
        keep_restart(edges.writing, table.schema, staged.published, new.covered_from)
    patches = PatchFolder.of(edges.writing, table.schema)
    for signal in signals:
        patches.remove(signal)  # the files of earlier reads for the signal: the new copy reads all rows
    # Step 2: one commit on staging
    if lift is not None:
        go_on_over_gap(edges, run.binlog, table, lift, new, signals)
    else:
        origins = None if old_schema is None else origins_of(old_schema, spool, staged, table.schema)
        keep_definition(edges.writing, table.schema)
        progress = staged.progress.started_over(new, signals=signals)
        table.advance(edges.committing.start_over(staged, table.schema, progress, origins), sound=True)
    keep_layout(edges.writing, table.schema)
    edges.observe(StartedOver(table.id, compared=lift is not None))


def _joining(run: OpenRun) -> list[TableRun]:
    """The tables that are still to join; a paused table joins once it is resumed."""
    return [table for table in run.tables.values() if table.is_joining and not table.paused]


def _leave_out_failed(run: OpenRun) -> None:
    """Let the tables that stopped while they joined be unwatched: they do not join."""
    for table in _joining(run):
        if table.failure is not None:
            table.cannot_join()


def _watch_joining(run: OpenRun) -> Mapping[TableId, Place]:
    """Let the spool watch the joining tables, and return their starts.

    A table stops if its changes after its start cannot be read.
    """
    joining = {table.id: table.schema for table in _joining(run)}
    joined = watched_from(run.edges.source, run.binlog.spool, joining)
    for table, error in joined.stopped.items():
        fail(run.edges, run.tables[table], error)
    _leave_out_failed(run)
    return joined.starts
