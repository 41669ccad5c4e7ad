"""Data files that others wrote: whatever their order, names and types are, the table's values come out."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakeingest.errors import ForeignWrite, StateUnreadable
from lakeingest.lake.iceberg.files.data_files import drop_deleted, read_rows, write_rows
from lakeingest.lake.iceberg.storage.metadata import TableFiles

LATE = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # nanoseconds since 1970 end in 2262
COLUMNS = {
    "id": (LongType(), [1, 2]),
    "v": (StringType(), ["a", None]),
    "n": (DecimalType(20, 2), [Decimal("1.50"), Decimal("-3.25")]),
    "at": (TimestampType(), [LATE, dt.datetime(1000, 1, 1)]),
    "seen": (TimestamptzType(), [LATE.replace(tzinfo=dt.UTC), None]),
    "day": (DateType(), [dt.date(9999, 12, 31), None]),
    "raw": (BinaryType(), [b"\xff\x00", b""]),
    "few": (IntegerType(), [-7, None]),
    "real": (DoubleType(), [0.5, None]),
    "places": (ListType(100, FloatType(), element_required=True), [[1.0, 2.0], None]),
}
SCHEMA = Schema(
    *(
        NestedField(number, name, kind, required=name == "id")
        for number, (name, (kind, _)) in enumerate(COLUMNS.items(), start=1)
    )
)
ROWS = {name: values for name, (_, values) in COLUMNS.items()}

Write = Callable[..., DataFile]


@pytest.fixture
def table(tmp_path: Path) -> TableFiles:
    """The files of a table in its own catalog."""
    catalog = SqlCatalog("others", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("of")
    return TableFiles.of(catalog.create_table(("of", "others"), SCHEMA))


@pytest.fixture
def write(tmp_path: Path, table: TableFiles) -> Write:
    """Call it for a file with the table's rows as someone else writes them: some columns of other Arrow types."""

    def other(
        types: dict[str, pa.DataType], leave: tuple[str, ...] = (), *, ids: bool = True, **options: Any
    ) -> DataFile:
        fields, columns = [], []
        for field in reversed(table.metadata.schema().fields):
            if field.name in leave:
                continue
            kind = types.get(field.name, table.metadata.schema().as_arrow().field(field.name).type)
            rows = ["7", None] if kind == pa.string() and field.name == "few" else ROWS[field.name]
            values = pa.array(rows, kind.value_type if pa.types.is_dictionary(kind) else kind)
            columns.append(values.dictionary_encode() if pa.types.is_dictionary(kind) else values)
            answer = {"PARQUET:field_id": str(field.field_id)} if ids else None
            fields.append(pa.field(f"their_{field.name}", kind, metadata=answer))
        path = tmp_path / "others.parquet"
        pq.write_table(pa.table(columns, schema=pa.schema(fields)), path, **options)
        return named(path)

    return other


def named(path: Path, kind: FileFormat = FileFormat.PARQUET) -> DataFile:
    """An entry of a manifest for a file."""
    return DataFile.from_args(content=DataFileContent.DATA, file_path=path.as_uri(), file_format=kind)


@pytest.mark.parametrize(
    ("types", "options"),
    [
        ({"v": pa.string(), "raw": pa.binary()}, {}),
        ({"v": pa.dictionary(pa.int32(), pa.string())}, {}),
        ({"v": pa.string_view(), "raw": pa.binary_view()}, {}),
        ({"v": pa.binary()}, {"store_schema": False}),
        ({"n": pa.decimal128(5, 2)}, {"store_decimal_as_integer": True}),
        ({"n": pa.decimal256(40, 2)}, {}),
        ({}, {"use_deprecated_int96_timestamps": True, "store_schema": False}),
        ({"seen": pa.timestamp("us")}, {}),
        ({"id": pa.int32(), "real": pa.float32()}, {}),
        ({"few": pa.int8()}, {}),
        ({"places": pa.list_(pa.field("element", pa.float32()))}, {"store_schema": False}),
        ({}, {"version": "1.0", "compression": "gzip", "row_group_size": 1}),
    ],
)
def test_columns_are_found_by_their_field_ids(
    table: TableFiles, write: Write, types: dict[str, pa.DataType], options: dict[str, Any]
) -> None:
    """In another order, under other names, of other types: they come as the table has them, beside files of ours."""
    [ours] = write_rows(table, pa.table(ROWS, schema=table.metadata.schema().as_arrow()))
    names = list(COLUMNS)
    theirs = read_rows(table, write(types, **options), names)
    assert theirs.to_pydict() == ROWS
    assert pa.concat_tables([read_rows(table, ours, names), theirs]).num_rows == 4
    assert read_rows(table, ours, ["v", "id"]).column_names == ["v", "id"]


def test_a_column_that_a_file_lacks_is_null(table: TableFiles, write: Write) -> None:
    """It may have been rewritten by someone who left out what had no value."""
    found = read_rows(table, write({}, leave=("v", "n")), ["v", "id", "n"])
    assert found.to_pydict() == {"v": [None, None], "id": [1, 2], "n": [None, None]}


@pytest.mark.parametrize(
    ("leave", "types", "ids", "finding"),
    [
        (("id",), {}, True, "lacks the required column id"),
        ((), {}, False, "no field ids"),
        ((), {"few": pa.string()}, True, "has string for int32"),
    ],
)
def test_a_file_that_does_not_hold_the_table_is_named(
    table: TableFiles,
    write: Write,
    leave: tuple[str, ...],
    types: dict[str, pa.DataType],
    *,
    ids: bool,
    finding: str,
) -> None:
    """No value of it is guessed."""
    file = write(types, leave, ids=ids)
    with pytest.raises(StateUnreadable, match=rf"others\.parquet.*{finding}"):
        read_rows(table, file, ["id", "few"])


def test_a_value_that_the_type_cannot_hold_is_named(table: TableFiles, tmp_path: Path) -> None:
    """Nothing is rounded: a time between two microseconds, which no value of ours is."""
    at = pa.array([1], pa.timestamp("ns"))
    answer = pa.schema([pa.field("at", at.type, metadata={"PARQUET:field_id": "4"})])
    pq.write_table(pa.table([at], schema=answer), tmp_path / "others.parquet")
    with pytest.raises(StateUnreadable, match=r"others\.parquet.*lose data"):
        read_rows(table, named(tmp_path / "others.parquet"), ["at"])


def test_a_file_of_another_format_is_named(table: TableFiles, tmp_path: Path) -> None:
    """Someone may have set the table's format and compacted it."""
    with pytest.raises(ForeignWrite, match=r"as ORC; set write\.format\.default"):
        read_rows(table, named(tmp_path / "others.orc", FileFormat.ORC), ["id"])


def test_a_deleted_row_that_a_file_does_not_have_is_named(tmp_path: Path) -> None:
    """Files of deletes belong to other rows then."""
    rows, file = pa.table({"id": [1, 2]}), named(tmp_path / "data.parquet")
    assert drop_deleted(rows, file, {file.file_path: np.array([0])}).to_pydict() == {"id": [2]}
    with pytest.raises(StateUnreadable, match=r"data\.parquet.*2 rows"):
        drop_deleted(rows, file, {file.file_path: np.array([2])})
