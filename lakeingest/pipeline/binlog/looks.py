"""Notes of what the second decoder has compared, in the state folder."""

from collections.abc import Mapping, Sequence

from lakeingest.core.tables.schema import TableId
from lakeingest.pipeline.binlog.segment_task import Decoded
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun


def note_looks(edges: Edges, tables: Mapping[TableId, TableRun], decoded: Sequence[Decoded]) -> None:
    """Note in the state folder how many rows of each kind of column the second decoder has compared in segments."""
    looked = [look for segment in decoded for look in segment.looked]
    compared = {table for look in looked for table in look.rows}
    schemas = {table: tables[table].schema for table in compared}
    edges.note_looks(edges.source.greeting, schemas, looked)
