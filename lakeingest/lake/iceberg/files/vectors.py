"""Deletion vectors: for one data file, the positions of its deleted rows as a compressed bitmap.

Source: Iceberg's table specification, "Deletion Vectors", and its Puffin specification, blob `deletion-vector-v1`. A
Puffin file of others may have several vectors; manifests say where each of them begins. PyIceberg reads only
whole files of vectors, and writes none.
"""

import json
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.locations import load_location_provider
from pyroaring import BitMap64

from lakeingest.lake.errors import parse_errors, unreadable
from lakeingest.lake.iceberg.storage.entry_fields import THIRD, place_of_blob, referenced_path
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.version import VERSION

_PUFFIN, _VECTOR = b"PFA1", bytes.fromhex("d1d33964")  # the bytes with which a file, and a vector, begin
_POSITION = 2147483645  # the field id of the column `_pos`, which the specification reserves
_FRAME = 12  # the bytes of a vector besides its bitmap: length, _VECTOR and checksum


@dataclass(frozen=True, slots=True)
class DeadRows:
    """The rows that a merge deletes: for the path of each data file, their positions as a bitmap.

    Executors return them. Only the commit writes vectors, because a data file has only one, whoever deletes rows of it.
    """

    bitmaps: Mapping[str, bytes]

    @classmethod
    def of(cls, positions: "Mapping[str, np.ndarray]") -> Self:
        """The rows at these positions."""
        return cls({path: BitMap64(rows).serialize() for path, rows in positions.items() if len(rows)})

    def positions(self) -> "dict[str, np.ndarray]":
        """The positions, ascending, by the paths of the data files."""
        return {path: _positions(BitMap64.deserialize(bitmap)) for path, bitmap in self.bitmaps.items()}


def write_vectors(
    table: TableFiles, positions: "Mapping[str, np.ndarray]", files: Mapping[str, DataFile]
) -> list[DataFile]:
    """Write a vector for each data file that has positions, each into a new file; no file if there are none.

    `files` has the data files by their paths. Two vectors are never in one file: DuckDB 1.5.5 would read the bytes of
    one for those of the other, because its cache of files confuses the parts of a file.
    """
    return [_write_vector(table, files[path], rows) for path, rows in sorted(positions.items()) if len(rows)]


def _write_vector(table: TableFiles, rows: DataFile, positions: "np.ndarray") -> DataFile:
    """Write the vector of the data file `rows` to a new file of its own."""
    metadata, blob = table.metadata, _encoded(positions)
    provider = load_location_provider(metadata.location, metadata.properties)
    out = table.io.new_output(provider.new_data_location(f"{uuid.uuid4()}-deletes.puffin"))
    described = {
        "type": "deletion-vector-v1",
        "fields": [_POSITION],
        "snapshot-id": -1,  # the specification asks for -1 here, and in the next field
        "sequence-number": -1,
        "offset": len(_PUFFIN),
        "length": len(blob),
        "properties": {"referenced-data-file": rows.file_path, "cardinality": str(len(positions))},
    }
    footer = json.dumps({"blobs": [described], "properties": {"created-by": f"lakeingest {VERSION}"}}).encode()
    # the length of the footer, and its flags: none, because it is not compressed
    closing = (_PUFFIN, footer, struct.pack("<i", len(footer)), bytes(4), _PUFFIN)
    contents = b"".join((_PUFFIN, blob, *closing))
    with storage_errors(table.location), out.create() as stream:
        stream.write(contents)
    vector = DataFile.from_args(
        _table_format_version=THIRD,
        content=DataFileContent.POSITION_DELETES,
        file_path=out.location,
        file_format=FileFormat.PUFFIN,
        partition=rows.partition,
        record_count=len(positions),
        file_size_in_bytes=len(contents),
        referenced_data_file=rows.file_path,
        content_offset=len(_PUFFIN),
        content_size_in_bytes=len(blob),
    )
    vector.spec_id = rows.spec_id
    return vector


def read_vector(table: TableFiles, vector: DataFile) -> "tuple[str, np.ndarray]":
    """The path of the data file whose rows the vector deletes, and the positions of these rows, ascending.

    Raises StateUnreadable if the vector is damaged, or does not have as many positions as the manifest says.
    """
    location, (offset, size) = vector.file_path, place_of_blob(vector)
    with parse_errors(location), table.io.new_input(location).open() as opened:
        opened.seek(offset)
        blob = opened.read(size)
    bitmap = _decoded(blob, size, location)
    if len(bitmap) != vector.record_count:
        raise unreadable(location, f"it deletes {len(bitmap)} rows, and the manifest says {vector.record_count}")
    return referenced_path(vector), _positions(bitmap)


def _encoded(positions: "np.ndarray") -> bytes:
    """The bytes of a vector with these positions: length, _VECTOR, bitmap and checksum."""
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    body = _VECTOR + bitmap.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _decoded(blob: bytes, size: int, location: str) -> BitMap64:
    """The bitmap in the bytes of a vector. Raises StateUnreadable if they are damaged, or are not `size` bytes."""
    if len(blob) != size or size < _FRAME or blob[4:8] != _VECTOR:
        raise unreadable(location, f"it has no deletion vector of {size} bytes where the manifest says")
    body = blob[4:-4]  # between the length and the checksum, which have four bytes each
    (length,), (checksum,) = struct.unpack(">I", blob[:4]), struct.unpack(">I", blob[-4:])
    if length != len(body) or checksum != zlib.crc32(body):
        raise unreadable(location, "the checksum of a deletion vector is wrong")
    try:
        return BitMap64.deserialize(body[len(_VECTOR) :])
    except ValueError as error:
        raise unreadable(location, f"a deletion vector: {error}") from error


def _positions(bitmap: BitMap64) -> "np.ndarray":
    """The positions in a bitmap, ascending."""
    return np.array(bitmap.to_array(), np.int64)
