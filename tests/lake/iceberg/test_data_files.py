"""Files of deletes: what is read is what was written, whoever wrote it."""

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from lakeingest.errors import StateUnreadable
from lakeingest.lake.iceberg.files import data_files
from lakeingest.lake.iceberg.files.data_files import (
    SmallFiles,
    has_living_rows,
    read_deletes,
    read_rows,
    rows_in_footer,
    write_deletes,
    write_rows,
)
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles


@pytest.fixture
def table(tmp_path: Path) -> TableFiles:
    """The files of a table in its own catalog."""
    catalog = SqlCatalog("deletes", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("of")
    return TableFiles.of(catalog.create_table(("of", "deletes"), pa.schema([pa.field("id", pa.int64())])))


def named(path: Path) -> DataFile:
    """A file of deletes that someone else wrote."""
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=path.as_uri(), file_format=FileFormat.PARQUET
    )


def test_positions_of_all_files_come_together(table: TableFiles) -> None:
    """By the path of the data file, in order, each with its own."""
    first = {"file:/b": np.array([0, 7, 9]), "file:/a": np.array([3]), "file:/none": np.zeros(0, np.int64)}
    second = {"file:/c": np.array([1]), "file:/a": np.array([2, 4])}
    found = read_deletes(table, [*write_deletes(table, first), *write_deletes(table, second)])
    listed = {path: positions.tolist() for path, positions in found.items()}
    assert listed == {"file:/a": [2, 3, 4], "file:/b": [0, 7, 9], "file:/c": [1]}


def test_only_columns_whose_values_repeat_have_a_dictionary(tmp_path: Path) -> None:
    """Others take twice as long with one. All have their field ids, whatever their names are."""
    catalog = SqlCatalog("rows", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("of")
    rows = pa.table(
        {"id": range(5_000), "a.b ☃": [n % 5 for n in range(5_000)], "v": [[float(n)] for n in range(5_000)]}
    )
    files = TableFiles.of(catalog.create_table(("of", "rows"), rows.schema))
    [file] = write_rows(files, rows)
    columns = pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0)
    encodings = [columns.column(number).encodings for number in range(3)]
    assert ["RLE_DICTIONARY" in found for found in encodings] == [False, True, False]
    assert read_rows(files, file, rows.column_names).equals(rows.cast(files.metadata.schema().as_arrow()))


def test_without_a_file_of_deletes_nothing_is_deleted(table: TableFiles) -> None:
    """Nor is a file written for it."""
    assert write_deletes(table, {"file:/a": np.zeros(0, np.int64)}) == []
    assert read_deletes(table, []) == {}


def test_files_of_others_are_read(table: TableFiles, tmp_path: Path) -> None:
    """In any order, in several row groups, with rows beside the positions; an empty one has none."""
    paths, positions = ["file:/b", "file:/a", "file:/b", "file:/c"], [5, 1, 2, 0]
    rows = pa.table({"file_path": paths, "pos": positions, "row": [{"id": 1}] * 4})
    pq.write_table(rows, tmp_path / "others.parquet", row_group_size=1)
    pq.write_table(rows.slice(0, 0), tmp_path / "empty.parquet")
    found = read_deletes(table, [named(tmp_path / "empty.parquet"), named(tmp_path / "others.parquet")])
    assert {path: list(part) for path, part in found.items()} == {"file:/b": [2, 5], "file:/a": [1], "file:/c": [0]}


def test_a_damaged_file_is_named(table: TableFiles, tmp_path: Path) -> None:
    """What it deleted would be back."""
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1, or so it said")
    with pytest.raises(StateUnreadable, match=r"damaged\.parquet"):
        read_deletes(table, [named(tmp_path / "damaged.parquet")])


def test_whatever_is_damaged_in_a_file_is_named(table: TableFiles) -> None:
    """PyArrow has many errors for that, by where the damage is; none of them is a bug of ours."""
    chance = random.Random(1)
    [rows] = write_rows(table, pa.table({"id": np.arange(5_000)}))
    [deletes] = write_deletes(table, {rows.file_path: np.arange(0, 5_000, 3)})
    named = 0
    for file in (rows, deletes):
        path = Path(file.file_path.removeprefix("file://"))
        whole = path.read_bytes()
        for number in range(60):
            damaged = bytearray(whole)
            start = chance.randrange(len(whole))
            if number % 3 == 0:
                del damaged[start:]
            elif number % 3 == 1:
                damaged[start : start + 100] = bytes(len(damaged[start : start + 100]))
            else:
                damaged[start] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            with suppress(StateUnreadable), storage_errors(table.metadata.location):
                named += 1
                read_rows(table, file, ["id"]) if file is rows else read_deletes(table, [file])
                named -= 1
        path.write_bytes(whole)
    assert named > 40


@pytest.mark.parametrize(
    ("dead", "lives"), [([], True), ([0, 1], True), ([0, 1, 1], True), ([0, 1, 2], False), ([0, 0, 1, 2], False)]
)
def test_a_file_without_living_rows_is_told_exactly(table: TableFiles, dead: list[int], lives: bool) -> None:  # noqa: FBT001
    """A position that two files of deletes have is one dead row."""
    [file] = write_rows(table, pa.table({"id": [1, 2, 3]}))
    assert has_living_rows(table, file, {file.file_path: np.array(dead, np.int64)}) is lives


def test_a_dead_position_behind_the_end_of_a_file_is_refused(table: TableFiles) -> None:
    """It would be counted as one of the rows, of which another one lives."""
    [file] = write_rows(table, pa.table({"id": [1, 2, 3]}))
    with pytest.raises(StateUnreadable, match="it has 3 rows, and row 7 is deleted"):
        has_living_rows(table, file, {file.file_path: np.array([0, 1, 7])})


def test_an_audit_reads_a_small_file_once(table: TableFiles) -> None:
    """What it then says is what the file had, and equals what other readers of the file say."""
    [file] = write_rows(table, pa.table({"id": [5, 6, 7]}))
    small = SmallFiles(table)
    assert small.count(file) == rows_in_footer(table, file) == 3
    whole = read_rows(table, file, ["id"])
    Path(file.file_path.removeprefix("file://")).unlink()
    assert small.rows(file, ["id"]).equals(whole)
    assert small.rows(file, ["id"], 2)["id"].to_pylist() == [5, 6]
    with pytest.raises(FileNotFoundError):
        SmallFiles(table).count(file)


def test_an_audit_opens_large_files_anew(table: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are more small files kept than there is room for: memory has a limit."""
    files = [write_rows(table, pa.table({"id": [number]}))[0] for number in range(2)]
    paths = [Path(file.file_path.removeprefix("file://")) for file in files]
    size = files[0].file_size_in_bytes
    for limit, most, kept in (("WHOLE_BYTES", size - 1, 0), ("_KEPT_BYTES", size, 1)):
        with monkeypatch.context() as patch:
            patch.setattr(data_files, limit, most)
            small = SmallFiles(table)
            assert [small.count(file) for file in files] == [1, 1]
            assert [small.rows(file, ["id"])["id"].to_pylist() for file in files] == [[0], [1]]
            hidden = [path.rename(path.with_suffix(".hidden")) for path in paths]
            assert [small.count(file) for file in files[:kept]] == [1] * kept
            for file in files[kept:]:
                with pytest.raises(FileNotFoundError):
                    small.count(file)
            for path, hiding in zip(paths, hidden, strict=True):
                hiding.rename(path)


def test_a_small_file_that_is_damaged_is_named(table: TableFiles) -> None:
    """In its footer, and in its rows."""
    for damaged in (slice(-4, None), slice(4, 12)):
        [file] = write_rows(table, pa.table({"id": [5, 6, 7]}))
        path = Path(file.file_path.removeprefix("file://"))
        contents = bytearray(path.read_bytes())
        contents[damaged] = b"\xff" * len(contents[damaged])
        path.write_bytes(contents)
        small = SmallFiles(table)
        with pytest.raises(StateUnreadable, match="parquet"):
            small.count(file), small.rows(file, ["id"])
