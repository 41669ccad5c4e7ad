"""The answers that `core.cascades.cascaded` needs about the copies of a run and about the spool."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascaded import Standing
from lakeingest.core.cascades.cascades import ForeignKey, Row, RowChange, Rule
from lakeingest.core.cascades.comparison import Comparison, comparison
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import SplitUnstable, SpoolGap
from lakeingest.pipeline.cascades.row_versions import classes_of, rows_with
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spool.row_versions import has_removed, removed_rows


@dataclass(frozen=True, slots=True)
class Copies:
    """The answers for `core.cascades.cascaded.Copies`. `asker`: the table whose changes by foreign keys are sought."""

    edges: Edges
    binlog: BinlogRun
    asker: TableRun

    @property
    def stop(self) -> Place:
        """The end of the spool."""
        return self.binlog.spool.position.place

    def columns(self, table: TableId) -> tuple[str, ...]:
        """The columns of the table's key, of its foreign keys, and the columns to which foreign keys of children refer.

        Only comparable foreign keys count. Raises SpoolGap if the copy does not have one of these columns.
        """
        keys, schema = self.binlog.foreign_keys, self._watched_run(table).schema
        own_keys = [key for key in keys.get(table, ()) if self.comparable(key)]
        all_keys = (key for keys_of_child in keys.values() for key in keys_of_child)
        keys_to_table = [key for key in all_keys if key.parent == table and self.comparable(key)]
        referring = (name for key in own_keys for name in key.columns)
        referenced = (name for key in keys_to_table for name in key.referenced)
        names = tuple(dict.fromkeys([*schema.key, *referring, *referenced]))
        if not set(names) <= set(schema.names):
            raise SpoolGap(f"{table}: its rows lack columns of foreign keys")
        return names

    def comparable(self, key: ForeignKey) -> bool:
        """Whether the values of the foreign key can be compared here, in the form that the copies have."""
        return self._comparison(key) is Comparison.VALUES

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """The class of each of these values of a foreign key."""
        return classes_of(self.edges, key, values)

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whether the spool has a change of the parent after `after`, up to `upto`, to which the foreign key reacts.

        That is a delete, or an update that may have changed a referenced value.
        """
        self._watched_run(key.parent)  # raises an error if the spool does not get the parent's changes
        # None: every update counts, because the stored values do not show which updates change a referenced value
        names = key.referenced if self._comparison(key) is Comparison.CHANGES else None
        deletes, updates = key.on_delete is not Rule.NONE, key.on_update is not Rule.NONE
        files = self.binlog.spool.files(key.parent, after, upto)
        return has_removed(files, names, after, upto, deletes=deletes, updates=updates)

    def _comparison(self, key: ForeignKey) -> Comparison:
        """How values of the foreign key can be compared; NOTHING if the run lacks a definition of one of its tables."""
        tables = self.binlog.tables.get(key.table), self.binlog.tables.get(key.parent)
        child, parent = (None if run is None else run.definition for run in tables)
        return Comparison.NOTHING if child is None or parent is None else comparison(key, child, parent)

    def standing(self, table: TableId) -> Standing:
        """How far the rows of the copy go: up to which place by logged changes, and up to which by foreign keys.

        Raises SplitUnstable if the copy is incomplete, or was not read for the table's current foreign keys.
        """
        run = self._watched_run(table)
        cascades = None if run.copy is None or run.has_missing_chunks else run.progress.cascades
        if cascades is None or cascades.keys != run.cascade_keys:
            raise SplitUnstable(f"{self.asker.id} waits until {table} is copied, on which it depends by foreign keys")
        return Standing(cascades.to, run.progress.splits.stop, run.progress.gap, run.staged.version)

    def logged(self, table: TableId, after: Place) -> Iterable[RowChange]:
        """The changes after this place in the spool that delete or change rows of the table."""
        self._watched_run(table)  # raises an error if the spool does not get the table's changes
        return removed_rows(self.binlog.spool.files(table, after, self.stop), self.columns(table), after, self.stop)

    def versions(self, table: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> Iterable[Row]:
        """The rows with values of the `sought` classes, in all versions that copy, patches and spool have of them."""
        return rows_with(self.edges, self.binlog, self._watched_run(table), self.columns(table), sought)

    def _watched_run(self, table: TableId) -> TableRun:
        """The run of a table whose changes the spool gets. Raises SplitUnstable for any other table."""
        run = self.binlog.tables.get(table)
        if run is None or run.watch is not Watch.WATCHED or run.definition is None:
            raise SplitUnstable(
                f"{self.asker.id}: foreign keys change its rows with those of {table}, whose changes are not read now;"
                " it goes on when that table does"
            )
        return run
