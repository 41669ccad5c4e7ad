"""Coverage: from which place on the spool has all changes of a table whose rows are about to be read.

`watched_from` is for tables that join, `cover_lows` for tables whose rows are read again.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce

from lakeingest.core.binlog.position import FilePosition, Place, Position, in_same_file, is_before
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.cascades.cascades import family
from lakeingest.core.tables.schema import TableId, TableSchema
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
    """The result of `watched_from`.

    `starts`: for each joining table, the place from which on the spool watches the table. `stopped`: the tables whose
    changes after that place cannot be read, each with its error.
    """

    starts: Mapping[TableId, Place]
    stopped: Mapping[TableId, LakeIngestError] = field(default_factory=dict)


def watched_from(source: BinlogSource, spool: Spool, joining: Mapping[TableId, TableSchema]) -> Joined:
    """Let the spool watch the `joining` tables, each from a place on. `joining` has their current definitions.

    The place is the position of the spool, if no low watermark can be before it. Without GTIDs, a low watermark is the
    start of the source's current binlog file. If the spool ends in that file, this start may be before the position.
    Then the place is one of two:

    - The end of the table's last DDL in the file, if it is certain that all transactions with earlier changes of the
      table had ended before this DDL.
    - Otherwise the start of the file. It is also the place of a table without DDL in the file.
    """
    position, start = spool.position, spool.position.start_of_file
    if not joining or position == start or not source.has_low_at_file_start(position):
        return Joined(dict.fromkeys(joining, position.place))  # no low watermark can be before the position
    ends = source.last_ddl(Segment.after(start, position.at), joining)
    starts = {table: ends.get(table) or start.at for table in joining}
    stopped = _extend(source, spool, joining, starts)
    return Joined({table: at.place(start.epoch) for table, at in starts.items()}, stopped)


def cover_lows(edges: Edges, binlog: BinlogRun, table: TableRun) -> Place:
    """Before rows of the table are read: extend the spool back until it has every change that the read views may lack.

    Returns the place after which the spool has all changes of the table, and of its parents by foreign keys. No low
    watermark that is read from now on is before that place. Raises SplitUnstable if DDL of the table or of a parent
    makes this impossible, or the error of a change that cannot be read.
    """
    since, position = _cover_own_changes(edges, binlog, table), binlog.spool.position
    if since == position.place:  # the read views contain all changes in the spool
        return since
    for parent in {key.parent for key in family(table.id, binlog.foreign_keys)} & binlog.tables.keys():
        run = binlog.tables[parent]
        if run.watch is not Watch.WATCHED:
            continue
        covered_from = _cover_own_changes(edges, binlog, run)
        if since < covered_from:  # `covered_from` is the end of DDL: the spool lacks the parent's changes before it
            raise SplitUnstable(
                f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: foreign keys change its"
                f" rows with those of {parent}, which has DDL in the binlog file {position.at.file}: without GTIDs a"
                " read may not contain these changes until the source begins its next file"
            )
    return since


def _cover_own_changes(edges: Edges, binlog: BinlogRun, table: TableRun) -> Place:
    """Do what `cover_lows` does, but for one table without its parents.

    Returns the place after which the spool has the table's changes. The place is found as in `watched_from`. If the
    spool watches the table only from a later place on, the spool is extended back to the place. Raises SplitUnstable if
    DDL in the binlog file may have run at the same time as changes of the table.
    """
    position, source = binlog.spool.position, edges.source
    if not source.has_low_at_file_start(position):
        return position.place
    # Step 1: search the file for DDL of the table, from the end of the last search on
    start = position.start_of_file
    # `covered_at`: the end of the last DDL found in the file, or the start of the file; None: DDL in the file may have
    # run at the same time as changes of the table
    searched_to, covered_at = binlog.searched.get(table.id, (start.at, start.at))
    if not in_same_file(searched_to, start.at):  # the source has begun another file since the last search
        searched_to = covered_at = start.at
    # None: the history is that of the start of the file, not of `searched_to`
    unsearched = Segment.after(replace(start, at=searched_to, history=None), position.at)
    covered_at = source.last_ddl(unsearched, {table.id: table.schema}).get(table.id, covered_at)
    binlog.searched[table.id] = position.at, covered_at
    if covered_at is None:
        raise SplitUnstable(
            f"{table.id}: FLUSH BINARY LOGS on the source, then run the same command again: DDL in the binlog file"
            f" {start.at.file} may have run beside changes of the table: without GTIDs a read may not contain these"
            " changes until the source begins its next file"
        )
    # Step 2: extend the spool back to the end of the last DDL, or to the start of the file
    since = covered_at.place(start.epoch)
    if since < binlog.spool.watched_from(table.id):
        stopped = _extend(source, binlog.spool, {table.id: table.schema}, {table.id: covered_at})
        if table.id in stopped:
            raise stopped[table.id]
    return since


def _extend(
    source: BinlogSource, spool: Spool, schemas: Mapping[TableId, TableSchema], starts: Mapping[TableId, FilePosition]
) -> Mapping[TableId, LakeIngestError]:
    """Add to the spool the changes of each table between its place in `starts` and the spool's position.

    All `starts` are in the binlog file of that position. Returns the tables whose changes cannot be read, each with its
    error.
    """
    position, start, opened = spool.position, spool.position.start_of_file, spool.opened
    # the tables by their start; the start of the file has a group even without tables: only a read from there on finds
    # all transactions of the file
    groups = {at: [table for table in schemas if starts[table] == at] for at in {start.at, *starts.values()}}
    stopped = dict[TableId, LakeIngestError]()

    def read(lower: Position, upper: FilePosition, at: FilePosition) -> Manifest:
        """Decode the changes of the tables whose start is `at`: from the later of `lower` and `at`, up to `upper`."""
        tables = {table: schemas[table] for table in groups[at] if table not in stopped}
        segment = Segment.after(lower, upper)
        if is_before(lower.at, at):
            segment = replace(segment, start=at, history=None)  # the history is that of `lower`
        # `upper.pos`: the most bytes that the segment can have, because it is in one file
        decoded = SpoolSegment(source.settings, segment, tables, spool.folder, upper.pos).run()
        stopped.update(decoded.stopped)
        return decoded.manifest

    # Step 1: if the spool begins in this file, after the start of some table, put a segment before its first segment.
    # It is read in parts, one for each start in `groups`; the part from the file's start has all transactions
    early_starts = sorted((at for at in groups if is_before(at, opened.at)), key=lambda at: at.pos)
    reaches_back = any(groups[at] for at in early_starts)
    if reaches_back:
        parts = [read(start, opened.at, at) for at in early_starts]
        spool.reach_back(start, reduce(_with_tables_of, parts))
    # Step 2: add the rows of these tables to the segments that the spool had before
    widened_from = opened if reaches_back else start
    for at, tables in groups.items():
        if tables and widened_from.at != position.at:
            spool.widen(read(widened_from, position.at, at))
    return {table: _with_way_out(table, error, start.at) for table, error in stopped.items()}


def _with_way_out(table: TableId, error: LakeIngestError, start: FilePosition) -> LakeIngestError:
    """The error for a change that cannot be read, with a way out in its message.

    The change need not be read any more when the source has begun another binlog file.
    """
    longer = copy(error)
    longer.args = (
        f"{table}: FLUSH BINARY LOGS on the source, then run the same command again: without GTIDs its changes are read"
        f" from the start of the binlog file {start.file} on, and {error}",
    )
    return longer


def _with_tables_of(part: Manifest, other: Manifest) -> Manifest:
    """The first manifest, with the rows of the other manifest's tables, too."""
    return replace(part, tables={**part.tables, **other.tables}, nulled={**part.nulled, **other.nulled})
