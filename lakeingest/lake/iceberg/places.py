"""Where a table's files are put and how a store is reached: pipeline.yml says it, and no property of a table.

PyIceberg lets the properties in a metadata.json override those of the catalog, and loads the classes that they name. So
whoever can set a property, or write the file, could lead rows to another store, and let this process run other code.
"""

from collections.abc import Mapping

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier

from lakeingest.lake.iceberg.properties import usable


class OwnPlaces(MetastoreCatalog):
    """A catalog for which PyIceberg writes metadata.json: into the table's folder, with the access of the catalog."""

    def _load_file_io(self, properties: Mapping[str, str] = EMPTY_DICT, location: str | None = None) -> FileIO:
        del properties  # of a table
        return super()._load_file_io(location=location)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Stage a commit; what others have set stays in the table, and is not obeyed."""
        if current_table is None:
            return super()._update_and_stage_table(None, table_identifier, requirements, updates)
        given = current_table.metadata
        obeyed = given.model_copy(update={"properties": usable(given.properties)})
        table = Table(current_table.name(), obeyed, current_table.metadata_location, current_table.io, self)
        staged = super()._update_and_stage_table(table, table_identifier, requirements, updates)
        ignored = {name: value for name, value in given.properties.items() if name not in obeyed.properties}
        merged = {**ignored, **staged.metadata.properties}
        staged.metadata = staged.metadata.model_copy(update={"properties": merged})
        return staged
