"""Deletion vectors: what is written is what the specification says, and what is damaged is refused."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from lakeingest.errors import StateUnreadable
from lakeingest.lake.iceberg.files.vectors import DeadRows, read_vector, write_vectors
from lakeingest.lake.iceberg.storage.entry_fields import identity, is_vector, place_of_blob, referenced_path
from lakeingest.lake.iceberg.storage.metadata import TableFiles

RECORD_COUNT = 4  # the number of this field in a DataFile
# what Iceberg 1.12 has written for these positions
JAVAS = {
    (3, 4, 5): "00000026d1d339640100000000000000000000003a3000000100000000000200100000000300040005008a81c48b",
    (3, 4, 5, 13, 14, 15): "00000023d1d339640100000000000000000000003b30000001000005000200030002000d000200468fa936",
}
positions = st.sets(st.integers(0, 200_000) | st.integers(2**32 - 3, 2**32 + 3), min_size=1, max_size=60)


def bare_table(folder: Path) -> TableFiles:
    """A table in a folder, without a catalog."""
    schema = Schema(NestedField(1, "id", LongType()))
    return TableFiles(
        new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, folder.as_uri(), {})
    )


@pytest.fixture
def table(tmp_path: Path) -> TableFiles:
    """A table in a new folder."""
    return bare_table(tmp_path)


def data_file(path: str) -> DataFile:
    """A data file of this path."""
    content = DataFileContent.DATA
    file = DataFile.from_args(content=content, file_path=path, file_format=FileFormat.PARQUET, partition=Record())
    file.spec_id = 0
    return file


def written(table: TableFiles, dead: dict[str, list[int]]) -> list[DataFile]:
    """The vectors with these positions."""
    arrays = {path: np.array(sorted(rows), np.int64) for path, rows in dead.items()}
    return write_vectors(table, arrays, {path: data_file(path) for path in dead})


def contents(table: TableFiles, file: DataFile) -> bytes:
    """The bytes of the file that a vector is in."""
    with table.io.new_input(file.file_path).open() as opened:
        return opened.read()


@settings(deadline=None, max_examples=50)
@given(dead=st.dictionaries(st.text("abcé/ ", min_size=1, max_size=8), positions, min_size=1, max_size=4))
def test_vectors_are_read_back_by_us_and_by_pyiceberg(
    tmp_path_factory: pytest.TempPathFactory, dead: dict[str, set[int]]
) -> None:
    """Each in a file of its own; also positions beyond 32 bits: PyIceberg fails there, and no file has so many rows."""
    table = bare_table(tmp_path_factory.mktemp("table"))
    files = written(table, {path: sorted(rows) for path, rows in dead.items()})
    assert len({identity(file) for file in files}) == len(files) == len(dead)
    assert len({file.file_path for file in files}) == len(files)
    assert {path: rows.tolist() for path, rows in (read_vector(table, file) for file in files)} == {
        path: sorted(rows) for path, rows in dead.items()
    }
    for file in files:
        read = PuffinFile(contents(table, file))
        rows = sorted(dead[referenced_path(file)])
        if rows[-1] < 1 << 32:
            [vector] = deletion_vectors_from_puffin_file(read)
            assert (vector.referenced_data_file, vector.to_vector().to_pylist()) == (referenced_path(file), rows)
        [blob] = read.footer.blobs
        assert (blob.offset, blob.length) == place_of_blob(file)
        assert blob.properties == {
            "referenced-data-file": referenced_path(file),
            "cardinality": str(file.record_count),
        }
        assert (blob.snapshot_id, blob.sequence_number, blob.compression_codec) == (-1, -1, None)


@pytest.mark.parametrize("dead", JAVAS)
def test_a_vector_has_the_bytes_that_iceberg_writes(table: TableFiles, dead: tuple[int, ...]) -> None:
    """Length and checksum are big-endian, the bitmap is little-endian, and long runs are stored as runs."""
    [file] = written(table, {"a": list(dead)})
    offset, size = place_of_blob(file)
    assert (is_vector(file), offset) == (True, 4)
    assert contents(table, file)[offset : offset + size].hex() == JAVAS[dead]
    assert len(contents(table, file)) == file.file_size_in_bytes


def test_nothing_is_written_for_files_without_dead_rows(table: TableFiles) -> None:
    """No vector is empty."""
    assert written(table, {}) == []
    assert [referenced_path(file) for file in written(table, {"a": [], "b": [1]})] == ["b"]


def test_positions_travel_from_executors_as_bitmaps() -> None:
    """Paths without positions are left out."""
    found = DeadRows.of({"a": np.array([1, 5]), "b": np.array([], np.int64)})
    assert {path: rows.tolist() for path, rows in found.positions().items()} == {"a": [1, 5]}


DAMAGES = {
    "checksum": lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]),
    "a bit": lambda blob: blob[:-6] + bytes([blob[-6] ^ 1]) + blob[-5:],
    "magic": lambda blob: blob[:4] + b"\0" + blob[5:],
    "length": lambda blob: b"\0\0\0\1" + blob[4:],
    "bitmap": lambda blob: (
        blob[:8] + b"\xff" * (len(blob) - 12) + struct.pack(">I", zlib.crc32(blob[4:8] + b"\xff" * (len(blob) - 12)))
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_vector_is_refused(table: TableFiles, damage: str) -> None:
    """Never read as other rows."""
    [file] = written(table, {"a": [3, 4, 5, 1003]})
    offset, size = place_of_blob(file)
    old = contents(table, file)
    spoiled = old[:offset] + DAMAGES[damage](old[offset : offset + size]) + old[offset + size :]
    with table.io.new_output(file.file_path).create(overwrite=True) as out:
        out.write(spoiled)
    with pytest.raises(StateUnreadable, match="a file is gone or damaged"):
        read_vector(table, file)


def test_a_vector_with_another_number_of_rows_is_refused(table: TableFiles) -> None:
    """The manifest says how many rows a vector deletes."""
    [file] = written(table, {"a": [3, 4]})
    file[RECORD_COUNT] = 3
    with pytest.raises(StateUnreadable, match="it deletes 2 rows, and the manifest says 3"):
        read_vector(table, file)
