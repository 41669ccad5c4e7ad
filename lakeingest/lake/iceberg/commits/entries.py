"""The entries of our tables in a catalog: finds, makes and drops them, and gives a published table its own name.

A table that is being built has an entry whose name has a random part. So a superseded run can neither drop nor change a
table that a later run builds: the superseded run does not know the name. A drop removes only the entry, never the
files, because a published table may have the same files. If a table is built under its own name, its entry is never
dropped.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    NoSuchIcebergTableError,
    NoSuchPropertyException,
    NoSuchTableError,
)
from pyiceberg.table import Table, Transaction

from lakeingest import config
from lakeingest.config.tables import TableOptions
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.core.tables.shards import text_of
from lakeingest.errors import StaleWriter, UnsupportedTable
from lakeingest.lake.iceberg.commits.building_names import BuildingNames
from lakeingest.lake.iceberg.commits.commit import commit, until_known
from lakeingest.lake.iceberg.commits.creation import (
    assert_same_columns,
    begin,
    creation_transaction,
    make_at_once,
    progress_removal,
)
from lakeingest.lake.iceberg.commits.discarded import discard_commit, is_discarded
from lakeingest.lake.iceberg.commits.first_publish import first_publish
from lakeingest.lake.iceberg.commits.same_metadata import SameMetadata
from lakeingest.lake.iceberg.commits.transaction import OneTransaction
from lakeingest.lake.iceberg.files.partitions import assert_wanted
from lakeingest.lake.iceberg.storage.errors import UNREADABLE
from lakeingest.lake.iceberg.storage.metadata import with_shared_lists
from lakeingest.lake.iceberg.tables.evolution import Form
from lakeingest.lake.iceberg.tables.history import (
    STAGING,
    STATE,
    has_progress,
    is_building,
    is_foreign,
    published_snapshot,
    rank_of_build,
)
from lakeingest.lake.iceberg.tables.location import is_ours
from lakeingest.lake.iceberg.tables.naming import Name, own_name
from lakeingest.lake.iceberg.tables.properties import wanted_version
from lakeingest.lake.iceberg.tables.shape import assert_copy, assert_ours, assert_version
from lakeingest.lake.iceberg.tables.staged_schema import number_by_name
from lakeingest.lake.marks import OWNER
from lakeingest.lake.ownership import PIPELINE, Ownership
from lakeingest.lake.refusals import not_ours, stale, unnameable

Options = Callable[[TableId], TableOptions]


class Entries:
    """Everything that a target asks of the catalog, except commits.

    `_building` has, for each table that is being built, the name under which it was last found or made.
    """

    def __init__(
        self, settings: config.Target, catalog: Catalog, ownership: Ownership | None, options: Options
    ) -> None:
        self._settings, self._catalog, self._ownership, self._options = settings, catalog, ownership, options
        self._first_publish = first_publish(settings.catalog, catalog)
        self._building, self._same = dict[TableId, Name](), SameMetadata(catalog)
        self._making_namespace = threading.Lock()  # servers fail if two requests make one namespace at the same time
        self._building_names = BuildingNames(catalog)

    def add_owner(self, transaction: Transaction, loaded: Table) -> Transaction:
        """Let the transaction name this pipeline as the table's owner, unless the loaded table already names it.

        Returns the transaction. Without an `Ownership`, nothing is added.
        """
        if self._ownership is not None and (marks := self._ownership.marks(loaded.properties)):
            transaction.set_properties(marks)
        return transaction

    def options(self, table: TableId) -> TableOptions:
        """The options of the table in pipeline.yml; the defaults for a table of the ledger, which no pattern names."""
        return TableOptions() if table.is_reserved else self._options(table)

    def is_our_place(self, table: TableId, location: str) -> bool:
        """Whether this is a folder in which we would make the table's copy."""
        return is_ours(self._settings, self._options(table), table, location)

    def all_names(self) -> set[tuple[str, str]]:
        """The namespace and the own name of every table in the catalog. Tables that are being built are included."""
        identifiers = [identifier for space in self._namespaces() for identifier in self._catalog.list_tables(space)]
        return {(".".join(space), own_name(name)) for *space, name in identifiers}

    def has_uuid(self, uuid: str) -> bool:
        """Whether the catalog has an Iceberg table with this UUID, under any name.

        True also if the metadata of a table cannot be read, because that table may have the UUID.
        """
        for namespace in self._namespaces():
            for name in self._catalog.list_tables(namespace):
                try:
                    table_uuid = str(self._catalog.load_table(name).metadata.table_uuid)
                except (NoSuchTableError, NoSuchIcebergTableError, NoSuchPropertyException):
                    continue  # it was dropped after it was listed, or is no Iceberg table
                except UNREADABLE:
                    return True
                if table_uuid == uuid:
                    return True
        return False

    def _namespaces(self, within: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """All namespaces inside of `within`, at any depth. Some catalogs make nested namespaces of a name with dots."""
        for space in self._catalog.list_namespaces(within):
            yield space
            yield from self._namespaces(space)

    def names(self, table: TableId) -> tuple[Name, ...]:
        """The table's own name, and all names under which runs have built it."""
        return self._settings.identifier(table), *self._names_for_building(table)

    def load(self, table: TableId, name: Name) -> Table | None:
        """The catalog's table of this name, with only the properties that our writers obey; None: no such table.

        A table whose folder is not ours also gets properties that forbid us to delete its files. Raises
        UnsupportedTable if the catalog refuses a request with this name; NotOurTable if the table is no Iceberg table.
        """
        try:
            loaded = self._catalog.load_table(name)
            loaded.metadata = self._same.obeying(table, name, loaded.metadata, self.is_our_place)
            return loaded
        except BadRequestError as error:  # such as for a slash: many servers take it as a part of a path
            raise UnsupportedTable(
                f"{table}: the catalog refuses a request with this name ({type(error).__name__}); leave the table out,"
                " or name its target by target.table"
            ) from error
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:  # the latter from Glue and Hive
            raise not_ours(".".join(name), table) from error
        except NoSuchTableError:
            return None

    def find_anew(self, table: TableId) -> Table | None:
        """Find the table as `find` does, but not by a name for building that is known already. Raises as `find`."""
        self._building.pop(table, None)
        return self.find(table)

    def find(self, table: TableId) -> Table | None:
        """The table under its own name; else the table that is being built; None if there is neither.

        Several runs may have begun to build the table. If this run has found or made a name for building, the table of
        that name is returned; else the most advanced table. Raises as `find_changed`, and as `_assert_unchanged`.
        """
        loaded = self.find_changed(table)
        if loaded is not None:
            self._same.check(table, loaded.metadata, lambda: self._assert_unchanged(table, loaded))
        return loaded

    def _assert_unchanged(self, table: TableId, loaded: Table) -> None:
        """Raises an error if others have changed the copy's shape, or if pipeline.yml asks for another one."""
        assert_ours(table, loaded)
        assert_wanted(table, loaded, self.options(table).partitions)
        assert_version(table, loaded, wanted_version(self._settings, self._options(table)))

    def find_changed(self, table: TableId) -> Table | None:
        """Find the table as `find` does, but raise no error if others have changed its shape.

        Raises NotOurTable if it is no copy; NotOurCopy if it belongs to another pipeline. A table that is being built
        under its own name, and names no owner and has no progress, belongs to nobody: any pipeline may continue it.
        """
        loaded = self.find_of_any_owner(table)
        if loaded is None or self._ownership is None:
            return loaded
        belongs_to_nobody = PIPELINE not in loaded.properties and is_building(loaded) and not has_progress(loaded)
        if not belongs_to_nobody:
            self._ownership.assert_ours(table, loaded.properties)
        return loaded

    def find_of_any_owner(self, table: TableId) -> Table | None:
        """Find the table as `find_changed` does, but it may belong to another pipeline.

        None also for a foreign table that is not taken over yet, and for a name that no copy can have. If the table is
        being built, its name for building is kept for later calls.
        """
        own = self._settings.identifier(table)
        if unnameable(self._settings.catalog.type or "sql", own) is not None:
            return None  # no copy can have this name, and a URL with this name would lead elsewhere
        loaded = self.load(table, own) or self._load_building(table)
        if loaded is None or (is_foreign(loaded) and self.options(table).takes_over):  # not the copy yet
            return None
        assert_copy(table, loaded)
        if is_building(loaded):
            self._building[table] = self._name_of(table, loaded)
        loaded.metadata = with_shared_lists(loaded.metadata)
        return loaded

    def _load_building(self, table: TableId) -> Table | None:
        """The table under the name for building that this run knows; else the most advanced table; None: no table."""
        if table in self._building:
            return self.load(table, self._building[table])  # None: another run has dropped it
        if self._first_publish.give_name is None:  # tables get no names for building
            return None
        return max(self._not_discarded(table, self._names_for_building(table)), key=rank_of_build, default=None)

    def existing(self, table: TableId) -> Table:
        """The table, as `find` returns it. Raises StaleWriter if the table does not exist.

        Raises StaleWriter also if the table was built under its own name, and another run has discarded it: the table
        is not published, and has no progress.
        """
        loaded = self.find(table)
        if loaded is None or (STATE in loaded.properties and not has_progress(loaded)):
            raise stale(table)
        return loaded

    def create(self, schema: TableSchema, progress: Progress, form: Form, chosen: str | None) -> int:
        """Make a table with its first progress, in the `chosen` folder; None: in a new folder.

        Returns the snapshot that has the progress.

        Raises:
            UnsupportedTable: the table cannot be divided or sorted as the form says.
            StaleWriter: another run has made the table earlier.
            NotOurTable: the folder is in use, or a run has begun the table with other columns.
            PartitionsDiffer: a run has begun the table with other partitions.

        """
        table, own = schema.table, self._settings.identifier(schema.table)
        if reason := self.options(table).refusal_of_form(schema):
            raise UnsupportedTable(f"{table}: {reason}")
        name = self._first_publish.begun_as(own)
        self._building_names.forget()  # the next look must find the new table, even if the answer is lost
        with self._making_namespace:
            self._catalog.create_namespace_if_not_exists(name[:1])  # a tuple: a dot makes no nested namespaces
        # Step 1: under the table's own name, make the entry now. Under a name for building, only prepare it
        if name == own:
            loaded = make_at_once(self._catalog, name, schema, form, self._settings, chosen)
            assert_ours(table, loaded)
            assert_wanted(table, loaded, form.partitions)
            if not is_building(loaded) or has_progress(loaded):  # another run has published the table, or begun it
                raise stale(table)
            assert_same_columns(schema, loaded)
            transaction: Transaction = OneTransaction(loaded)
        else:
            transaction = creation_transaction(self._catalog, name, schema, form, self._settings, chosen)
        if self._settings.is_shard(table):
            number_by_name(transaction, text_of(table))
        # Step 2: make the first commit, which also makes an entry that was only prepared
        begin(transaction, progress, {} if self._ownership is None else self._ownership.marks({}))
        version = commit(table, transaction, lambda: self.load(table, name))[STAGING]
        # Step 3: look for entries of other runs. Under the own name there can be no second entry
        if name != own:
            self._yield_to_others(table, name)
        return version

    def _yield_to_others(self, table: TableId, name: Name) -> None:
        """If another run was earlier, drop the entry that this run has made, and raise StaleWriter.

        Each run makes its entry before it looks for published tables and entries of others. So of two runs at least one
        finds the entry of the other.
        """
        own = self._settings.identifier(table)
        others = [other for other in self._building_names.now(own) if other != name]
        if self._catalog.table_exists(own) or self._not_discarded(table, others):
            if (building := self.load(table, name)) is not None:
                self._drop(table, building)
            raise stale(table)
        self._building[table] = name

    def discard(self, table: TableId, *, unseen: bool = False) -> None:
        """Discard a table that was never published, or with `unseen` one that no reader sees: drop it.

        An unpublished table with its own name stays, and only its progress is removed: a drop could remove what another
        run has just published under this name. Raises StaleWriter if another run has published or dropped the table.
        """
        loaded = self.existing(table)
        is_published = published_snapshot(loaded) is not None
        if is_published and not unseen:
            raise stale(table)
        if self._name_of(table, loaded) == self._settings.identifier(table) and not is_published:
            commit(table, progress_removal(loaded), lambda: self.find(table))
            return
        self._drop(table, loaded)
        self._building.pop(table, None)

    def _drop(self, table: TableId, building: Table) -> None:
        """Drop, for ever, the entry of a table that is being built. Raises StaleWriter if a run has published it.

        Before the drop, a commit removes the table's branches: `remove_discarded` deletes the files later, but only if
        it finds this commit. If the table has no branch, a killed run has made the commit already.
        """
        name = self._name_of(table, building)
        if building.metadata.refs:
            commit(table, discard_commit(building), lambda: self.load(table, name))

        def is_gone() -> bool:
            return self.load(table, name) is None

        until_known(table, lambda: self._catalog.drop_table(name), is_gone)

    def drop_unused(self, table: TableId, loaded: Table) -> bool:
        """Drop a table that was not published and has no progress, and return True.

        False if the table stays, because it was built under its own name.
        """
        if self._name_of(table, loaded) == self._settings.identifier(table):
            return False
        self.discard(table)
        return True

    def finish_naming(self, table: TableId, loaded: Table, *, is_published: bool) -> bool:
        """Finish an interrupted first publish: drop entries of other runs, or give a published table its own name.

        True if the table got its own name by this call.
        """
        if not is_building(loaded):  # the table has its own name, so no entry for building is needed any more
            self._drop_others(table, loaded)
        if not is_published:
            return False
        return self.give_name(table, loaded)

    def give_name(self, table: TableId, published: Table) -> bool:
        """Give a published table its own name. True if it got the name; False if it had the name already.

        Raises StaleWriter if another table has the name.
        """
        own, present = self._settings.identifier(table), self._name_of(table, published)
        if own == present:
            return False
        give_name = self._first_publish.give_name
        assert give_name is not None, f"{present} was built for a catalog that can name it"  # noqa: S101

        def is_named() -> bool:
            """Whether the published table has its own name. Raises StaleWriter if another table has this name."""
            current = self.existing(table)
            if current.metadata.table_uuid != published.metadata.table_uuid:  # another table has the name
                raise stale(table)
            return not is_building(current)

        until_known(table, lambda: give_name(self._catalog, present, own), is_named)
        return True

    def _drop_others(self, table: TableId, published: Table) -> None:
        """Drop the entries for building that killed runs have left of a published table."""
        names = self._names_for_building(table)
        # a run that begins after this list was made builds under another name, which is not dropped
        for name in names:
            try:
                building = self._catalog.load_table(name)
            except (NoSuchTableError, NoSuchIcebergTableError, NoSuchPropertyException, *UNREADABLE):
                continue  # it was dropped after it was listed, or nothing proves that it is ours
            # the published table itself: its first publish by `register` ended before it dropped this entry
            if building.metadata.table_uuid == published.metadata.table_uuid:
                with suppress(NoSuchTableError):
                    self._catalog.drop_table(name)
            elif building.properties.get(OWNER) == str(table):
                with suppress(NoSuchTableError, StaleWriter):  # another run has dropped or published it
                    self._drop(table, building)
        if names:  # the list of names still has those that were dropped
            self._building_names.forget()

    def _not_discarded(self, table: TableId, names: Iterable[Name]) -> list[Table]:
        """The tables with these names for building that no run has discarded."""
        loaded = (self.load(table, name) for name in names)
        return [building for building in loaded if building is not None and not is_discarded(building)]

    def _names_for_building(self, table: TableId) -> list[Name]:
        """The names for building under which the catalog has the table."""
        return self._building_names.of(self._settings.identifier(table))

    def _name_of(self, table: TableId, loaded: Table) -> Name:
        """The name of a loaded table. The namespace is the configured one: PyIceberg splits a namespace at its dots."""
        return self._settings.identifier(table)[0], loaded.name()[-1]
