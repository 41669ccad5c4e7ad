"""The creation of a table: prepared with its columns, place and properties, and not committed yet."""

from pyiceberg.catalog import Catalog
from pyiceberg.table import CreateTableTransaction

from lakeingest import config
from lakeingest.core.schema import TableSchema
from lakeingest.lake.iceberg.commit import until_known
from lakeingest.lake.iceberg.expiry import limits
from lakeingest.lake.iceberg.properties import PROPERTIES, new_location
from lakeingest.lake.iceberg.types import iceberg_schema
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import stale


def prepared(
    catalog: Catalog, settings: config.Target, name: tuple[str, str], schema: TableSchema
) -> CreateTableTransaction:
    """The transaction that creates the table under this name; StaleWriter where the name is taken.

    A REST catalog is asked, and changes nothing yet: after an error it is asked again.
    """
    table, fields, made = schema.table, iceberg_schema(schema), list[CreateTableTransaction]()
    location, properties = new_location(settings, table), {**PROPERTIES, **limits({}), OWNER: str(table)}

    def ask() -> None:
        made.append(catalog.create_table_transaction(name, fields, location=location, properties=properties))

    def is_done() -> bool:
        if catalog.table_exists(name):
            raise stale(table)
        return False

    until_known(table, ask, is_done)
    return made[-1]
