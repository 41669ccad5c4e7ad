"""Finds the last DDL of tables in a part of the binlog. Its place tells which changes a later read view contains.

If all transactions that changed a table had ended before the table's DDL, a read view that opens after the DDL contains
all changes of the table before the DDL.
"""

from collections.abc import Mapping
from dataclasses import replace

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.connection import beside, free_server_id


def last_ddl(
    source: Source, segment: Segment, tables: Mapping[TableId, TableSchema]
) -> dict[TableId, FilePosition | None]:
    """The end of each table's last DDL in the segment, by table. Tables without DDL there are left out.

    The end is None for a table whose changes may be in a transaction that ended after that DDL. It is None for all
    `tables` if the segment has an event that cannot be passed over. Call this function only after `read_stable_schema`
    has returned, because then the DDL is in force. Rows are not decoded.
    """
    ends = dict[TableId, FilePosition | None]()
    while not segment.empty:  # each read ends at the next DDL; the next read begins after that DDL
        try:
            with beside(source) as reading:
                server_id = free_server_id(reading, source)
                for _ in read_segment(reading, segment, NO_TABLES, server_id, SegmentFacts(), waiting=tables):
                    pass  # only for the error that the read raises at DDL
            break  # no more DDL
        except UnsupportedEvent as error:
            if error.ddl is None:  # an event that cannot be passed over
                return dict.fromkeys(tables)
            end = error.ddl.stop
            # the DDL had the tables in `alone` for itself: all transactions that changed them had ended
            ends |= {table: end if table in error.ddl.alone else None for table in error.tables}
            segment = replace(segment, start=end, history=None)  # the history was that of the old start
    return ends
