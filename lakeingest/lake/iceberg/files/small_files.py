"""Writes a few rows to a data file, just as PyIceberg writes it.

For each file, PyIceberg reads its configuration, makes again what depends on the columns alone, and hands its work to a
thread. For a few rows, this takes longer than the file itself.
"""

import uuid
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties as Named
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Properties, Record
from pyiceberg.types import NestedField
from pyiceberg.utils.properties import property_as_int

from lakeingest.files.file import THREADS_BYTES
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.storage.parquet_format import ParquetWriter, without_partial_bounds

_METRICS = "write.metadata.metrics."  # properties that say which statistics are kept


@dataclass(frozen=True, slots=True)
class Columns:
    """What follows from the columns of a table, and from its properties for statistics, for each of its files.

    `types`: the columns as Arrow has them, with field ids. `in_files`: the same, with the names that they have in
    files. `plan`: the statistics that are kept of each column, by its field id. `ids`: the field ids by these names.
    """

    types: pa.Schema
    in_files: pa.Schema
    schema_in_files: Schema
    plan: dict[int, StatisticsCollector]
    ids: dict[str, int]


def columns_of(metadata: TableMetadata) -> Columns:
    """What follows from the columns of this table for its files."""
    metrics = (item for item in metadata.properties.items() if item[0].startswith(_METRICS))
    return _columns(metadata.schema().fields, tuple(sorted(metrics)))


@lru_cache(maxsize=1_000)  # many tables have the same columns, and each of them writes several files
def _columns(fields: tuple[NestedField, ...], metrics: tuple[tuple[str, str], ...]) -> Columns:
    """`columns_of` by a table's columns and properties. Callers share the result, and do not change it."""
    schema = Schema(*fields)
    named = sanitize_column_names(schema)
    plan, ids = compute_statistics_plan(named, dict(metrics)), parquet_path_to_id_mapping(named)
    return Columns(schema.as_arrow(), named.as_arrow().remove_metadata(), named, plan, ids)


def is_small(metadata: TableMetadata, rows: pa.Table) -> bool:
    """Whether `write_small` can write these rows: they are few, for one Parquet file, and no column has parts."""
    properties = metadata.properties
    most = property_as_int(properties, Named.WRITE_TARGET_FILE_SIZE_BYTES, Named.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)
    return (
        rows.nbytes <= min(most or 0, THREADS_BYTES)
        and properties.get(Named.WRITE_FILE_FORMAT, FileFormat.PARQUET.value).upper() == FileFormat.PARQUET.value
        and all(field.field_type.is_primitive for field in metadata.schema().fields)
    )


def write_small(table: TableFiles, metadata: TableMetadata, rows: pa.Table) -> DataFile:
    """Write rows to a new file of no partition. `metadata` is that of `table`, with the properties for this file.

    The rows have the columns and the types `Columns.types`.
    """
    columns = columns_of(metadata)
    provider = load_location_provider(metadata.location, metadata.properties)
    out = table.io.new_output(provider.new_data_location(f"00000-0-{uuid.uuid4()}.parquet"))
    writer = _Writer(out, columns, metadata.properties)
    with writer:
        writer.write(pa.Table.from_arrays(rows.columns, schema=columns.in_files))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=out.location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=len(out),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )


class _Writer(ParquetWriter):
    """Takes what follows from the columns from `Columns`."""

    def __init__(self, out: OutputFile, columns: Columns, properties: Properties) -> None:
        super().__init__(out, columns.schema_in_files, properties)
        self._columns = columns

    def close(self) -> DataFileStatistics:
        """Close the file. Returns its statistics."""
        assert self._writer is not None  # noqa: S101 - `write_small` has written rows
        assert self._fos is not None  # noqa: S101
        with self._fos:
            self._writer.close()
            metadata, columns = self._writer.writer.metadata, self._columns
            statistics = data_file_statistics_from_parquet_metadata(metadata, columns.plan, columns.ids)
            return without_partial_bounds(statistics, metadata, columns.ids)
