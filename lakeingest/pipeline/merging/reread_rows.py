"""Rows of patches that a merge puts into the copy are also stored for readers of the changelog.

The binlog does not have these rows. Only rows without a later change are stored, so they are right as of the merge's
stop. They are stored before the commit of the merge, while the table's changes in the spool end at that stop: so a
reader that reaches a later segment finds them. If the run crashes before the commit, the stored rows are still right as
of their stop, and the next merge stores rows once more, as of its own stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableSchema
from lakeingest.pipeline.merging.row_numbers import RowNumbers, in_groups
from lakeingest.pipeline.run.edges import Edges
from lakeingest.spark.scatter import scatter
from lakeingest.spool import archive
from lakeingest.spool.collapse import row_bytes
from lakeingest.spool.reread_files import RereadFolder, Rows
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class WriteRereads:
    """The task of one executor: write rows of patches to a file for readers of the changelog.

    `first` is the number of the first of these rows among all reread rows as of `stop`.
    """

    folder: RereadFolder
    rows: Rows
    schema: TableSchema
    stop: Place
    first: int

    def run(self) -> tuple[str, int]:
        """Write the file; return its name and its number of rows. The file is durable then, but no reader sees it."""
        return self.folder.write(self.rows, self.schema, self.stop, self.first)


def store_rereads(edges: Edges, spool: Spool, schema: TableSchema, rereads: Sequence[RowNumbers], stop: Place) -> None:
    """Let readers of the changelog see these rows of patches, as of `stop`."""
    groups = in_groups(rereads, row_bytes)
    if not groups:
        return
    with edges.profile.stage("merges: store reread rows"):
        log, folder = archive.ensure_name(spool.folder), RereadFolder.of(spool.folder, schema.table)
        first = folder.next_number(stop, log)
        counts = (sum(len(rows) for _, rows in group) for group in groups)
        firsts = accumulate(counts, initial=first)  # the number of each group's first row; the last is of no group
        tasks = [WriteRereads(folder, group, schema, stop, start) for group, start in zip(groups, firsts, strict=False)]
        executors = edges.executors
        files = scatter(executors.for_tasks(small=len(tasks) == 1), WriteRereads.run, tasks, executors.at_once)
        spool.assert_owned()
        folder.add(ReadTo(stop, log=log, reread=first), files)
