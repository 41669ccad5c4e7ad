"""The entries of our tables in a catalog: found by their names, made, named at the first publish, and dropped.

A table that is being built has an entry of its own, whose name has a random part. So a superseded run can neither drop
nor change a table that a later run builds: it knows another name. Only the entry is ever dropped, never its files,
because a published table may have the same ones. Where a table has its own name from the start, nothing is dropped.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
)
from pyiceberg.table import Table, Transaction

from lakeingest import config
from lakeingest.config.tables import TableOptions
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import StaleWriter, UnsupportedTable
from lakeingest.lake.iceberg.commit import commit, until_known
from lakeingest.lake.iceberg.creation import assert_begun_for, begin, made_at_once, prepared, without_progress
from lakeingest.lake.iceberg.discarded import discarding, is_discarded
from lakeingest.lake.iceberg.evolution import Form
from lakeingest.lake.iceberg.first_publish import first_publish
from lakeingest.lake.iceberg.history import STAGING, STATE, has_progress, is_building, published_snapshot
from lakeingest.lake.iceberg.location import is_ours
from lakeingest.lake.iceberg.metadata import with_shared_history
from lakeingest.lake.iceberg.naming import Name, is_built, own_name
from lakeingest.lake.iceberg.properties import kept, usable
from lakeingest.lake.iceberg.recovery import UNREADABLE
from lakeingest.lake.iceberg.shape import assert_copy, assert_ours
from lakeingest.lake.iceberg.transaction import OneTransaction
from lakeingest.lake.marks import OWNER
from lakeingest.lake.ownership import PIPELINE, Ownership
from lakeingest.lake.refusals import not_ours, stale, unnameable

_LISTED_SECONDS = 10.0  # how long a list of names is used again; a list of thousands takes a server seconds

Options = Callable[[TableId], TableOptions]


class Entries:
    """All that a target does with the catalog besides commits.

    It remembers the entry of each table that it has found or made under a name for building.
    """

    def __init__(
        self,
        settings: config.Target,
        catalog: Catalog,
        ownership: Ownership | None,
        options: Options,
    ) -> None:
        self._settings, self._catalog, self._ownership, self._options = settings, catalog, ownership, options
        self._first_publish = first_publish(settings.catalog, catalog)
        self._building: dict[TableId, Name] = {}
        # by namespace: when it was listed, and the names of tables that are being built
        self._listed: dict[str, tuple[float, list[str]]] = {}

    def own(self, transaction: Transaction, loaded: Table) -> Transaction:
        """The transaction, which also names the table's owner unless the table does so already."""
        if self._ownership is not None and (marks := self._ownership.marks(loaded.properties)):
            transaction.set_properties(marks)
        return transaction

    def is_our_place(self, table: TableId, location: str) -> bool:
        """Whether we would make the table's copy in this folder."""
        return is_ours(self._settings, self._options(table), table, location)

    def all_names(self) -> set[tuple[str, str]]:
        """The namespace and the own name of every table; our tables are included before their first publish."""
        identifiers = [name for space in self._namespaces() for name in self._catalog.list_tables(space)]
        return {(".".join(space), own_name(name)) for *space, name in identifiers}

    def has(self, uuid: str) -> bool:
        """Whether the catalog has the Iceberg table with this UUID, under any name; True if a table cannot be read."""
        for space in self._namespaces():
            for name in self._catalog.list_tables(space):
                try:
                    table_uuid = str(self._catalog.load_table(name).metadata.table_uuid)
                except (NoSuchTableError, NoSuchIcebergTableError, NoSuchPropertyException):
                    continue
                except UNREADABLE:
                    return True
                if table_uuid == uuid:
                    return True
        return False

    def _namespaces(self, within: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """All namespaces. In some catalogs a namespace whose name has a dot is inside another one."""
        for space in self._catalog.list_namespaces(within):
            yield space
            yield from self._namespaces(space)

    def names(self, table: TableId) -> tuple[Name, ...]:
        """The table's own name, and the names under which runs have built it."""
        return self._settings.identifier(table), *self._others(table)

    def load(self, table: TableId, name: Name) -> Table | None:
        """The catalog's table under this name, with only those properties that our writers obey; None if there is none.

        Raises UnsupportedTable where the catalog refuses a request with this name, NotOurTable where it is no Iceberg
        table.
        """
        try:
            loaded = self._catalog.load_table(name)
            properties = usable(loaded.properties)
            if not self.is_our_place(table, loaded.location()):
                properties = kept(properties)
            loaded.metadata = loaded.metadata.model_copy(update={"properties": properties})
            return loaded
        except BadRequestError as error:  # such as for a slash, which many servers take for a part of a path
            raise UnsupportedTable(
                f"{table}: the catalog refuses a request with this name ({type(error).__name__}); leave the table out,"
                " or name its target by target.table"
            ) from error
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:  # the second one by Glue and Hive
            raise not_ours(".".join(name), table) from error
        except NoSuchTableError:
            return None

    def found(self, table: TableId) -> Table | None:
        """The table for a run that begins: under its own name, else the newest one that is being built.

        Raises as `assert_ours` does.
        """
        self._building.pop(table, None)
        return self.find(table)

    def find(self, table: TableId) -> Table | None:
        """The table as `found`. A run that has begun to build the table does not see those that others build."""
        loaded = self.look(table)
        if loaded is not None:
            assert_ours(table, loaded)
        return loaded

    def look(self, table: TableId) -> Table | None:
        """The table as `find`, but changes by others are no error.

        A table under its own name that no run has begun belongs to nobody. Raises NotOurTable when it is no copy,
        NotOurCopy when it belongs to another pipeline.
        """
        loaded = self.look_at_any(table)
        if loaded is None or self._ownership is None:
            return loaded
        if PIPELINE in loaded.properties or not is_building(loaded) or has_progress(loaded):
            self._ownership.assert_ours(table, loaded.properties)
        return loaded

    def look_at_any(self, table: TableId) -> Table | None:
        """The table as `look`, whoever owns it."""
        own = self._settings.identifier(table)
        if unnameable(self._settings.catalog.type or "sql", own) is not None:
            return None  # no copy can have this name, and a URL with it would lead to something else
        loaded = self.load(table, own)
        if loaded is None and table in self._building:
            loaded = self.load(table, self._building[table])
        elif loaded is None and self._first_publish.give_name is not None:
            loaded = max(self._built(table), key=_advance, default=None)
        if loaded is None:
            return None
        assert_copy(table, loaded)
        if is_building(loaded):
            self._building[table] = self._name_of(table, loaded)
        loaded.metadata = with_shared_history(loaded.metadata)
        return loaded

    def existing(self, table: TableId) -> Table:
        """The table as `find`.

        Raises StaleWriter if there is none, or another run has discarded it under its own name.
        """
        loaded = self.find(table)
        if loaded is None or (STATE in loaded.properties and not has_progress(loaded)):
            raise stale(table)
        return loaded

    def create(self, schema: TableSchema, progress: Progress, form: Form, chosen: str | None) -> int:
        """Make a table in the `chosen` folder or in a new one, with its first progress.

        Returns the snapshot that has it. Raises StaleWriter if another run has made the table earlier.
        """
        table, own = schema.table, self._settings.identifier(schema.table)
        name = self._first_publish.begun_as(own)
        self._listed.clear()  # if an answer is lost, the next look has to find the new table
        self._catalog.create_namespace_if_not_exists(name[:1])  # as one part, also with a dot in it
        # Step 1: make the entry, or prepare it. Step 2: the first commit. Step 3: look for other runs
        if name == own:
            loaded = made_at_once(self._catalog, name, schema, form, self._settings, chosen)
            assert_ours(table, loaded)
            if not is_building(loaded) or has_progress(loaded):
                raise stale(table)
            assert_begun_for(schema, loaded)
            transaction: Transaction = OneTransaction(loaded)
        else:
            transaction = prepared(self._catalog, name, schema, form, self._settings, chosen)
        begin(transaction, progress, {} if self._ownership is None else self._ownership.marks({}))
        version = commit(table, transaction, lambda: self.load(table, name))[STAGING]
        if name != own:
            self._yield_to_others(table, name)
        return version

    def _yield_to_others(self, table: TableId, name: Name) -> None:
        """Raises StaleWriter if another run has published or begun the table earlier.

        Then the entry just made is dropped. Each run makes its entry first, then it looks for others. So of two runs at
        least one sees the other.
        """
        self._listed.clear()
        if self._catalog.table_exists(self._settings.identifier(table)) or self._built(table, beside=name):
            if (building := self.load(table, name)) is not None:
                self._drop(table, building)
            raise stale(table)
        self._building[table] = name

    def discard(self, table: TableId) -> None:
        """Let a table that was never published begin again.

        Raises StaleWriter if another run has published or dropped it. Its entry is dropped. A table under its own name
        stays, without progress: a drop would not be refused if someone published it in between.
        """
        loaded = self.existing(table)
        if published_snapshot(loaded) is not None:
            raise stale(table)
        name = self._name_of(table, loaded)
        if name == self._settings.identifier(table):
            commit(table, without_progress(loaded), lambda: self.find(table))
            return
        self._drop(table, loaded)
        self._building.pop(table, None)

    def _drop(self, table: TableId, building: Table) -> None:
        """Drop the entry of a table that is being built, for ever.

        Raises StaleWriter if another run has published it.
        """
        name = self._name_of(table, building)
        if building.metadata.refs:  # the mark comes first: only marked files may be deleted later
            commit(table, discarding(building), lambda: self.load(table, name))

        def is_gone() -> bool:
            return self.load(table, name) is None

        until_known(table, lambda: self._catalog.drop_table(name), is_gone)

    def drop_unused(self, table: TableId, loaded: Table) -> bool:
        """Drop a table that was not published and has no progress.

        False for a table under its own name, which stays.
        """
        if self._name_of(table, loaded) == self._settings.identifier(table):
            return False
        self.discard(table)
        return True

    def finish_naming(self, table: TableId, loaded: Table, *, is_published: bool) -> bool:
        """Finish an interrupted first publish. Returns whether this gave the table its own name."""
        if not is_building(loaded):
            self._drop_others(table, loaded)
        return is_published and self.give_name(table, loaded)

    def give_name(self, table: TableId, published: Table) -> bool:
        """Give a published table its own name. False if it has it; raises StaleWriter if another table has it."""
        own, name, give_name = (
            self._settings.identifier(table),
            self._name_of(table, published),
            self._first_publish.give_name,
        )
        if own == name:
            return False
        assert give_name is not None, f"{name} was built for a catalog that can name it"  # noqa: S101

        def is_named() -> bool:
            current = self.existing(table)
            if current.metadata.table_uuid != published.metadata.table_uuid:
                raise stale(table)
            return not is_building(current)

        until_known(table, lambda: give_name(self._catalog, name, own), is_named)
        return True

    def _drop_others(self, table: TableId, published: Table) -> None:
        """Drop the entries that killed runs have left beside the published table."""
        names = self._others(table)
        # only these names are dropped: a table that is built after this look has another name
        for name in names:
            try:
                building = self._catalog.load_table(name)
            except (NoSuchTableError, NoSuchIcebergTableError, NoSuchPropertyException, *UNREADABLE):
                continue
            if building.metadata.table_uuid == published.metadata.table_uuid:  # its second name, by `register`
                with suppress(NoSuchTableError):
                    self._catalog.drop_table(name)
            elif building.properties.get(OWNER) == str(table):
                with suppress(NoSuchTableError, StaleWriter):  # a run that still builds it drops it
                    self._drop(table, building)
        if names:
            self._listed.clear()

    def _built(self, table: TableId, beside: Name | None = None) -> list[Table]:
        """The tables that runs have begun and not discarded, except the one with the name `beside`."""
        names = [name for name in self._others(table) if name != beside]
        loaded = (self.load(table, name) for name in names)
        return [building for building in loaded if building is not None and not is_discarded(building)]

    def _others(self, table: TableId) -> list[Name]:
        """The names under which runs have built the table."""
        namespace, name = self._settings.identifier(table)
        now = time.monotonic()
        at, listed = self._listed.get(namespace, (now, None))
        if listed is None or now - at > _LISTED_SECONDS:
            try:
                identifiers = self._catalog.list_tables((namespace,))
            except NoSuchNamespaceError:
                identifiers = []
            listed = [last for *_, last in identifiers if is_built(last)]
            self._listed[namespace] = now, listed
        return [(namespace, built) for built in listed if own_name(built) == name]

    def _name_of(self, table: TableId, loaded: Table) -> Name:
        return self._settings.identifier(table)[0], loaded.name()[-1]


def _advance(built: Table) -> tuple[bool, int, str]:
    """The order of several tables that runs have built: a published one is continued, else the most advanced one."""
    commits = max((snapshot.sequence_number or 0 for snapshot in built.metadata.snapshots), default=0)
    return published_snapshot(built) is not None, commits, built.name()[-1]
