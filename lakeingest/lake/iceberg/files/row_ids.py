"""The ids of rows, which tables of version 3 have: a row keeps its id, and when it was changed last, in any other file.

Source: Iceberg's table specification, "Row Lineage". A file without the columns ROW_ID and CHANGED_AT has the rows of
one commit. The ids of these rows follow from the id of the first row. lakeingest deletes the old row of an update and
adds the new one, which gets an id of its own: the specification leaves that to engines.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeingest.lake.iceberg.files.data_files import read_rows
from lakeingest.lake.iceberg.storage.entry_fields import first_row_id
from lakeingest.lake.iceberg.storage.format_version import is_third
from lakeingest.lake.iceberg.storage.metadata import TableFiles

ROW_ID, CHANGED_AT = "_row_id", "_last_updated_sequence_number"
_FIELDS = (  # with the field ids that the specification reserves for them
    NestedField(2147483540, ROW_ID, LongType(), required=False),
    NestedField(2147483539, CHANGED_AT, LongType(), required=False),
)


def with_row_ids(table: TableFiles) -> TableFiles:
    """In version 3, the table with a schema that also has ROW_ID and CHANGED_AT. No commit may name this schema."""
    metadata = table.metadata
    if not is_third(metadata):
        return table
    number = max(schema.schema_id for schema in metadata.schemas) + 1
    fields = (*metadata.schema().fields, *_FIELDS)
    schema = Schema(*fields, schema_id=number, identifier_field_ids=metadata.schema().identifier_field_ids)
    changed = {"schemas": [*metadata.schemas, schema], "current_schema_id": number}
    return TableFiles(metadata.model_copy(update=changed), table.io)


def rows_with_ids(table: TableFiles, file: DataFile, names: Sequence[str], added_at: int | None) -> pa.Table:
    """The columns `names`, ROW_ID and CHANGED_AT of all rows of a data file, also of deleted ones.

    `table` comes from `with_row_ids`; in version 2 there are no ids. `added_at`: the sequence number of the commit that
    added the file; None: the caller changes the rows. In this case CHANGED_AT is NULL, which stands for the commit that
    will add the rows. It is NULL, too, if the rows have no id yet.
    """
    if not is_third(table.metadata):
        return read_rows(table, file, names)
    first = first_row_id(file)
    rows = read_rows(table, file, (*names, ROW_ID, CHANGED_AT))
    ids, changed = rows[ROW_ID], rows[CHANGED_AT]
    if first is None or added_at is None:
        changed = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    else:
        changed = pc.fill_null(changed, added_at)
    if first is not None:
        ids = pc.coalesce(ids, pa.chunked_array([pa.array(np.arange(first, first + rows.num_rows))]))
    return rows.drop_columns([ROW_ID, CHANGED_AT]).append_column(ROW_ID, ids).append_column(CHANGED_AT, changed)
