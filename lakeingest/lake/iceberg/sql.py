"""Iceberg's SQL catalog, which parses each version of metadata.json once: PyIceberg parses it five times a publish."""

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import Table

from lakeingest.lake.iceberg.metadata import with_shared_history
from lakeingest.lake.iceberg.places import OwnPlaces
from lakeingest.lake.iceberg.times import OrderedCatalog


class ParsingOnceSqlCatalog(OrderedCatalog, OwnPlaces, SqlCatalog):
    """PyIceberg's SQL catalog. It remembers the last metadata of each table, and parses only files of new names."""

    def __init__(self, name: str, **properties: str) -> None:
        self._known: dict[tuple[str, str], Table] = {}
        super().__init__(name, **properties)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        name = orm_table.table_namespace, orm_table.table_name
        table = self._known.get(name)
        if table is None or table.metadata_location != orm_table.metadata_location:
            table = super()._convert_orm_to_iceberg(orm_table)
            table.metadata = with_shared_history(table.metadata)
            self._known[name] = table
        return Table(table.name(), table.metadata, table.metadata_location, table.io, self)
