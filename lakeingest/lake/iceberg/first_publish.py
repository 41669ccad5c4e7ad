"""The first publish: how readers come to see a new table, in each catalog.

SQL, and REST if the server offers it, rename a table that was built under another name, in one step. The clients of
Glue and Hive cannot: their rename creates and drops, and a lost answer loses the table. There the table's metadata is
registered under the final name, and then the other entry is dropped, without its files. Each step may be repeated, and
between them both names lead to the same table.

On a server that offers neither, the table has its own name from the start. Its main is empty, and it has the property
`lakeingest.state` until the commit that moves main for the first time, which removes the property.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError

from lakeingest import config
from lakeingest.config.catalogs import FirstPublishName
from lakeingest.lake.iceberg.naming import Name, name_to_build


@dataclass(frozen=True, slots=True)
class FirstPublish:
    """A way to the first publish.

    `begun_as` returns the name under which a table is built. `give_name` takes that name and the table's own name; it
    is None if a table has its own name from the start.
    """

    begun_as: Callable[[Name], Name]
    give_name: Callable[[Catalog, Name, Name], None] | None


def first_publish(settings: config.Catalog, catalog: Catalog) -> FirstPublish:
    """The way that pipeline.yml names, or else the best one for the catalog."""
    if settings.first_publish != "auto":
        return _WAYS[settings.first_publish]
    if settings.type == "rest":
        from lakeingest.lake.iceberg.rest import best_way

        return _WAYS[best_way(catalog)]
    return _WAYS["register" if settings.type in {"glue", "hive"} else "rename"]


def _rename(catalog: Catalog, building: Name, final: Name) -> None:
    catalog.rename_table(building, final)


def _register(catalog: Catalog, building: Name, final: Name) -> None:
    """Register the metadata under the final name, and drop the other entry. A repeated call only drops.

    Raises TableAlreadyExistsError if another table has the final name.
    """
    staged = catalog.load_table(building)
    try:
        catalog.register_table(final, staged.metadata_location)
    except TableAlreadyExistsError:
        if catalog.load_table(final).metadata.table_uuid != staged.metadata.table_uuid:
            raise
    catalog.drop_table(building)


_WAYS: Mapping[FirstPublishName, FirstPublish] = {
    "rename": FirstPublish(name_to_build, _rename),
    "register": FirstPublish(name_to_build, _register),
    "own_name": FirstPublish(lambda own: own, None),
}
