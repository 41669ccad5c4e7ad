"""The last DDL of tables in a part of the binlog. If it had the table for itself, later views have all before it."""

from collections.abc import Mapping
from dataclasses import replace

from lakeingest.config import Source
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import NO_TABLES, TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import UnsupportedEvent
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.connection import beside, free_server_id


def last_ddl(
    source: Source, segment: Segment, tables: Mapping[TableId, TableSchema]
) -> dict[TableId, FilePosition | None]:
    """Where the last DDL of each table ends that has some in the segment; None unless it had the table for itself.

    The DDL must be in force, as it is once `read_settled_schema` has returned. Rows are not decoded. All tables have
    None where something stands in the binlog that cannot be passed over.
    """
    found = dict[TableId, FilePosition | None]()
    while not segment.empty:
        try:
            with beside(source) as reading:
                server_id = free_server_id(reading, source)
                for _ in read_segment(reading, segment, NO_TABLES, server_id, SegmentFacts(), tables):
                    pass
            break
        except UnsupportedEvent as error:
            if error.ddl is None:
                return dict.fromkeys(tables)
            alone, end = error.ddl.alone, error.ddl.stop
            found |= {table: end if table in alone else None for table in error.tables}
            segment = replace(segment, start=end, history=None)
    return found
