"""From where on the spool has the changes of joining tables, and of tables whose rows are read from now on."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce

from lakeingest.core.cascades import family
from lakeingest.core.position import FilePosition, Place, Position, in_same_file, is_before
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import LakeIngestError, SplitUnstable
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.binlog.segment_task import SpoolSegment
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Joined:
    """The places from which the spool watches joining tables, and the tables that it cannot watch."""

    starts: Mapping[TableId, Place]
    stopped: Mapping[TableId, LakeIngestError] = field(default_factory=dict)


def watched_from(source: BinlogSource, spool: Spool, joining: Mapping[TableId, TableSchema]) -> Joined:
    """The places from which the spool watches joining tables, with their current definitions (of `stable_schema`).

    The place is the position of the spool. Without GTIDs, the low watermark of a joining table is the start of the
    source's current file. Then the place is the start of the spool position's file, or the end of the table's last DDL
    in that file, which has waited for all changes before it. The spool keeps the changes of other tables.
    """
    position, start = spool.position, spool.position.start_of_file
    if not joining or position == start or not source.has_low_at_file_start(position):
        return Joined(dict.fromkeys(joining, position.place))
    ends = source.last_ddl(Segment.after(start, position.at), joining)
    starts = {table: ends.get(table) or start.at for table in joining}
    stopped = _extend(source, spool, joining, starts)
    return Joined({table: at.place(start.epoch) for table, at in starts.items()}, stopped)


def cover_lows(edges: Edges, binlog: BinlogRun, table: TableRun) -> Place:
    """Let the spool have every change that rows read from now on may lack; return the place after which it has them.

    No later low watermark of the table is before that place. The changes of its parents by foreign keys are included.
    Raises SplitUnstable if the table or a parent has had DDL that forbids this.
    """
    since, position = _cover(edges, binlog, table), binlog.spool.position
    if since == position.place:
        return since
    for parent in {key.parent for key in family(table.id, binlog.foreign_keys)} & binlog.tables.keys():
        run = binlog.tables[parent]
        if run.watch is Watch.WATCHED and since < _cover(edges, binlog, run):
            raise SplitUnstable(
                f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: foreign keys change its"
                f" rows with those of {parent}, which has DDL in the binlog file {position.at.file}, and without GTIDs"
                " a read may lack them until the source begins its next file"
            )
    return since


def _cover(edges: Edges, binlog: BinlogRun, table: TableRun) -> Place:
    """The place of `cover_lows` for the table's own changes, found as for a joining table (`watched_from`).

    If the spool watches the table from a later place on, it is extended back to this place. Raises SplitUnstable after
    DDL that may have run beside changes of the table.
    """
    position, source = binlog.spool.position, edges.source
    if not source.has_low_at_file_start(position):
        return position.place
    start = position.start_of_file
    searched, at = binlog.searched.get(table.id, (start.at, start.at))
    if not in_same_file(searched, start.at):
        searched = at = start.at
    rest = Segment.after(replace(start, at=searched, history=None), position.at)
    at = source.last_ddl(rest, {table.id: table.schema}).get(table.id, at)
    binlog.searched[table.id] = position.at, at
    if at is None:
        raise SplitUnstable(
            f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: DDL in the binlog file"
            f" {start.at.file} may have run beside changes of the table, and without GTIDs a read may lack them until"
            " the source begins its next file"
        )
    since = at.place(start.epoch)
    if since < binlog.spool.watched_from(table.id):
        stopped = _extend(source, binlog.spool, {table.id: table.schema}, {table.id: at})
        if table.id in stopped:
            raise stopped[table.id]
    return since


def _extend(
    source: BinlogSource, spool: Spool, schemas: Mapping[TableId, TableSchema], starts: Mapping[TableId, FilePosition]
) -> Mapping[TableId, LakeIngestError]:
    """Let the spool watch each table from its start on, which is in the file of the spool's position.

    Returns the tables whose changes cannot be read, each with its error.
    """
    position, start, opened = spool.position, spool.position.start_of_file, spool.opened
    groups = {at: [table for table in schemas if starts[table] == at] for at in {start.at, *starts.values()}}
    stopped = dict[TableId, LakeIngestError]()

    def read(begins: Position, stop: FilePosition, at: FilePosition) -> Manifest:
        """The binlog between the two, for the tables whose start is `at`."""
        tables = {table: schemas[table] for table in groups[at] if table not in stopped}
        segment = Segment.after(begins, stop)
        if is_before(begins.at, at):
            segment = replace(segment, start=at, history=None)
        decoded = SpoolSegment(source.settings, segment, tables, spool.folder, stop.pos).run()
        stopped.update(decoded.stopped)
        return decoded.manifest

    # Step 1: if the spool begins in this file, after the start of some table, it gets a segment before its beginning
    begins, early = start, [at for at in groups if is_before(at, opened.at)]
    if any(groups[at] for at in early):
        begins = opened
        parts = [read(start, opened.at, at) for at in sorted(early, key=lambda at: at.pos)]
        spool.reach_back(start, reduce(_with_tables_of, parts))
    # Step 2: the segments that it has get the rows of these tables
    for at, tables in groups.items():
        if tables and begins.at != position.at:
            spool.widen(read(begins, position.at, at))
    return {table: _with_way_out(table, error, start.at) for table, error in stopped.items()}


def _with_way_out(table: TableId, error: LakeIngestError, start: FilePosition) -> LakeIngestError:
    """The error with a way out, for changes that are read only because they are in the source's current binlog file."""
    longer = copy(error)
    longer.args = (
        f"{table}: FLUSH BINARY LOGS on the source, then run the same command again: without GTIDs its changes are read"
        f" from the start of the binlog file {start.file} on, and {error}",
    )
    return longer


def _with_tables_of(part: Manifest, other: Manifest) -> Manifest:
    return replace(part, tables={**part.tables, **other.tables}, nulled={**part.nulled, **other.nulled})
