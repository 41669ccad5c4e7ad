"""Foreign tables of an Iceberg catalog: found by the names of copies, and taken over by one commit on staging."""

from collections.abc import Callable

from pyiceberg.table import Table, Transaction

from lakeingest.config.tables import TableOptions
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.lake.foreign_tables import Foreign
from lakeingest.lake.iceberg.commits.commit import commit
from lakeingest.lake.iceberg.foreign.taking_over import TakeOver
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, is_foreign
from lakeingest.lake.iceberg.tables.properties import wanted_version
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.refusals import stale, written_meanwhile
from lakeingest.lake.target import Staged


class IcebergForeignTables:
    """`lake.foreign_tables.ForeignTables` on an Iceberg catalog."""

    def __init__(self, target: IcebergTarget, *, keeps_dropped: bool) -> None:
        self._target, self._keeps_dropped = target, keeps_dropped

    def find(self, schema: TableSchema) -> Foreign | None:
        """The foreign table; None if there is none. Its metadata and manifests are read.

        With a name mapping, footers of its files are read, too. Raises NotOurTable as `TakeOver.of`.
        """
        with self._target.storage_errors():
            loaded = self._load(schema.table) if self._target.exists() else None
            if loaded is None:
                return None
            return self._take_over(loaded, schema).described(self._options(schema.table))

    def take_over(self, schema: TableSchema, progress: Callable[[int], Progress]) -> Staged:
        """Write the deletes as positions, then make the commit on staging that takes over the table.

        `progress` returns the progress of this commit for the number of rows of the copy.
        """
        table, entries = schema.table, self._target._entries  # noqa: SLF001 - of the same package
        with self._target.storage_errors():
            loaded = self._load(table)
            if loaded is None:
                raise stale(table)
            take_over, options = self._take_over(loaded, schema), self._options(table)
            # Step 1: the deletes, in files to which nothing refers yet
            dead = take_over.dead(schema)
            changes = take_over.deletes.changes(dead)
            rows = sum(entry.data_file.record_count for entry in take_over.deletes.rows)
            first = progress(rows - sum(map(len, dead.values())))

            # Step 2: the commit
            def build(current: Table) -> Transaction:
                """The transaction on the table `current`. Raises ForeignWrite if someone has committed on main."""
                self._assert_unmoved(table, current, take_over, options.adopt.stopped or "")
                return entries.add_owner(take_over.transaction(current, options, first, changes), current)

            try:
                made = commit(table, build(loaded), lambda: self._current(table), build)
            except StaleWriter:  # if main has moved, ForeignWrite tells more
                if (current := self._current(table)) is not None:
                    self._assert_unmoved(table, current, take_over, options.adopt.stopped or "")
                raise
        return Staged(first, made[STAGING], published=take_over.main.snapshot_id)

    def _take_over(self, loaded: Table, schema: TableSchema) -> TakeOver:
        """How the loaded table becomes the copy; nothing is written. Raises NotOurTable as `TakeOver.of`."""
        version = wanted_version(self._target.settings, self._options(schema.table))
        return TakeOver.of(loaded, schema, self._options(schema.table), version, keeps_dropped=self._keeps_dropped)

    def _assert_unmoved(self, table: TableId, current: Table, take_over: TakeOver, stopped: str) -> None:
        """Raises ForeignWrite if someone has committed on main since the table was loaded."""
        main = current.metadata.snapshot_by_name(MAIN)
        if main is None or main.snapshot_id != take_over.main.snapshot_id:
            commit_of_others = f"snapshot {main.snapshot_id}" if main else "a table without rows"
            raise written_meanwhile(table, commit_of_others, stopped)

    def _options(self, table: TableId) -> TableOptions:
        return self._target._entries.options(table)  # noqa: SLF001 - of the same package

    def _load(self, table: TableId) -> Table | None:
        """The table if another tool made it; None if there is no table, or a copy of ours."""
        loaded = self._current(table)
        return loaded if loaded is not None and is_foreign(loaded) else None

    def _current(self, table: TableId) -> Table | None:
        """The table that has the name of the copy now, whoever made it; None if there is none."""
        return self._target._entries.load(table, self._target.settings.identifier(table))  # noqa: SLF001 - as above
