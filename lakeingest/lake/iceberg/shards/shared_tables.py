"""Shared tables, in which readers find the rows of all shards (`core.tables.shards`).

A commit of a shared table writes no rows: its list of manifests has all manifests of the commits that the shards show.
A manifest is never of two shards, and keeps its sequence number. So deletes of a shard apply only to its own files.

The snapshot of a commit has the property `lakeingest.shards`: the commit of each shard that it shows. While a shared
table has the snapshot, these commits stay in the tables of their shards, and with them their files. The table property
`lakeingest.lists` has the lists of manifests of the last commit, and their totals.

The table's property `gc.enabled` is false: the files belong to the shards, so nobody else may remove them.
"""

import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate

from lakeingest import config
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.core.tables.shards import (
    NOTHING,
    Showing,
    held,
    shard_of,
    text_of,
)
from lakeingest.errors import ForeignWrite, StateUnreadable, UnsupportedTable
from lakeingest.files.file import File
from lakeingest.lake.iceberg.commits.commit import commit
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.types import iceberg_schema
from lakeingest.lake.iceberg.shards.columns import SharedColumns
from lakeingest.lake.iceberg.shards.creation import GLOBAL_KEY, SharedCreation, assert_readable, readable_by
from lakeingest.lake.iceberg.shards.doubles import Doubles
from lakeingest.lake.iceberg.shards.shared_commit import SHARDS, Listed, add_commit, is_ours, parsed
from lakeingest.lake.iceberg.storage.metadata import with_shared_lists
from lakeingest.lake.iceberg.tables.expiry import WORTH, AssertUnreferenced, delete, retained_snapshots, trim
from lakeingest.lake.iceberg.tables.history import MAIN, STATE, tip
from lakeingest.lake.iceberg.tables.properties import obeyed_properties
from lakeingest.lake.iceberg.tables.shape import schema_differences
from lakeingest.lake.marks import OWNER
from lakeingest.lake.ownership import PIPELINE, Ownership
from lakeingest.lake.refusals import not_ours
from lakeingest.lake.waiting import Waiting, waiting_of


class SharedTables:
    """The shared tables of a target. Threads may show different shards at the same time."""

    def __init__(
        self, settings: config.Target, catalog: Catalog, ownership: Ownership | None, waiting: File | None
    ) -> None:
        """`waiting`: as in IcebergTarget."""
        self._settings, self._catalog, self._ownership, self._waiting_folder = settings, catalog, ownership, waiting
        self._showing = threading.Lock()  # one commit at a time: of several, all but one would find that main has moved
        self._known: dict[int, Showing] = {}  # by snapshot, because a snapshot never changes
        self._begun: dict[TableId, Schema] = {}  # the columns of shards that this run copies for the first time

    def held(self, shard: TableId) -> AbstractSet[int]:
        """The commits of a shard that snapshots of its shared table show."""
        loaded = self._find(shard)
        return frozenset() if loaded is None else held(self._all_showings(loaded), shard)

    def assert_fits(self, schema: TableSchema) -> None:
        """Raises UnsupportedTable if the copy of this definition cannot be a shard beside the others.

        The others are the shards that are shown, and those that this run has begun to copy. If the table itself is not
        shown yet, its columns are noted for later calls. Raises also as `assert_ours`.
        """
        table, loaded, of_shard = schema.table, self.assert_ours(schema.table), iceberg_schema(schema, {})
        shared, columns = None if loaded is None else loaded.schema(), self._columns(table)
        # the items are copied first, because other threads change them
        others = [begun for shard, begun in [*self._begun.items()] if self._are_together(shard, table)]
        for begun in others:  # nobody sees them yet. In a shared table only columns of the key are required
            fields = columns.with_shard(table, shared, begun)
            shared = Schema(*fields, identifier_field_ids=[field.field_id for field in fields if field.required])
        columns.with_shard(table, shared, of_shard)
        if loaded is None or self._showing_of(self._last_of_ours(table, loaded)).commit_of(table) is None:
            self._begun[table] = of_shard

    def _are_together(self, one: TableId, other: TableId) -> bool:
        """Whether readers find these two shards in the same shared table."""
        return one != other and self._settings.shown(one) == self._settings.shown(other)

    def assert_ours(self, shard: TableId) -> Table | None:
        """The shared table of a shard; None if there is none yet.

        Raises:
            NotOurTable: something else has its name.
            NotOurCopy: it is of another pipeline.
            ForeignWrite: someone else changed its rows or columns.

        """
        if (loaded := self._find(shard)) is not None:
            self._last_of_ours(shard, loaded)
        return loaded

    def assert_readable(self, shard: TableId, copy: Table) -> None:
        """Raises UnsupportedTable as `creation.assert_readable`, before a row of the shard is copied."""
        assert_readable(self._creation(shard), self.assert_ours(shard), copy)

    def show(self, shard: TableId, copy: Table) -> None:
        """Let readers of the shared table see the commit that main of `copy`, the shard's own table, is at.

        Nothing is done if they see it already. Raises KeyDoubled if they would see one key in two shards; also as
        `assert_fits`, and as `commit`.
        """
        with self._showing:
            loaded = self.assert_ours(shard)
            creation = self._creation(shard)
            if loaded is None and creation.is_at_once:
                creation.make(copy.schema())
                loaded = self.assert_ours(shard)
            if self._is_shown(shard, copy, loaded):
                return
            if loaded is None:
                transaction = creation.prepare(copy.schema())
                self._columns(shard).show(transaction, shard, None, copy)
                add_commit(transaction, {text_of(shard): Listed.of(tip(copy, MAIN))})
                commit(shard, transaction, lambda: self._find(shard))
            else:

                def change(current: Table, transaction: Transaction) -> dict[str, Listed]:
                    """The lists with that of `copy`."""
                    return self._change(current, transaction, shard, copy)

                self._commit(shard, loaded, change)
            self._begun.pop(shard, None)

    def forget_dropped(self, shard: TableId) -> None:
        """Remove the rows of shards, other than `shard`, whose own tables someone has dropped from the catalog."""
        with self._showing:
            if (loaded := self.assert_ours(shard)) is None:
                return
            shown = self._showing_of(self._last_of_ours(shard, loaded)).commits.keys() - {text_of(shard)}
            exists = self._catalog.table_exists
            gone = {name for name in shown if not exists(self._settings.identifier(shard_of(name)))}
            if gone:

                def change(current: Table, _: Transaction) -> dict[str, Listed]:
                    """The lists without those of the shards in `gone`."""
                    return self._lists(current.properties, self._last_of_ours(shard, current), gone)

                self._commit(shard, loaded, change)

    def hand_over(self, shard: TableId, owner: str) -> None:
        """Make the pipeline of the text `owner` the owner of the shared table of a shard, if there is one.

        The commit moves main. So no commit that the former owner has prepared takes effect.
        """
        with self._showing:
            if (loaded := self.assert_ours(shard)) is None or loaded.properties.get(PIPELINE) == owner:
                return

            def change(current: Table, transaction: Transaction) -> dict[str, Listed]:
                """Let the transaction name the owner. Returns the lists, which stay as they are."""
                transaction.set_properties({PIPELINE: owner})
                return self._lists(current.properties, self._last_of_ours(shard, current))

            self._commit(shard, loaded, change)

    def _commit(
        self, shard: TableId, loaded: Table, change: Callable[[Table, Transaction], Mapping[str, Listed]]
    ) -> None:
        """Commit the lists that `change` returns, and what it adds to the transaction. Remove old snapshots, too."""

        def build(current: Table) -> Transaction:
            transaction = OneTransaction(current)
            if STATE in current.properties:  # the first commit of a table that was made before it
                transaction.remove_properties(STATE)
            with readable_by(shard, self._settings.shown(shard)):
                add_commit(transaction, change(current, transaction))
            self._expire(transaction)
            return transaction

        before = {snapshot.snapshot_id: snapshot.manifest_list for snapshot in loaded.metadata.snapshots}
        commit(shard, build(loaded), lambda: self._find(shard), build)
        trim(loaded)
        self._remove(shard, before)

    def _find(self, shard: TableId) -> Table | None:
        """The shared table; None if there is none yet.

        Raises:
            NotOurTable: something else has its name.
            NotOurCopy: it is of another pipeline.
            UnsupportedTable: it was made with another `target.global_key`.

        """
        name = self._settings.shown(shard)
        try:
            loaded = self._catalog.load_table(name)
        except NoSuchTableError:
            return None
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            raise not_ours(".".join(name), shard) from error
        if loaded.properties.get(OWNER) != SHARDS:
            raise not_ours(".".join(name), shard)
        if (GLOBAL_KEY in loaded.properties) != self._settings.global_key:
            raise UnsupportedTable(
                f"{shard}: {'.'.join(name)} was made with another target.global_key than pipeline.yml has; give it"
                " back, or take another target.table: then all shards are copied again"
            )
        if self._ownership is not None:
            self._ownership.assert_ours(shard, loaded.properties)
        changed = {"properties": obeyed_properties(loaded.properties)}
        loaded.metadata = with_shared_lists(loaded.metadata.model_copy(update=changed))
        return loaded

    def _is_shown(self, shard: TableId, copy: Table, loaded: Table | None) -> bool:
        """Whether the shared table `loaded` shows the commit that main of the shard's own table, `copy`, is at."""
        if loaded is None:
            return False
        showing = self._showing_of(self._last_of_ours(shard, loaded))
        return showing.commit_of(shard) == tip(copy, MAIN).snapshot_id

    def _last_of_ours(self, shard: TableId, loaded: Table) -> Snapshot | None:
        """Our commit that readers see, or whose rows they see because someone else has compacted the table since.

        None if a run has made the table, and nobody has committed to it yet.

        Raises ForeignWrite if someone else has changed its rows or columns.
        """
        name, metadata = ".".join(loaded.name()), loaded.metadata
        if STATE in loaded.properties and MAIN not in metadata.refs:
            return None
        snapshot: Snapshot | None = tip(loaded, MAIN)
        while snapshot is not None and not is_ours(snapshot):
            if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
                ours = [each.snapshot_id for each in metadata.snapshots if is_ours(each)]
                way_out = f"set its branch main back to snapshot {ours[-1]}" if ours else "drop it"
                raise ForeignWrite(
                    f"{shard}: someone else wrote snapshot {snapshot.snapshot_id} to {name}, which readers see;"
                    f" {way_out}: then a run shows the shards again"
                )
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        if snapshot is None:
            raise StateUnreadable(f"{shard}: {name} has no commit of lakeingest any more; drop it, and a run makes it")
        # if someone has moved main to an older commit of ours, the present columns may be of a later commit of ours
        if not any(is_ours(each) and each.schema_id == metadata.current_schema_id for each in metadata.snapshots):
            [ours_schema] = [each for each in metadata.schemas if each.schema_id == snapshot.schema_id]
            changed = sorted(schema_differences(ours_schema, metadata.schema()))
            if changed:
                raise ForeignWrite(
                    f"{shard}: someone else changed the columns of {name}: {', '.join(changed)}; take that back"
                )
        return snapshot

    def _change(self, current: Table, transaction: Transaction, shard: TableId, copy: Table) -> dict[str, Listed]:
        """The lists for a commit that shows main of `copy`. The transaction gets the columns of the shown copies.

        With a global key, the commit also shows the last publish of each shard that `Doubles.shown_together` names.

        Raises KeyDoubled if readers would see a double.
        """
        ours = self._last_of_ours(shard, current)
        copies = {text_of(shard): copy}
        if self._settings.global_key and ours is not None:
            doubles = Doubles(shard, current, ours, self._showing_of(ours), self._copy, copies)
            copies = {name: doubles.copy(name) for name in sorted(doubles.shown_together())}
        schema = None if ours is None else current.schema()
        for name, shown in copies.items():
            self._columns(shard).show(transaction, shard_of(name), schema, shown)
            schema = transaction.table_metadata.schema()
        return {
            **self._lists(current.properties, ours),
            **{name: Listed.of(tip(shown, MAIN)) for name, shown in copies.items()},
        }

    def _copy(self, name: str) -> Table:
        """The own table of a shard with this name."""
        return self._catalog.load_table(self._settings.identifier(shard_of(name)))

    def _columns(self, shard: TableId) -> SharedColumns:
        return SharedColumns(".".join(self._settings.shown(shard)), has_global_key=self._settings.global_key)

    def commit_of(self, shard: TableId) -> int | None:
        """The commit of a shard that readers see; None if they see none. Raises as `assert_ours`."""
        if (loaded := self.assert_ours(shard)) is None:
            return None
        return self._showing_of(self._last_of_ours(shard, loaded)).commit_of(shard)

    def _creation(self, shard: TableId) -> SharedCreation:
        marks = {} if self._ownership is None else self._ownership.marks({})
        return SharedCreation(shard, self._catalog, self._settings, self._settings.shown(shard), marks)

    def _lists(
        self, properties: Mapping[str, str], ours: Snapshot | None, without: AbstractSet[str] = frozenset()
    ) -> dict[str, Listed]:
        """The lists of manifests of the shards' commits that `ours` shows, by the names of the shards.

        Those of the shards `without` are left out. If someone has moved main to an older commit of ours, the lists are
        looked up in the copies of the shards. Raises StateUnreadable if a copy has lost its commit.
        """
        showing, known = self._showing_of(ours), parsed(properties)
        lists: dict[str, Listed] = {}
        for name, shown in showing.commits.items():
            if name in without:
                continue
            listed = known.get(name)
            if listed is None or listed.commit != shown:
                shard = shard_of(name)
                if (snapshot := self._copy(name).metadata.snapshot_by_id(shown)) is None:
                    raise StateUnreadable(f"{shard}: its commit {shown}, which readers see, is gone")
                listed = Listed.of(snapshot)
            lists[name] = listed
        return lists

    def _showing_of(self, snapshot: Snapshot | None) -> Showing:
        """Which commits of shards a commit of ours shows; None: there is no commit."""
        if snapshot is None:
            return NOTHING
        number = snapshot.snapshot_id
        if (known := self._known.get(number)) is None:
            assert snapshot.summary is not None  # noqa: S101 - it is ours
            known = self._known[number] = Showing.of_text(snapshot.summary.additional_properties[SHARDS])
        return known

    def _all_showings(self, loaded: Table) -> list[Showing]:
        """What our snapshots of a shared table show. Of all other snapshots, at most WORTH stay in `_known`."""
        ours = [snapshot for snapshot in loaded.metadata.snapshots if is_ours(snapshot)]
        showings = [self._showing_of(snapshot) for snapshot in ours]
        present = {snapshot.snapshot_id for snapshot in ours}
        others = [number for number in [*self._known] if number not in present]  # copied, as other threads change it
        for number in others:
            if len(self._known) > len(present) + WORTH:
                self._known.pop(number, None)  # another thread may have forgotten it
        return showings

    def _expire(self, transaction: Transaction) -> None:
        """Let the transaction remove the snapshots that neither `target.history` nor a branch or tag retains.

        No snapshot is removed if these are fewer than WORTH, or if there is no folder in which their lists can wait.
        """
        metadata = transaction.table_metadata
        kept = retained_snapshots(metadata, self._settings.history, int(time.time() * 1000))
        kept |= {ref.snapshot_id for ref in metadata.refs.values()}
        ever_on_main = {entry.snapshot_id for entry in metadata.snapshot_log}
        due = [
            each.snapshot_id
            for each in metadata.snapshots
            if each.snapshot_id not in kept and (is_ours(each) or each.snapshot_id in ever_on_main)
        ]
        if self._waiting_folder is None or len(due) < WORTH:
            return
        removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": due})
        unreferenced = AssertUnreferenced(snapshot_ids=frozenset(due))
        transaction._stage((removal,), (unreferenced,))  # type: ignore[arg-type] # noqa: SLF001 - as PyIceberg does

    def _remove(self, shard: TableId, before: Mapping[int, str]) -> None:
        """Note the lists of removed snapshots, and delete those that no query may read any more.

        `before`: the lists of the snapshots before the commit. Lists of a run that is killed here stay for ever.
        """
        if (waiting := self._waiting(shard)) is None or (loaded := self._find(shard)) is None:
            return
        present = {snapshot.snapshot_id for snapshot in loaded.metadata.snapshots}
        removed = {number: path for number, path in before.items() if number not in present}
        if removed:
            sequence_number = tip(loaded, MAIN).sequence_number or 0
            waiting.add(f"{sequence_number:012d}-{max(removed)}", {"files": [*removed.values()]})
        with suppress(OSError):
            for removal in waiting.due(2):  # enough, because a commit adds at most one removal
                delete(loaded.io, removal.of["files"])
                removal.drop()

    def _waiting(self, shard: TableId) -> Waiting | None:
        """The waiting removals of a shared table, under a name that no source table has; None: there is no folder."""
        if self._waiting_folder is None:
            return None
        table = TableId("_lakeingest_shards", ".".join(self._settings.shown(shard)))
        return waiting_of(self._waiting_folder, table, self._settings.history)
