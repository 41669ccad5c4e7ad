"""The copies of a run and their spool, in the form that `core.cascaded` needs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakeingest.core.cascaded import Standing
from lakeingest.core.cascades import ForeignKey, Row, RowChange, Rule
from lakeingest.core.comparison import Comparison, comparison
from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.errors import SplitUnstable, SpoolGap
from lakeingest.pipeline.cascades.row_versions import classes_of, rows_with
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spool.row_versions import has_removed, removed_rows


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of a run and their spool, as `core.cascaded.Copies`. `asker` is the table whose changes are sought."""

    edges: Edges
    binlog: BinlogRun
    asker: TableRun

    @property
    def stop(self) -> Place:
        """The end of the spool."""
        return self.binlog.spool.position.place

    def columns(self, table: TableId) -> tuple[str, ...]:
        """The columns of the table's key and comparable foreign keys, and columns to which its children refer."""
        keys, schema = self.binlog.foreign_keys, self._read(table).schema
        own = (name for key in keys.get(table, ()) if self.comparable(key) for name in key.columns)
        of_children = (key for keys_of_child in keys.values() for key in keys_of_child if key.parent == table)
        referenced = (name for key in of_children if self.comparable(key) for name in key.referenced)
        names = tuple(dict.fromkeys([*schema.key, *own, *referenced]))
        if not set(names) <= set(schema.names):
            raise SpoolGap(f"{table}: its rows lack columns of foreign keys")
        return names

    def comparable(self, key: ForeignKey) -> bool:
        """Whether the values of the foreign key can be compared, as the copies have them."""
        return self._comparison(key) is Comparison.VALUES

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """The classes of values of a foreign key."""
        return classes_of(self.edges, key, values)

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whether the spool deletes parent rows, or may change their referenced values, and the rules react to that."""
        self._read(key.parent)
        names = key.referenced if self._comparison(key) is Comparison.CHANGES else None
        deletes, updates = key.on_delete is not Rule.NONE, key.on_update is not Rule.NONE
        files = self.binlog.spool.files(key.parent, after, upto)
        return has_removed(files, names, after, upto, deletes=deletes, updates=updates)

    def _comparison(self, key: ForeignKey) -> Comparison:
        tables = self.binlog.tables.get(key.table), self.binlog.tables.get(key.parent)
        child, parent = (None if run is None else run.definition for run in tables)
        return Comparison.NOTHING if child is None or parent is None else comparison(key, child, parent)

    def standing(self, table: TableId) -> Standing:
        """How far the copy goes. Raises SplitUnstable if it is incomplete, or lacks changes by these foreign keys."""
        run = self._read(table)
        cascades = None if run.copy is None or run.has_missing_chunks else run.progress.cascades
        if cascades is None or cascades.keys != run.cascade_keys:
            raise SplitUnstable(f"{self.asker.id} waits until {table} is copied, on which it depends by foreign keys")
        return Standing(cascades.to, run.progress.splits.stop, run.progress.gap, run.staged.version)

    def logged(self, table: TableId, after: Place) -> Iterable[RowChange]:
        """The rows that the spool's changes delete or change after this place."""
        self._read(table)
        return removed_rows(self.binlog.spool.files(table, after, self.stop), self.columns(table), after, self.stop)

    def versions(self, table: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> Iterable[Row]:
        """The rows with values of these classes, in the copy, in its patches and in the spool."""
        return rows_with(self.edges, self.binlog, self._read(table), self.columns(table), sought)

    def _read(self, table: TableId) -> TableRun:
        """The table's run. Raises SplitUnstable unless the spool gets its changes."""
        run = self.binlog.tables.get(table)
        if run is None or run.watch is not Watch.WATCHED or run.definition is None:
            raise SplitUnstable(
                f"{self.asker.id}: foreign keys change its rows with those of {table}, whose changes are not read now;"
                " it goes on when that table does"
            )
        return run
