"""The creation of a table: prepared with its columns, place and properties, and not committed yet."""

from pyiceberg.catalog import Catalog
from pyiceberg.table import CreateTableTransaction

from lakeingest import config
from lakeingest.core.schema import TableSchema
from lakeingest.lake.iceberg.commit import until_known
from lakeingest.lake.iceberg.evolution import Form
from lakeingest.lake.iceberg.expiry import limits
from lakeingest.lake.iceberg.location import assert_free, new_location
from lakeingest.lake.iceberg.properties import PROPERTIES
from lakeingest.lake.iceberg.types import iceberg_schema
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import stale


def prepared(
    catalog: Catalog,
    name: tuple[str, str],
    schema: TableSchema,
    form: Form,
    settings: config.Target,
    chosen: str | None,
) -> CreateTableTransaction:
    """The transaction that creates the table under this name, in the `chosen` folder or in a new one.

    StaleWriter where the name is taken, NotOurTable where the folder is. A REST catalog is asked, and changes nothing
    yet: after an error it is asked again.
    """
    table, made = schema.table, list[CreateTableTransaction]()
    fields, location = iceberg_schema(schema, form.comments), chosen or new_location(settings, table)
    properties = {**PROPERTIES, **limits({}), **form.all_properties, OWNER: str(table)}

    def ask() -> None:
        made.append(catalog.create_table_transaction(name, fields, location=location, properties=properties))

    def is_done() -> bool:
        if catalog.table_exists(name):
            raise stale(table)
        return False

    until_known(table, ask, is_done)
    if chosen is not None:
        assert_free(made[-1]._table.io, table, location)  # noqa: SLF001 - a catalog may give rights to this folder only
    return made[-1]
