"""Tables of other tools that become the copies of new tables, and why some cannot. Nothing is changed here."""

from collections.abc import Iterable

from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, NotOurTable, Scope
from lakeingest.files.file import state_of
from lakeingest.lake.foreign_tables import Foreign, ForeignTables
from lakeingest.lake.formats import open_foreign_tables
from lakeingest.state.definition import definition


def foreign_table(config: Config, schema: TableSchema, tables: ForeignTables | None = None) -> Foreign | None:
    """The table of another tool that becomes the copy of this new table; None if there is none. Nothing is changed.

    Raises NotOurTable if it cannot become the copy. A table that has replaced a copy of this pipeline cannot become a
    copy either, because the other tool is at work again.
    """
    tables = tables or open_foreign_tables(config)
    if tables is None or not config.tables.of(schema.table).takes_over:
        return None
    found = tables.find(schema)
    if found is None:
        return None
    stored = definition(state_of(config), schema.table)
    if stored is not None and stored.first is not None and not found.is_begun:
        raise NotOurTable(
            f"{found.name} was the copy of {schema.table}, and {found.stopped} has made it anew since then; switch"
            f" {found.stopped} off, drop the table, and the next run copies it"
        )
    return found


def refusals(config: Config, schemas: Iterable[TableSchema]) -> dict[TableId, str]:
    """Why tables of other tools cannot become the copies of these new tables, by the tables of the source."""
    tables, found = open_foreign_tables(config), dict[TableId, str]()
    for schema in schemas if tables is not None else ():
        try:
            foreign_table(config, schema, tables)
        except LakeIngestError as error:
            if error.scope is not Scope.TABLE:
                raise
            found[schema.table] = str(error)
    return found
