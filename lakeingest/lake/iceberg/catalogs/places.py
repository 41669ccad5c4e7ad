"""Lets pipeline.yml alone decide where a table's files are put, and how their store is reached.

PyIceberg lets the properties in a metadata.json override those of the catalog, and loads the classes that they name. So
somebody who can set a property, or write that file, could send rows to another store, or run other code here.
"""

import time
import uuid
from collections.abc import Mapping

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier

from lakeingest.lake.iceberg.tables.properties import obeyed_properties

_EMPTY = MetastoreCatalog._empty_table_metadata()  # noqa: SLF001 - PyIceberg inspects each default of it, in 2 ms


class FixedLocations(MetastoreCatalog):
    """A catalog that ignores the properties by which a table chooses its locations and its access to files.

    Anyone can set properties with Spark. PyIceberg, which writes metadata.json here, would obey them.
    """

    def _load_file_io(self, properties: Mapping[str, str] = EMPTY_DICT, location: str | None = None) -> FileIO:
        """The access to files, by the properties of the catalog alone."""
        del properties  # of a table: they are not obeyed
        return super()._load_file_io(location=location)

    @staticmethod
    def _empty_table_metadata() -> TableMetadata:
        """The metadata with which a table that is made begins."""
        made = _EMPTY.model_copy(deep=True)
        made.__dict__ |= {"table_uuid": uuid.uuid4(), "last_updated_ms": time.time_ns() // 1_000_000}
        return made

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Stage a commit, for which only the obeyed properties count. The ignored properties stay in the table."""
        if current_table is None:
            return super()._update_and_stage_table(None, table_identifier, requirements, updates)
        metadata = current_table.metadata
        obeyed = metadata.model_copy(update={"properties": obeyed_properties(metadata.properties)})
        table = Table(current_table.name(), obeyed, current_table.metadata_location, current_table.io, self)
        staged = super()._update_and_stage_table(table, table_identifier, requirements, updates)
        ignored = {name: value for name, value in metadata.properties.items() if name not in obeyed.properties}
        merged = {**ignored, **staged.metadata.properties}
        staged.metadata = staged.metadata.model_copy(update={"properties": merged})
        return staged
