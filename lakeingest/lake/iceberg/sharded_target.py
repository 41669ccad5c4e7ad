"""A target whose copies are shards: readers find them in shared tables. Staging and recovery are as usual.

A shard is published in two steps: main of its own table moves, then a commit of the shared table shows it. `recover`
makes the second step if a run was killed in between. Until the second step, readers see the shard as it was before.

With a global key, a double keeps the second step from being made. While it does, the commit that readers see counts as
the shard's published one, and each publish tries the second step again.
"""

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from pyiceberg.table.snapshots import ancestors_of

from lakeingest.core.copies.ownership import Owner
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import KeyDoubled
from lakeingest.lake import target as port
from lakeingest.lake.errors import names_storage_errors
from lakeingest.lake.held import Auditing, unaudited
from lakeingest.lake.iceberg.foreign.adoptions import IcebergAdoptions
from lakeingest.lake.iceberg.merges.rewriting import IcebergRewriter
from lakeingest.lake.iceberg.shards.shared_tables import SharedTables
from lakeingest.lake.iceberg.tables.expiry import Held, nothing_held
from lakeingest.lake.iceberg.tables.history import published_snapshot
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.refusals import assert_nameable
from lakeingest.lake.target import Staged


class ShardedTarget(IcebergTarget):
    """`lake.target.Target` on an Iceberg catalog, for a target.table that several tables of the source have."""

    @functools.cached_property
    def shared(self) -> SharedTables:
        """The tables that readers query."""
        return SharedTables(self.settings, self._catalog, self._ownership, self._waiting_folder)

    @names_storage_errors
    def recover(self, table: TableId) -> Staged | None:
        """Recover the shard. If it was published, show in the shared table what main of its own table shows."""
        staged = super().recover(table)
        if self.settings.is_shard(table) and staged is not None and staged.published is not None:
            with suppress(KeyDoubled):  # the run goes on: changes may remove the double, and each publish tries again
                self.shared.show(table, self._table(table))
            return self._as_shown(staged)
        return staged

    @names_storage_errors
    def look(self, table: TableId) -> port.Looked | None:
        """Look at the shard, as readers see it in the shared table. Raises also as `SharedTables.assert_ours`."""
        looked = super().look(table)
        if self.settings.is_shard(table) and self.exists():
            self.shared.assert_ours(table)
            return looked and replace(looked, staged=self._as_shown(looked.staged))
        return looked

    @names_storage_errors
    def create(self, schema: TableSchema, progress: Progress) -> Staged:
        """Make the shard. Raises UnsupportedTable if the shared table cannot have its columns, or show its files."""
        self._assert_fits(schema)
        staged = super().create(schema, progress)
        if self.settings.is_shard(schema.table):
            self.shared.assert_readable(schema.table, self._table(schema.table))
        return staged

    @names_storage_errors
    def discard(self, table: TableId) -> None:
        """Drop a shard that was never published, or that a double has always kept from readers."""
        is_kept = self.settings.is_shard(table) and self.settings.global_key and self.shared.commit_of(table) is None
        self._entries.discard(table, unseen=is_kept)

    def types(self, schema: TableSchema) -> tuple[str, ...]:
        """The types, as for any other copy. The catalog has to allow the name of the shared table, too."""
        assert_nameable(self.settings.catalog.type or "sql", self.settings.shown(schema.table))
        return super().types(schema)

    @names_storage_errors
    def start_over(self, staged: Staged, schema: TableSchema, progress: Progress, known: Origins | None) -> Staged:
        """Remove all rows of the shard from staging. Raises UnsupportedTable as `create`."""
        self._assert_fits(schema)
        return super().start_over(staged, schema, progress, known)

    @names_storage_errors
    def rewriters(self, staged: Staged, lift: Lift) -> list[IcebergRewriter]:
        """Rewriters, as for any other copy.

        Raises UnsupportedTable if the shard, with its definition after the lift, does not fit beside the other shards.
        """
        self._assert_fits(lift.after)
        return super().rewriters(staged, lift)

    @names_storage_errors
    def publish(
        self, staged: Staged, schema: TableSchema, properties: Mapping[str, str], audit: Auditing = unaudited
    ) -> Staged:
        """Publish the shard, then show it in the shared table.

        Raises KeyDoubled if the key is global, and readers would see one key in two shards. In this case, they still
        see the shard as it was before.
        """
        self._assert_fits(schema)
        if not self.settings.is_shard(schema.table):
            return super().publish(staged, schema, properties, audit)
        staged = self._as_published(staged)
        published = staged if staged.visible else super().publish(staged, schema, properties, audit)
        self.shared.show(schema.table, self._table(schema.table))
        return published

    def _as_shown(self, staged: Staged) -> Staged:
        """The state of a shard, with the commit that readers see in the shared table as the published one.

        Only a double lets this commit differ from main of the shard's own table: `recover` shows everything else.
        """
        if not self.settings.global_key or staged.published is None:
            return staged
        return replace(staged, published=self.shared.commit_of(staged.progress.table))

    def _as_published(self, staged: Staged) -> Staged:
        """The state of a shard, with main of its own table as the published commit, if a double kept it from readers.

        A double kept main if main is in the history of `staged`. Any other commit on main is left to the publish.
        """
        if not self.settings.global_key:
            return staged
        loaded = self._table_with(staged.progress.table, staged.version)
        main = published_snapshot(loaded)
        history = ancestors_of(loaded.metadata.snapshot_by_id(staged.version), loaded.metadata)
        was_kept = main != staged.published and any(snapshot.snapshot_id == main for snapshot in history)
        return replace(staged, published=main) if was_kept else staged

    @names_storage_errors
    def remove_leftovers(self, table: TableId, age: timedelta) -> tuple[int, int]:
        """Delete leftovers of the shard, and in the shared table the rows of shards whose own tables are gone."""
        removed = super().remove_leftovers(table, age)
        if self.settings.is_shard(table):
            self.shared.forget_dropped(table)
        return removed

    def _assert_fits(self, schema: TableSchema) -> None:
        """Raises as `SharedTables.assert_fits`, if the table is a shard."""
        if self.settings.is_shard(schema.table):
            self.shared.assert_fits(schema)

    def _held(self, table: TableId) -> Held:
        """A function that returns the commits of a shard that snapshots of the shared table show."""
        return functools.partial(self.shared.held, table) if self.settings.is_shard(table) else nothing_held


class ShardedAdoptions(IcebergAdoptions):
    """`lake.ownership.Adoptions` of shards: the shared table is handed over, too."""

    def __init__(self, target: ShardedTarget, owner: Owner) -> None:
        super().__init__(target, owner)
        self._sharded = target

    def adopt(self, table: TableId) -> None:
        """Hand over the shard, then the shared table, in which only this pipeline shows shards after that."""
        super().adopt(table)
        with self._target.storage_errors():
            self._sharded.shared.hand_over(table, self._owner.to_text())
