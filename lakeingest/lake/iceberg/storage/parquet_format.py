"""The Parquet files that PyIceberg writes for us.

Only columns whose values repeat get a dictionary. The bounds of a column hold for all its values.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.io.fileformat import DataFileStatistics, FileFormatFactory
from pyiceberg.io.pyarrow import ParquetFormatModel, ParquetFormatWriter, parquet_path_to_id_mapping
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Properties

from lakeingest.files.dictionaries import repetitive_columns


class ParquetWriter(ParquetFormatWriter):
    """PyIceberg's writer of one file, with dictionaries only for columns whose values repeat."""

    def write(self, table: pa.Table) -> None:
        """Write these rows to the file."""
        # the first table of a file decides, because Parquet's writer is made for it
        self._parquet_writer_kwargs.setdefault("use_dictionary", repetitive_columns(table))
        super().write(table)

    def close(self) -> DataFileStatistics:
        """Close the file. Returns its statistics."""
        statistics = super().close()
        assert self._writer is not None  # noqa: S101 - else `super` has raised
        metadata = self._writer.writer.metadata
        return without_partial_bounds(statistics, metadata, parquet_path_to_id_mapping(self._file_schema))


def without_partial_bounds(
    statistics: DataFileStatistics, file: pq.FileMetaData, ids: Mapping[str, int]
) -> DataFileStatistics:
    """Remove, in place, the bounds of columns that have values in a row group without bounds. Returns the statistics.

    Parquet records no bound of more than 4 KB, and PyIceberg combines the bounds of the row groups that have some: by
    these, readers would skip a file with the values that they look for. `ids`: the field ids of the file's columns.
    """
    if file.num_row_groups > 1:  # the bounds of a single row group are those of the file
        for group in map(file.row_group, range(file.num_row_groups)):
            for column in map(group.column, range(file.num_columns)):
                found = column.statistics
                if found is None or (found.num_values and not found.has_min_max):
                    statistics.column_aggregates.pop(ids[column.path_in_schema], None)
    return statistics


class _Format(ParquetFormatModel):
    """PyIceberg's Parquet format, which writes by `ParquetWriter`."""

    def create_writer(self, output_file: OutputFile, file_schema: Schema, properties: Properties) -> ParquetWriter:
        return ParquetWriter(output_file, file_schema, properties)


def choose_dictionaries() -> None:
    """Let PyIceberg in this process make dictionaries only for columns whose values repeat. It has no such option."""
    FileFormatFactory._registry[FileFormat.PARQUET] = _Format()  # noqa: SLF001
