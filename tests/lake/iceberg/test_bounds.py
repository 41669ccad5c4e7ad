"""Bounds of long values: short, and never within the values that they are the bounds of."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.types import BinaryType, NestedField, StringType

from lakeingest.core.tables.change import DELETED
from lakeingest.lake.iceberg.files.bounds import _above_bytes, _above_text
from lakeingest.lake.iceberg.files.data_files import read_rows, write_rows
from lakeingest.lake.iceberg.merges.merger import IcebergMerger, files_and_effects
from lakeingest.lake.iceberg.storage.metadata import TableFiles

LAST, BEFORE_SURROGATES = "\U0010ffff", "\ud7ff"
TEXTS = st.text(st.sampled_from(["a", "b", BEFORE_SURROGATES, "\ue000", LAST]), max_size=40)
LONG = [
    "x" * 15 + BEFORE_SURROGATES + "y",
    "x" * 14 + BEFORE_SURROGATES + LAST + "y",
    BEFORE_SURROGATES * 40,
    "x" * 15 + LAST + "y",
    LAST * 40,
    "x" * 40,
    BEFORE_SURROGATES * 16,
    "",
]


@pytest.fixture
def table(tmp_path: Path) -> TableFiles:
    """The files of a table with a text as its key."""
    catalog = SqlCatalog("bounds", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("of")
    fields = NestedField(1, "a.key", StringType(), required=True), NestedField(2, "v", BinaryType())
    return TableFiles.of(catalog.create_table(("of", "bounds"), Schema(*fields)))


def write(table: TableFiles, texts: list[str]) -> DataFile:
    """One file with these keys, and their bytes as values."""
    rows = pa.table([texts, [text.encode() for text in texts]], schema=table.metadata.schema().as_arrow())
    [file] = write_rows(table, rows)
    return file


@pytest.mark.parametrize("text", LONG)
def test_every_text_is_written_and_found_by_its_key(table: TableFiles, text: str) -> None:
    """Its bounds admit it, and are short."""
    file = write(table, [text, "m"])
    assert sorted(read_rows(table, file, ["a.key"])["a.key"].to_pylist()) == sorted([text, "m"])
    greatest, least = max(text, "m").encode(), min(text, "m").encode()
    for number in (1, 2):
        assert file.lower_bounds[number] <= least
        assert file.upper_bounds.get(number, greatest) >= greatest
    assert len(file.upper_bounds.get(1, b"").decode()) <= 16
    assert len(file.upper_bounds.get(2, b"")) <= 16

    merger = IcebergMerger(table, ("a.key",), (FileScanTask(file),))
    changes = pa.table({"a.key": [text], DELETED: [True]})
    _, effects = files_and_effects([merger.replace(changes)])
    assert effects.deleted == 1


def test_bounds_follow_the_properties_of_the_table(table: TableFiles) -> None:
    """Longer, whole, or none."""
    lengths = {"truncate(20)": 20, "full": 40, "counts": None, "none": None}
    for mode, length in lengths.items():
        properties = {"write.metadata.metrics.default": mode}
        file = write(TableFiles(table.metadata.model_copy(update={"properties": properties})), ["x" * 40])
        assert [len(bound) for bound in file.lower_bounds.values()] == ([] if length is None else [length] * 2)
        assert [len(bound) for bound in file.upper_bounds.values()] == ([] if length is None else [length] * 2)


@given(TEXTS, st.integers(1, 20))
def test_an_upper_bound_is_not_below_the_text(text: str, length: int) -> None:
    """In the order of code points, which is that of UTF-8; there is none only for a text of the last character."""
    bound = _above_text(text, length)
    if bound is None:
        assert len(text) > length
        assert set(text[:length]) == {LAST}
    else:
        assert bound >= text.encode()
        assert len(bound.decode()) <= length


@given(st.binary(max_size=8) | st.binary(max_size=4).map(lambda start: start + b"\xff" * 9), st.integers(1, 6))
def test_an_upper_bound_is_not_below_the_bytes(value: bytes, length: int) -> None:
    """There is none only for the greatest byte alone."""
    bound = _above_bytes(value, length)
    if bound is None:
        assert len(value) > length
        assert set(value[:length]) == {0xFF}
    else:
        assert bound >= value
        assert len(bound) <= length


def test_a_file_is_where_it_says(table: TableFiles) -> None:
    """Cutting its bounds leaves all else as it was written."""
    file = write(table, ["a", "b"])
    assert len(PyArrowFileIO().new_input(file.file_path)) == file.file_size_in_bytes
    assert file.record_count == 2
