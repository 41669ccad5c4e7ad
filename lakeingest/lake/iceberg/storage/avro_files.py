"""PyIceberg's files of Avro, for which everything that depends on their schema alone is made once.

A manifest of a few files is read or written in a fraction of a millisecond. PyIceberg takes several times as long to
turn its schema into readers and writers, although nearly all manifests of all tables have the same one.
"""

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFile, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader, resolve_writer
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

Struct = TypeVar("Struct", bound=StructProtocol)
_SCHEMA = "avro.schema"  # the key in the header
_SCHEMAS = 256  # so many different schemas are remembered
_HEADER_READER, _HEADER_WRITER = construct_reader(META_SCHEMA, {-1: AvroFileHeader}), construct_writer(META_SCHEMA)


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Which records are read from a file: their schema, and the classes of their structs and enums, by field id.

    In `types`, the id -1 stands for the whole record.
    """

    schema: Schema
    types: Mapping[int, Callable[..., StructProtocol]]
    enums: Mapping[int, Callable[..., Enum]]


@lru_cache(_SCHEMAS)
def _reader(text: str, records: Records) -> tuple[Schema, Reader]:
    """The schema in `text`, and what reads `records` from a file of this schema. Raises an error for any other text."""
    schema = AvroSchemaConversion().avro_to_iceberg(json.loads(text))
    return schema, resolve_reader(schema, records.schema, dict(records.types), dict(records.enums))


class AvroInput(AvroFile[Struct]):
    """A file to read."""

    def __init__(self, file: InputFile, records: Records) -> None:
        super().__init__(file, records.schema, dict(records.types), dict(records.enums))
        self._records = records

    def __enter__(self) -> Self:
        """Read the file, and prepare to read its records. Raises an error of any kind if it is damaged."""
        with self.input_file.open() as file:
            contents = file.read()
        self.decoder = new_decoder(contents)
        self.header = _HEADER_READER.read(self.decoder)
        if not contents.endswith(self.header.sync):  # PyIceberg's decoder does not notice that the last bytes are gone
            raise ValueError("the file is cut off")
        if _SCHEMA not in self.header.meta:
            raise ValueError("no schema in the header")
        self.schema, self.reader = _reader(self.header.meta[_SCHEMA], self._records)
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How records are written: `schema` is that of the file, and `record_schema` that of the records."""

    schema: Schema
    record_schema: Schema
    name: str
    writer: Any = field(init=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "writer", resolve_writer(record_schema=self.record_schema, file_schema=self.schema))
        doc = AvroSchemaConversion().iceberg_to_avro(self.schema, schema_name=self.name)
        object.__setattr__(self, "text", json.dumps(doc))


@dataclass(frozen=True, slots=True)
class _Written:
    """Takes the place of a written file. PyIceberg asks for its length, which would otherwise take a request."""

    length: int

    def __len__(self) -> int:
        return self.length


class AvroOutput(AvroOutputFile[Struct]):
    """A file to write. It is made, in one piece, when all its records are known."""

    def __init__(self, file: OutputFile, form: Form, metadata: dict[str, str]) -> None:
        # PyIceberg's __init__ would make the writer again
        self.output_file, self.metadata = file, metadata
        self.file_schema, self.schema_name, self.writer = form.schema, form.name, form.writer
        self.sync_bytes = os.urandom(SYNC_SIZE)
        self._text = form.text

    def __enter__(self) -> Self:
        """Begin with the header."""
        self._contents = io.BytesIO()
        self.output_stream: Any = self._contents
        self.encoder = BinaryEncoder(self.output_stream)
        codec = self.metadata.get(AVRO_CODEC_KEY, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)
        codec = CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec) or codec
        meta = {**self.metadata, _SCHEMA: self._text, AVRO_CODEC_KEY: codec}
        _HEADER_WRITER.write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the file, unless the block has failed."""
        if error is not None:
            return
        contents = self._contents.getvalue()
        with self.output_file.create(overwrite=True) as file:
            file.write(contents)
        self.output_file: Any = _Written(len(contents))
