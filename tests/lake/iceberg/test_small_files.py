"""A file of a few rows is the one that PyIceberg would write: to the byte, with the same statistics."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile

from lakeingest.lake.iceberg.files import data_files
from lakeingest.lake.iceberg.files.data_files import write_rows
from lakeingest.lake.iceberg.files.small_files import is_small
from lakeingest.lake.iceberg.storage.metadata import TableFiles

_PATH = 1  # the index of a file's path in a DataFile
_COLUMNS = {
    "id": pa.array(range(300), pa.int64()),
    "a.b ☃ `c`": pa.array(["text " * (number % 9) for number in range(300)], pa.large_string()),
    "all null": pa.array([None] * 300, pa.int32()),
    "Decimal": pa.array([Decimal(number) / 100 for number in range(300)], pa.decimal128(38, 2)),
    "nan": pa.array([float("nan") if number % 7 == 0 else number / 3 for number in range(300)], pa.float64()),
    "single": pa.array([1.5] * 300, pa.float32()),
    "bytes": pa.array([b"\xff" * (number % 40) for number in range(300)], pa.large_binary()),
    "fixed": pa.array([b"four"] * 300, pa.binary(4)),
    "time": pa.array([datetime(2026, 12, 1, 2, 3, 4, 567_891)] * 300, pa.timestamp("us")),
    "utc": pa.array([datetime(1, 1, 1)] * 300, pa.timestamp("us", "UTC")),
    "day": pa.array([date(9999, 12, 31)] * 300),
    "true": pa.array([number % 2 == 0 for number in range(300)]),
}


def made(folder: Path, rows: pa.Table, properties: dict[str, str] | None = None) -> TableFiles:
    """The files of a new table with the columns of these rows."""
    catalog = SqlCatalog("small", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
    catalog.create_namespace("of")
    return TableFiles.of(catalog.create_table(("of", "rows"), rows.schema, properties=properties or {}))


def contents(file: DataFile) -> bytes:
    """The bytes of the file."""
    return Path(file.file_path.removeprefix("file://")).read_bytes()


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.id": "full"},
        {"write.metadata.metrics.default": "none", "write.parquet.compression-codec": "snappy"},
        {"write.object-storage.enabled": "true", "write.parquet.row-group-limit": "70"},
    ],
)
@pytest.mark.parametrize("count", [1, 300])
def test_a_small_file_is_the_one_of_pyiceberg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], count: int
) -> None:
    """The same bytes, and a DataFile with the same fields but for the path, for all types and odd names."""
    rows = pa.table(_COLUMNS).slice(100, count)
    table = made(tmp_path, rows, properties)
    [ours] = write_rows(table, rows)
    monkeypatch.setattr(data_files, "is_small", lambda *_: False)
    [theirs] = write_rows(table, rows)
    assert contents(ours) == contents(theirs)
    fields = [number for number in range(len(ours)) if number != _PATH]
    assert [ours[number] for number in fields] == [theirs[number] for number in fields]
    assert ours.spec_id == theirs.spec_id
    assert Path(ours.file_path).suffix == Path(theirs.file_path).suffix


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("long", ["a" * 5_000, "z" * 5_000])
@pytest.mark.parametrize("group_rows", ["10", "100"])
def test_a_file_with_a_long_value_is_found_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: str, group_rows: str, *, is_small: bool
) -> None:
    """Parquet's statistics have no value of more than 4 KB. A row group without them makes the bounds unknown."""
    monkeypatch.setattr(data_files, "is_small", lambda *_: is_small)
    texts = ["m"] * 10 + [long] + ["m"] * 9 + [None] * 10  # the last row group, of NULLs, needs no bounds
    rows = pa.table({"id": range(30), "v": texts})
    catalog = SqlCatalog("small", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("of")
    loaded = catalog.create_table(("of", "rows"), rows.schema, properties={"write.parquet.row-group-limit": group_rows})
    [file] = write_rows(TableFiles.of(loaded), rows)
    with loaded.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(file)
    assert loaded.scan(f"v = '{long}'").to_arrow()["id"].to_pylist() == [10]
    assert 1 in file.lower_bounds  # of all other columns, the bounds are known


def test_row_groups_of_null_alone_leave_the_bounds_of_others(tmp_path: Path) -> None:
    """They have no statistics of values, either."""
    rows = pa.table({"id": range(30), "v": [None] * 10 + ["b"] * 10 + [None] * 9 + ["c"]})
    [file] = write_rows(made(tmp_path, rows, {"write.parquet.row-group-limit": "10"}), rows)
    assert (file.lower_bounds[2], file.upper_bounds[2]) == (b"b", b"c")


@pytest.mark.parametrize(
    ("rows", "properties"),
    [
        (pa.table({"id": range(200_000)}), {}),  # threads are worth their start
        (pa.table({"id": range(300)}), {"write.target-file-size-bytes": "1000"}),  # several files
        (pa.table({"id": range(300)}), {"write.format.default": "orc"}),
        (pa.table({"parts": [[1], [2]]}), {}),  # its names and field ids are not only those of its columns
    ],
)
def test_pyiceberg_itself_writes_all_others(tmp_path: Path, rows: pa.Table, properties: dict[str, str]) -> None:
    """Large files, several files, other formats, and columns with parts."""
    assert not is_small(made(tmp_path, rows, properties).metadata, rows)


def test_a_table_that_gets_a_column_writes_it_to_the_next_file(tmp_path: Path) -> None:
    """What follows from the columns is kept, and is not taken for that of other columns."""
    rows = pa.table({"id": [1, 2]})
    catalog = SqlCatalog("small", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("of")
    loaded = catalog.create_table(("of", "rows"), rows.schema)
    [first] = write_rows(TableFiles.of(loaded), rows)
    with loaded.update_schema() as update:
        update.rename_column("id", "key")
        update.add_column("b", loaded.schema().find_type("id"))
    [second] = write_rows(TableFiles.of(loaded), pa.table({"key": [3], "b": [7]}))
    assert (set(first.lower_bounds), set(second.lower_bounds)) == ({1}, {1, 2})
    [theirs] = _dataframe_to_data_files(
        loaded.metadata, pa.table({"key": [3], "b": [7]}).cast(loaded.schema().as_arrow()), loaded.io
    )
    assert contents(second) == contents(theirs)
