"""The first publish: how a new table gets its own name, under which readers see it, in each catalog.

`rename`: SQL catalogs, and REST servers that offer it, rename a table that was built under another name, in one step.
`register`: the clients of Glue and Hive rename by creating and dropping, and would lose the table if an answer is lost
in between. So the table's metadata is registered under its own name, and then the entry with the other name is dropped,
without the files. Either step can be repeated, and between the steps both names lead to the same table.

`own_name`: on a server that offers neither of the two, the table is built under its own name. Until the first publish
its main is empty, and it has the property `lakeingest.state`. The commit that first moves main removes this property.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError

from lakeingest import config
from lakeingest.config.catalogs import FirstPublishName
from lakeingest.lake.iceberg.tables.naming import Name, name_to_build


@dataclass(frozen=True, slots=True)
class FirstPublish:
    """A way to the first publish.

    `begun_as` returns the name under which a table is built; its argument is the table's own name. `give_name` gives a
    table its own name; its arguments are the catalog, the name under which the table was built, and the own name.
    `give_name` is None if tables have their own name from the start.
    """

    begun_as: Callable[[Name], Name]
    give_name: Callable[[Catalog, Name, Name], None] | None


def first_publish(settings: config.Catalog, catalog: Catalog) -> FirstPublish:
    """The way to the first publish that pipeline.yml chooses, or else the best one for the catalog."""
    if settings.first_publish != "auto":
        return _WAYS[settings.first_publish]
    if settings.type == "rest":
        from lakeingest.lake.iceberg.catalogs.rest import best_way

        return _WAYS[best_way(catalog)]
    return _WAYS["register" if settings.type in {"glue", "hive"} else "rename"]


def _rename(catalog: Catalog, building: Name, own: Name) -> None:
    catalog.rename_table(building, own)


def _register(catalog: Catalog, building: Name, own: Name) -> None:
    """Register the table's metadata under its own name, and drop the entry `building`. A second call only drops.

    Raises TableAlreadyExistsError if another table has the own name.
    """
    built = catalog.load_table(building)
    try:
        catalog.register_table(own, built.metadata_location)
    except TableAlreadyExistsError:
        # the same UUID: an earlier call registered the table, and did not drop the entry
        if catalog.load_table(own).metadata.table_uuid != built.metadata.table_uuid:
            raise
    catalog.drop_table(building)


_WAYS: Mapping[FirstPublishName, FirstPublish] = {
    "rename": FirstPublish(name_to_build, _rename),
    "register": FirstPublish(name_to_build, _register),
    "own_name": FirstPublish(lambda own: own, None),
}
