"""Small files of random columns, values and properties are those of PyIceberg, and no value is out of their bounds."""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakeingest.lake.iceberg.files import data_files
from lakeingest.lake.iceberg.files.bounds import truncated_lengths
from lakeingest.lake.iceberg.files.data_files import bounds_of, read_rows, write_rows
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from tests.lake.iceberg.test_small_files import contents

_PATH = 1  # the index of a file's path in a DataFile
_LETTERS = ["a", "z", "\0", "ß", "\ud7ff", "\ue000", "\U0010ffff", "😀", " ", "."]
_EDGES = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.5]
Draw = Callable[[random.Random], Any]


def _text(chance: random.Random) -> str:
    """Often of more than 16 characters, sometimes of more than Parquet keeps in statistics."""
    return "".join(chance.choices(_LETTERS, k=chance.choice([0, 1, 15, 16, 17, 40, 40, 5_000])))


def _bytes(chance: random.Random) -> bytes:
    """Often of 255 alone, which has no greater value of the same length."""
    return bytes(chance.choices([0, 1, 254, 255, 255, 255], k=chance.choice([0, 1, 16, 17, 40, 5_000])))


def _decimal(digits: int, scale: int) -> Draw:
    most = 10**digits - 1
    return lambda chance: Decimal(chance.choice([0, 1, -1, most, -most, chance.randint(-most, most)])).scaleb(-scale)


TYPES: list[tuple[IcebergType, Draw]] = [
    (BooleanType(), lambda chance: chance.random() < 0.5),
    (IntegerType(), lambda chance: chance.choice([-(2**31), 2**31 - 1, chance.randint(-9, 9)])),
    (LongType(), lambda chance: chance.choice([-(2**63), 2**63 - 1, chance.randint(-9, 9)])),
    (FloatType(), lambda chance: chance.choice(_EDGES)),
    (DoubleType(), lambda chance: chance.choice(_EDGES)),
    (DecimalType(9, 2), _decimal(9, 2)),
    (DecimalType(18, 18), _decimal(18, 18)),
    (DecimalType(20, 0), lambda chance: Decimal(chance.choice([0, 2**64 - 1, chance.randint(0, 9)]))),
    (DecimalType(38, 30), lambda chance: Decimal(chance.choice([0, 1, -1])).scaleb(-chance.randint(0, 30))),
    (DateType(), lambda chance: date.fromordinal(chance.choice([1, 3652059, chance.randint(1, 3652059)]))),
    (TimeType(), lambda chance: time(chance.randint(0, 23), 59, 59, 999_999)),
    (TimestampType(), lambda chance: datetime(chance.choice([1, 1969, 9999]), 12, 31, 23, 59, 59, 999_999)),
    (TimestamptzType(), lambda chance: datetime(chance.choice([1, 1969, 9999]), 12, 31, 23, 59, 59, 1, UTC)),
    (StringType(), _text),
    (BinaryType(), _bytes),
    (FixedType(3), lambda chance: bytes(chance.choices([0, 255], k=3))),
    (FixedType(20), lambda chance: bytes(chance.choices([0, 255, 255], k=20))),
    (UUIDType(), lambda chance: UUID(int=chance.choice([0, 2**128 - 1, chance.getrandbits(128)])).bytes),
]
PROPERTIES = [
    {},
    {"write.metadata.metrics.default": "full"},
    {"write.metadata.metrics.default": "none"},
    {"write.metadata.metrics.default": "counts"},
    {"write.metadata.metrics.default": "truncate(3)"},
    {"write.parquet.compression-codec": "uncompressed"},
    {"write.parquet.row-group-limit": "10", "write.parquet.page-size-bytes": "64"},
    {"write.parquet.dict-size-bytes": "32", "write.parquet.page-row-limit": "5"},
    {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"},
    {"write.data.path": "{folder}/elsewhere"},
]
NAMES = ["id", "a.b", "1st", 'ß☃ `q` "d"', "UPPER", "upper", "x" * 200, "_", " "]


def drawn(folder: Path, chance: random.Random) -> tuple[TableFiles, pa.Table]:
    """A new table of some random columns, and rows for it."""
    chosen = chance.sample(TYPES, chance.randint(1, 6))
    count = chance.choice([1, 2, 9, 60])
    names = chance.sample(NAMES, len(chosen))
    fields, columns = [], []
    for number, (name, (kind, draw)) in enumerate(zip(names, chosen, strict=True), start=1):
        nulls = chance.choice([0, 0, 0.3, 1])
        fields.append(NestedField(number * 3, name, kind, required=not nulls))
        columns.append([None if chance.random() < nulls else draw(chance) for _ in range(count)])
    if chance.random() < 0.3:  # few distinct values: a dictionary
        columns = [[values[0]] * count for values in columns]
    schema = Schema(*fields)
    properties = {name: text.format(folder=folder.as_uri()) for name, text in chance.choice(PROPERTIES).items()}
    if properties and chance.random() < 0.5:
        properties |= {f"write.metadata.metrics.column.{names[0]}": chance.choice(["full", "none", "truncate(1)"])}
    catalog = SqlCatalog("small", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
    catalog.create_namespace_if_not_exists("of")
    name = f"rows{chance.getrandbits(60)}"
    table = TableFiles.of(catalog.create_table(("of", name), schema, properties=properties))
    arrow = table.metadata.schema().as_arrow()
    types = [pa.binary(16) if isinstance(kind, UUIDType) else None for kind, _ in chosen]
    arrays = [pa.array(values, type_ or field.type) for values, type_, field in zip(columns, types, arrow, strict=True)]
    return table, pa.table([array.cast(field.type) for array, field in zip(arrays, arrow, strict=True)], schema=arrow)


def assert_written_alike(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Our file and that of PyIceberg are the same, hold the rows, and their bounds are around all values."""
    table, rows = drawn(folder, random.Random(seed))
    [ours] = write_rows(table, rows)
    with monkeypatch.context() as patch:
        patch.setattr(data_files, "is_small", lambda *_: False)
        [theirs] = write_rows(table, rows)
    assert contents(ours) == contents(theirs), seed
    fields = [number for number in range(len(ours)) if number != _PATH]
    assert [ours[number] for number in fields] == [theirs[number] for number in fields], seed
    assert Path(ours.file_path).parent.parts[:5] == Path(theirs.file_path).parent.parts[:5]
    assert repr(read_rows(table, ours, rows.schema.names).to_pylist()) == repr(rows.to_pylist()), seed
    lengths = truncated_lengths(table.metadata)
    for field in table.metadata.schema().fields:
        least = (ours.lower_bounds or {}).get(field.field_id)
        greatest = (ours.upper_bounds or {}).get(field.field_id)
        values = [value for value in rows[field.name].to_pylist() if value is not None and value == value]  # noqa: PLR0124
        if isinstance(field.field_type, (StringType, BinaryType, FixedType)) and values:
            encoded = sorted(value.encode() if isinstance(value, str) else value for value in values)
            assert least is None or least <= encoded[0], seed
            assert greatest is None or greatest >= encoded[-1], seed
            if field.field_id in lengths and isinstance(field.field_type, StringType):
                assert least is None or len(least.decode()) <= lengths[field.field_id]
        elif isinstance(field.field_type, (IntegerType, LongType, DecimalType)) and values and least is not None:
            assert bounds_of(ours, field) == (min(values), max(values)), seed
            assert (least, greatest) == tuple(to_bytes(field.field_type, end) for end in (min(values), max(values)))


def test_small_files_of_random_columns_are_those_of_pyiceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all primitive types, odd names, properties for statistics, pages and paths."""
    for seed in range(40):
        assert_written_alike(tmp_path, monkeypatch, seed)


@pytest.mark.long("many more of the same")
def test_many_small_files_of_random_columns_are_those_of_pyiceberg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds that the quick test does not have."""
    for seed in range(40, 1_500):
        assert_written_alike(tmp_path, monkeypatch, seed)
