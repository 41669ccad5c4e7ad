"""Reads a part of the binlog once more, by the slow decoder, and compares it with what the fast decoder made of it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, file_name
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.proofs.witness import Compared, Stint
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import BinlogGone
from lakeingest.mysql import connection as connections
from lakeingest.mysql.binlog_reader import can_begin_at, dump_error, dump_events
from lakeingest.mysql.decoders import stretch_differences, uses_slow_decoders
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.statement_reach import StatementReach
from lakeingest.mysql.wire.grammar import Watched

Place = tuple[int, int]  # of a transaction: the number of its file, and its position
FAR, GONE = "positions beyond 4 GiB in a binlog file", "binlog files that were purged meanwhile"

__all__ = ["Place", "second_reading", "uses_slow_decoders"]


def second_reading(
    source: Source,
    segment: Segment,
    schemas: Mapping[TableId, TableSchema],
    waiting: Mapping[TableId, TableSchema],
    stint: Stint,
    before: Place | None,
    place: Place,
    rows_until: Callable[[TableId, Place, int | None], pa.Table],
) -> Compared:
    """Compare a part of a segment, from the transaction at `place` on, over a new connection.

    `before` is the place of the previous transaction in the segment; None if there is none. `schemas` and `waiting` are
    those with which the segment was read first. `rows_until`: see `decoders.stretch_differences`.

    Raises SourceAway if the connection breaks, or if the server does not send the part.
    """
    with connections.connect(source) as connection:
        start = _start(connection, segment, before, place)
        if not can_begin_at(start):
            return _not_read(FAR)
        server_id = connections.free_server_id(connection, source)
        part = replace(segment, start=start, history=None)
        watched = Watched(schemas, waiting, StatementReach(source))
        try:
            sent = dump_events(connection, start, server_id)
            return stretch_differences(sent, part, watched, stint.tables, stint.rows, stint.events, rows_until)
        except pymysql.err.MySQLError as error:
            named = dump_error(error, f"{start} to {segment.stop}")
            if isinstance(named, BinlogGone):
                return _not_read(GONE)
            raise named from error


def _start(connection: pymysql.Connection, segment: Segment, before: Place | None, place: Place) -> FilePosition:
    """Where a dump must begin to have the transaction at `place` first. `before` is the place of the previous one."""
    if before is None:
        return segment.start
    if dialect(connection).has_snapshot_position:  # MariaDB: the place of a transaction is its beginning + 1
        return FilePosition(file_name(place[0], segment.start), place[1] - 1)
    # MySQL: the place of a transaction is its end, so the transaction at `place` begins at the place `before`
    return FilePosition(file_name(before[0], segment.start), before[1])


def _not_read(reason: str) -> Compared:
    """The result if nothing can be compared, for this reason."""
    return Compared(Counter(), Counter({reason: 1}), None, is_partial=False, differences=())
