"""The entries of our tables in a catalog: found by their names, made, named at the first publish, and dropped."""

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchTableError
from pyiceberg.table import Table

from lakeingest import config
from lakeingest.core.schema import TableId
from lakeingest.lake.iceberg.commit import until_known
from lakeingest.lake.iceberg.history import is_building, published_snapshot
from lakeingest.lake.iceberg.metadata import with_shared_history
from lakeingest.lake.iceberg.naming import Name, first_publish
from lakeingest.lake.iceberg.properties import usable
from lakeingest.lake.iceberg.shape import assert_ours
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.refusals import not_ours, stale


class Entries:
    """What a target does with the catalog besides commits."""

    def __init__(self, settings: config.Target, catalog: Catalog) -> None:
        self._settings, self._catalog = settings, catalog
        self._first_publish = first_publish(settings.catalog.type)

    def all_names(self) -> set[tuple[str, str]]:
        """The namespace and the name of every table, of ours also before their first publish."""
        found = [name for space in self._catalog.list_namespaces() for name in self._catalog.list_tables(space)]
        return {(".".join(space), name.removesuffix(BUILDING)) for *space, name in found}

    def names(self, table: TableId) -> tuple[Name, Name]:
        """The table's own name, and the one that it has until its first publish."""
        namespace, name = self._settings.identifier(table)
        return (namespace, name), (namespace, name + BUILDING)

    def load(self, table: TableId, name: Name) -> Table | None:
        """What the catalog has under this name."""
        try:
            return self._catalog.load_table(name)
        except NoSuchIcebergTableError as error:
            raise not_ours(".".join(name), table) from error
        except NoSuchTableError:
            return None

    def find(self, table: TableId) -> Table | None:
        """The table under its own name, else the one that is being built; raises as `assert_ours` does."""
        for name in self.names(table):
            loaded = self.load(table, name)
            if loaded is None:
                continue
            assert_ours(table, loaded)
            metadata = loaded.metadata.model_copy(update={"properties": usable(loaded.properties)})
            loaded.metadata = with_shared_history(metadata)
            return loaded
        return None

    def existing(self, table: TableId) -> Table:
        """As `find`; StaleWriter where there is none."""
        loaded = self.find(table)
        if loaded is None:
            raise stale(table)
        return loaded

    def yield_to_published(self, table: TableId) -> None:
        """StaleWriter if another run published the table while this one made it; the new entry is dropped."""
        own, building = self.names(table)
        if self._catalog.table_exists(own):
            self._catalog.drop_table(building)
            raise stale(table)

    def discard(self, table: TableId) -> None:
        """Drop the table that is being built; StaleWriter when another run has published or dropped it."""
        loaded = self.existing(table)
        if published_snapshot(loaded) is not None:
            raise stale(table)

        def is_gone() -> bool:
            found = self.find(table)
            if found is not None and published_snapshot(found) is not None:
                raise stale(table)
            return found is None or found.metadata.table_uuid != loaded.metadata.table_uuid

        until_known(table, lambda: self._catalog.drop_table(self.names(table)[1]), is_gone)

    def finish_naming(self, table: TableId, loaded: Table, *, is_published: bool) -> bool:
        """Finish an interrupted first publish; whether the table has got its name by that."""
        if not is_building(loaded):
            self._first_publish.drop_other_name(self._catalog, self.names(table)[1])
        elif is_published:
            self.give_name(table, loaded)
            return True
        return False

    def give_name(self, table: TableId, building: Table) -> None:
        """Give a published table its own name; StaleWriter if another one has it."""
        own, other = self.names(table)

        def is_named() -> bool:
            found = self.existing(table)
            if found.metadata.table_uuid != building.metadata.table_uuid:
                raise stale(table)
            return not is_building(found)

        until_known(table, lambda: self._first_publish.give_name(self._catalog, other, own), is_named)
