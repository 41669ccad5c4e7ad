"""Taking over: a table of the lake that another tool made becomes the copy of a table of the source.

    the foreign table -> one commit on staging: a copy with a gap -> waves of comparisons -> gates -> publish

Nobody knows as of which place of the binlog the tool's rows are, or whether they are right. So after the commit all
rows of the source are read and compared, as after a gap (`over_gap`), and only rows that differ are written. Rows that
stay are equal to rows of the source. The other tool must be off: if it commits before the first publish, the table
stops with ForeignWrite.
"""

from lakeingest.core.binlog.position import Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.startup import taken_over
from lakeingest.lake.formats import open_foreign_tables
from lakeingest.pipeline.events import TookOver
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_tables import foreign_table
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.state.definition import keep_definition, keep_restart


def take_over(edges: Edges, table: TableRun, new: Progress, position: Position) -> bool:
    """Take over the foreign table that has the name of the table's copy. False if there is none, or none is wanted.

    `new`: the progress that an empty copy would have at this position. Raises NotOurTable if it cannot be taken over.
    """
    schema, tables = table.schema, open_foreign_tables(edges.config)
    found = foreign_table(edges.config, schema, tables)
    if found is None or tables is None:
        return False
    # Step 1: note for readers of the changelog that the copy begins now. After a kill, both steps are taken again
    keep_definition(edges.writing, schema, is_new=True)
    keep_restart(edges.writing, schema, found.version, new.covered_from)
    # Step 2: one commit on staging. Rows are checked when they are compared, and not published before that
    edges.lease.assert_held()
    staged = tables.take_over(schema, lambda rows: taken_over(new, position, rows))
    table.advance(staged, sound=True)
    edges.observe(TookOver(table.id, found.stopped, staged.progress.rows))
    return True
