"""The first publish: how a table that was built under another name gets its own, in each catalog.

SQL and REST rename it in one step. The clients of Glue and Hive cannot: their rename creates and drops, and a lost
answer loses the table. There its metadata is registered under the final name, then the other entry is dropped, without
its files. Each step may be repeated, and between them both names lead to the same table.
"""

from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError

from lakeingest.config.catalogs import CatalogType
from lakeingest.lake.iceberg.naming import Name

FirstPublish = Callable[[Catalog, Name, Name], None]  # the name so far, and the table's own


def first_publish(kind: CatalogType | None) -> FirstPublish:
    """The way that a catalog of this type has."""
    return _register if kind in _REGISTERING else _rename


def _rename(catalog: Catalog, building: Name, final: Name) -> None:
    catalog.rename_table(building, final)


def _register(catalog: Catalog, building: Name, final: Name) -> None:
    """TableAlreadyExistsError if another table has the final name; if this one has it, only the drop is left."""
    staged = catalog.load_table(building)
    try:
        catalog.register_table(final, staged.metadata_location)
    except TableAlreadyExistsError:
        if catalog.load_table(final).metadata.table_uuid != staged.metadata.table_uuid:
            raise
    catalog.drop_table(building)


_REGISTERING = {"glue", "hive"}
