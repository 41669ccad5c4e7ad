"""Column projection: columns of a data file, found by their field ids and converted to the types of the table.

Source: Iceberg's table specification, "Column Projection" and "Parquet". The writer of a file chooses the order and the
names of its columns, and how a type is stored. Other writers use `string` for our `large_string`, dictionaries, or
INT96.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from lakeingest.files import file as files

_FIELD_ID = b"PARQUET:field_id"
_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)


class NotProjectable(ValueError):
    """A data file does not have the columns of the table."""


def project(schema: Schema, parquet: pq.ParquetFile, names: Sequence[str], most: int | None = None) -> pa.Table:
    """The columns `names` of the table, for all rows of a file. Optional columns that the file lacks are NULL.

    With `most`, only about the first `most` rows are read.

    Raises NotProjectable if the file lacks a required column, has texts for numbers or numbers for texts, or has
    columns that field ids do not tell apart; an error of PyArrow if a value does not fit the table's type.
    """
    names_by_id = _names_by_id(parquet.schema_arrow)
    present = _present(schema, names_by_id, names)
    rows = files.all_rows(parquet, present) if most is None else files.first_rows(parquet, present, most)
    return _projected(schema, names_by_id, names, rows)


def project_batches(schema: Schema, parquet: pq.ParquetFile, names: Sequence[str], size: int) -> Iterator[pa.Table]:
    """The columns as by `project`, about `size` bytes at a time. Raises as `project`."""
    names_by_id = _names_by_id(parquet.schema_arrow)
    batches = parquet.iter_batches(files.rows_of_size(parquet, size), columns=_present(schema, names_by_id, names))
    return (_projected(schema, names_by_id, names, pa.Table.from_batches([batch])) for batch in batches)


def _present(schema: Schema, names_by_id: Mapping[int, str], names: Sequence[str]) -> list[str]:
    """The names that these columns have in the file. Columns that the file lacks are left out."""
    field_ids = [schema.find_field(name).field_id for name in names]
    return [names_by_id[field_id] for field_id in field_ids if field_id in names_by_id]


def _projected(schema: Schema, names_by_id: Mapping[int, str], names: Sequence[str], rows: pa.Table) -> pa.Table:
    """Rows of the file with the names and types of the table. Raises as `project`."""
    columns = []
    for field in map(schema.find_field, names):
        target = _arrow_type(field.field_type)
        if field.field_id in names_by_id:
            columns.append(_cast(rows[names_by_id[field.field_id]], target))
        elif field.required:
            raise NotProjectable(f"it lacks the required column {field.name} (field id {field.field_id})")
        else:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, target)]))
    return pa.table(columns, names=list(names))


@lru_cache(maxsize=1_000)  # each file that is read needs the types of its columns
def _arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type of values of an Iceberg type."""
    return schema_to_pyarrow(kind)


def _names_by_id(schema: pa.Schema) -> Mapping[int, str]:
    """The names of a file's columns by their field ids.

    Raises NotProjectable if the columns have no field ids, or two of them have the same name.
    """
    found = ((field.name, field.metadata) for field in schema)  # each access to the metadata makes a new dictionary
    names = {int(metadata[_FIELD_ID]): name for name, metadata in found if metadata and _FIELD_ID in metadata}
    if not names or len(set(schema.names)) != len(schema.names):
        raise NotProjectable("its columns have no field ids, or two columns have the same name")
    return names


def _cast(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The values with the type `target`. Raises NotProjectable if one of the types is a text, and the other is not."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == target:
        return column
    if _is_text(column.type) != _is_text(target):  # a cast would parse texts as numbers
        raise NotProjectable(f"it has {column.type} for {target}")
    return column.cast(target)


def _is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are texts or bytes. Parquet tells the two apart only by an annotation."""
    return any(is_such(kind) for is_such in _TEXTS)
