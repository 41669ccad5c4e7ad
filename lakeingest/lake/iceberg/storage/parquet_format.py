"""The Parquet files that PyIceberg writes for us: only columns whose values repeat get a dictionary."""

import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import ParquetFormatModel, ParquetFormatWriter
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


class _Format(ParquetFormatModel):
    """PyIceberg's Parquet format, which writes by `ParquetWriter`."""

    def create_writer(self, output_file: OutputFile, file_schema: Schema, properties: Properties) -> ParquetWriter:
        return ParquetWriter(output_file, file_schema, properties)


def choose_dictionaries() -> None:
    """Let PyIceberg in this process make dictionaries only for columns whose values repeat. It has no such option."""
    FileFormatFactory._registry[FileFormat.PARQUET] = _Format()  # noqa: SLF001
