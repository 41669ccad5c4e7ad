"""A round with `target.publish_together`: tables are merged to one place of the binlog, then shown at once.

1. Tables that need only the lake are merged side by side; then the others, one after the other.
2. A merge of the others may spool on: rows that foreign keys have changed are read again, or DDL is followed. Then each
   table that has changes up to the new end is merged again, also one that was not due before. So no reader sees a
   transaction in one table, and not yet in another.
3. `publishing.at_once` shows all of them.

If an error of one table stops the whole run during the merges, the run first shows the tables that are merged, and then
raises the error. Otherwise that table would keep all others from readers, in each run again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, MainMoved
from lakeingest.lake.target import Joint
from lakeingest.pipeline.cascades.cascades import read_cascades, remove_merged_patches
from lakeingest.pipeline.events import ShownApart
from lakeingest.pipeline.publishing.at_once import publish_at_once
from lakeingest.pipeline.run.current import has_changes
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.foreign_keys import know_parents, parents_first
from lakeingest.pipeline.run.hidden_tables import stop_hidden
from lakeingest.pipeline.run.lake_only import needs_only_lake
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import working_on
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.lifting import merge_over_halts
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.side_by_side import side_by_side

PASSES = 3  # of merges, if the spool goes on meanwhile


def publish_at_one_place(
    run: OpenRun, joint: Joint, tables: Sequence[TableRun], stopping: Callable[[], bool]
) -> list[TableRun]:
    """Merge tables to one place of the binlog, then let readers see all at once.

    `tables`: the due tables; readers must see an earlier commit of each. Tables that get changes during the merges are
    merged and shown, too. Returns the tables that someone has compacted: the caller publishes each of them by itself.
    Once `stopping` says so, no further table is begun, and nothing more is shown.
    """
    edges, binlog = run.edges, run.binlog
    know_parents(edges, binlog)
    merges, error = _Merges(run, stopping), None
    try:
        with translate_errors(edges.source.settings, edges.target):
            merges.to_one_place(tables)
    except LakeIngestError as failed:  # such as SparkLost: it is raised below
        error = failed
        merges.say_behind("the run ends before they are merged to it")
    merged = parents_first(binlog, merges.merged())
    moved = set(merges.moved)
    try:
        if not stopping():
            moved |= publish_at_once(edges, binlog, joint, merged, merges.may_beside, stopping)
    except LakeIngestError:
        edges.joint.unshown |= {table.id for table in merged if not table.staged.visible}
        raise
    edges.joint.unshown -= {table.id for table in merged}
    for table in merged:
        if table.id in merges.has_read and table.staged.visible:
            with working_on(edges, table):
                remove_merged_patches(edges, table)
    if error is not None:
        raise error
    return [table for table in merges.begun.values() if table.id in moved]


@dataclass(slots=True)
class _Merges:
    """The merges before a joint publish, all to one place of the binlog.

    `begun`: all tables that were to be merged. `complete`: those whose last merge has ended. `alone`: tables that need
    more than the lake. `has_read`: tables with rows that were read again. `moved`: tables that someone has compacted.
    """

    run: OpenRun
    stopping: Callable[[], bool]
    begun: dict[TableId, TableRun] = field(default_factory=dict)
    complete: set[TableId] = field(default_factory=set)
    alone: set[TableId] = field(default_factory=set)
    has_read: set[TableId] = field(default_factory=set)
    moved: set[TableId] = field(default_factory=set)

    def merged(self) -> list[TableRun]:
        """The tables that can be shown."""
        going_on = (table for table in self.begun.values() if table.failure is None and table.id not in self.moved)
        return [table for table in going_on if table.id in self.complete]

    def may_beside(self, table: TableRun) -> bool:
        """Whether a thread may check the table. If its merge needs more than the lake, its gate may need more, too."""
        return table.id not in self.alone

    def to_one_place(self, tables: Sequence[TableRun]) -> None:
        """Merge these tables, and all that get changes during the merges, until a pass does not move the spool's end.

        If each of PASSES passes moves the end, tables that need only the lake are at the end, and others may be before.
        """
        spool, due, looked_at = self.run.binlog.spool, list(tables), {table.id for table in tables}
        for _ in range(PASSES):
            end = spool.position
            due += self._changed(looked_at)
            self._merge_beside(due)
            self._merge_alone(due)
            if spool.position == end or self.stopping():
                return
            due, looked_at = [], set()  # in the next pass, all tables that have got changes are due
        self._merge_beside(self._changed(looked_at))
        self.say_behind("foreign keys change their rows all the time, so each table is published as of another place")

    def say_behind(self, why: str) -> None:
        """Tell the observer how many of the tables to show are behind the others, and why."""
        if behind := [table for table in self.merged() if has_changes(self.run, table)]:
            self.run.edges.observe(ShownApart(len(behind), why))

    def _changed(self, looked_at: Collection[TableId]) -> list[TableRun]:
        """The tables not in `looked_at` that readers see, and that have something to show up to the spool's end.

        `looked_at`: tables that are due, and whose definition was compared with the server's.
        """
        edges, binlog = self.run.edges, self.run.binlog
        stop_hidden(self.run)
        others = [table for table in self.run.copied if table.id not in looked_at]
        shown = [table for table in others if table.staged.published is not None]
        changed = [table for table in shown if table.id in edges.joint.unshown or has_changes(self.run, table)]
        if changed:
            look_for_unseen_ddl(edges, binlog, changed)  # it may spool on, too
        return [table for table in changed if table.failure is None]

    def _merge_beside(self, tables: Sequence[TableRun]) -> None:
        """Merge to the spool's end, side by side, the tables that need only the lake."""
        edges, binlog = self.run.edges, self.run.binlog
        self.begun |= {table.id: table for table in tables}
        self.alone |= {table.id for table in tables if not needs_only_lake(edges, binlog, table)}
        side_by_side(self._merge, filter(self.may_beside, tables), edges.config.target.tables_at_once)

    def _merge_alone(self, tables: Sequence[TableRun]) -> None:
        """Merge the tables that need more than the lake to the spool's end, parents first. This may move the end."""
        for table in parents_first(self.run.binlog, tables):
            if not self.may_beside(table):
                self._merge(table)

    def _merge(self, table: TableRun) -> None:
        """Merge one table, unless it has stopped or the run is to stop."""
        edges, binlog = self.run.edges, self.run.binlog
        if self.stopping() or table.failure is not None or table.id in self.moved:
            return
        self.complete.discard(table.id)
        with working_on(edges, table):
            try:
                if read_cascades(edges, binlog, table):
                    self.has_read.add(table.id)
                merge_over_halts(edges, binlog, table)
                self.complete.add(table.id)
            except MainMoved:  # by the publish before DDL over which the table cannot be lifted
                self.moved.add(table.id)
