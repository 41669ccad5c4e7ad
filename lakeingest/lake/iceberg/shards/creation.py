"""The creation of a shared table: together with its first commit, or in some catalogs before it (`is_at_once`)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from lakeingest import config
from lakeingest.config.table_properties import FORMAT_VERSION
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import UnsupportedTable
from lakeingest.lake.iceberg.commits.commit import until_known
from lakeingest.lake.iceberg.commits.first_publish import first_publish
from lakeingest.lake.iceberg.commits.transaction import OneCreation
from lakeingest.lake.iceberg.shards.shared_commit import SHARDS
from lakeingest.lake.iceberg.tables.expiry import limits
from lakeingest.lake.iceberg.tables.history import BOOTSTRAPPING, STAGING, STATE, tip
from lakeingest.lake.iceberg.tables.leftovers import REFUSED
from lakeingest.lake.iceberg.tables.location import new_location_of
from lakeingest.lake.iceberg.tables.naming import Name
from lakeingest.lake.iceberg.tables.properties import PROPERTIES, VERSION
from lakeingest.lake.marks import OWNER

GLOBAL_KEY = "lakeingest.global_key"  # property of a shared table whose key is that of its shards, without their names
_STORES = ("s3.", "gcs.", "adls.")  # the names of properties that open a store begin so


@dataclass(frozen=True, slots=True)
class SharedCreation:
    """Makes the shared table of a shard under this name. `marks` are properties that name its pipeline."""

    shard: TableId
    catalog: Catalog
    settings: config.Target
    name: Name
    marks: Mapping[str, str]

    @property
    def is_at_once(self) -> bool:
        """Whether the table is made before its first commit, because the catalog cannot give a table its name later."""
        return first_publish(self.settings.catalog, self.catalog).give_name is None

    def prepare(self, schema: Schema) -> Transaction:
        """The transaction that makes the table with these columns; the catalog has it once it is committed."""
        self.catalog.create_namespace_if_not_exists(self.name[:1])  # a tuple: a dot makes no nested namespaces
        created = self.catalog.create_table_transaction(
            self.name, schema, self._place, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, self._properties
        )
        return OneCreation.of(created)

    def make(self, schema: Schema) -> None:
        """Make the table without a commit, unless the name is taken: the caller checks what has the name.

        The property `lakeingest.state` says that it is no copy yet. The first commit gives the columns their ids, and
        removes the property.
        """
        properties = {**self._properties, STATE: BOOTSTRAPPING}
        self.catalog.create_namespace_if_not_exists(self.name[:1])

        def create() -> None:
            self.catalog.create_table(
                self.name, schema, self._place, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, properties
            )

        def exists() -> bool:
            return self.catalog.table_exists(self.name)

        until_known(self.shard, create, exists)

    @property
    def _place(self) -> str:
        """A new folder, another one at each access."""
        return new_location_of(self.settings, self.name)

    @property
    def _properties(self) -> dict[str, str]:
        """The properties of a new shared table. `gc.enabled`: nobody may delete its files, which belong to shards."""
        own = {FORMAT_VERSION: str(VERSION), "gc.enabled": "false", OWNER: SHARDS}
        of_key = {GLOBAL_KEY: "true"} if self.settings.global_key else {}
        return {**PROPERTIES, **limits({}), **own, **of_key, **self.marks}


def assert_readable(creation: SharedCreation, shared: Table | None, copy: Table) -> None:
    """Raises UnsupportedTable if the catalog lends keys for a shared table that do not open the files of its shards.

    `shared` is None if there is no shared table yet: then the catalog prepares one, and nothing is made. Nothing is
    checked if the catalog cannot prepare a table, or lends no keys.
    """
    own = creation.catalog.properties
    lent = {name for name, value in copy.io.properties.items() if name.startswith(_STORES) and own.get(name) != value}
    if not lent or (shared is None and creation.is_at_once):
        return
    io = creation.prepare(copy.schema())._table.io if shared is None else shared.io  # noqa: SLF001 - no public way
    with readable_by(creation.shard, creation.name):
        len(io.new_input(tip(copy, STAGING).manifest_list))  # asks the store for the length of the file


@contextmanager
def readable_by(shard: TableId, name: Name) -> Iterator[None]:
    """Raise UnsupportedTable if the store refuses, in the block, to read files of shards by the keys of their table."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, PermissionError) and REFUSED.search(str(error)) is None:
            raise
        raise UnsupportedTable(
            f"{shard}: it cannot be a shard of {'.'.join(name)}: the catalog lends keys for the folder of each table,"
            " and those of the shared table do not open the folders of its shards; let the catalog lend keys for the"
            " warehouse, give run and readers keys of their own, or take a target for each table"
        ) from error
