"""What was made of a table's metadata, for as long as the catalog returns the same metadata.

A merge and its publish ask the catalog for their table seven times, because others may have changed it. As a rule
nobody has. With thousands of tables, what is made and checked anew each time took a fortieth of a run.
"""

from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from lakeingest.core.tables.schema import TableId
from lakeingest.lake.iceberg.catalogs.database_catalog import DatabaseCatalog
from lakeingest.lake.iceberg.tables.naming import Name
from lakeingest.lake.iceberg.tables.properties import as_obeyed


class SameMetadata:
    """Keeps what was made of the metadata that a DatabaseCatalog returned last: the same object may come again.

    For other catalogs, nothing is kept. Metadata are never changed, only replaced.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._keeps = isinstance(catalog, DatabaseCatalog)
        self._obeying: dict[tuple[TableId, Name], tuple[TableMetadata, TableMetadata]] = {}
        self._checked: dict[TableId, TableMetadata] = {}

    def obeying(
        self, table: TableId, name: Name, read: TableMetadata, is_our_place: Callable[[TableId, str], bool]
    ) -> TableMetadata:
        """The metadata `read` of the catalog's table of this name, as `as_obeyed` returns them.

        `is_our_place`: whether the table's copy may be in a folder. If not, no file in the folder may be deleted.
        """
        known = self._obeying.get((table, name))
        if known is not None and known[0] is read:
            return known[1]
        made = as_obeyed(read, keeps_files=not is_our_place(table, read.location))
        if self._keeps:
            self._obeying[table, name] = read, made
        return made

    def check(self, table: TableId, metadata: TableMetadata, check: Callable[[], None]) -> None:
        """Call `check` unless it has passed for these metadata. Raises its errors."""
        if self._checked.get(table) is metadata:
            return
        check()
        if self._keeps:
            self._checked[table] = metadata
