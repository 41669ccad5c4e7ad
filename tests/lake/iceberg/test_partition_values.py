"""The partition of each row is that of Iceberg's specification, by PyIceberg's transforms of one value."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakeingest.core.tables.partitioning import parse_all
from lakeingest.lake.iceberg.files.data_files import write_deletes, write_rows
from lakeingest.lake.iceberg.files.partitions import divided, new_spec
from lakeingest.lake.iceberg.storage.metadata import TableFiles

MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
NEAR_1970 = st.integers(-(10**7), 10**7).map(lambda micros: datetime(1970, 1, 1) + timedelta(microseconds=micros))
DECIMALS = st.integers(-(10**9), 10**9).map(lambda number: Decimal(number).scaleb(-2))
TYPES: dict[str, tuple[IcebergType, st.SearchStrategy[Any], list[str]]] = {
    "int": (IntegerType(), st.integers(-(2**31), 2**31 - 1), ["bucket(7, c)", "truncate(10, c)", "c"]),
    "long": (LongType(), st.integers(-(2**63), 2**63 - 1), ["bucket(16, c)", "truncate(1000, c)", "c"]),
    "decimal": (DecimalType(12, 2), DECIMALS, ["bucket(5, c)", "truncate(50, c)", "c"]),
    "date": (
        DateType(),
        st.dates(date(1, 1, 1), date(9999, 12, 31)),
        ["year(c)", "month(c)", "day(c)", "bucket(4, c)", "c"],
    ),
    "datetime": (
        TimestampType(),
        MOMENTS | NEAR_1970,
        ["year(c)", "month(c)", "day(c)", "hour(c)", "bucket(4, c)", "c"],
    ),
    "timestamp": (
        TimestamptzType(),
        (MOMENTS | NEAR_1970).map(lambda moment: moment.replace(tzinfo=UTC)),
        ["year(c)", "month(c)", "day(c)", "hour(c)", "bucket(4, c)", "c"],
    ),
    "string": (StringType(), st.text(max_size=6), ["bucket(4, c)", "truncate(2, c)", "c"]),
    "binary": (BinaryType(), st.binary(max_size=6), ["bucket(4, c)", "truncate(2, c)", "c"]),
    "boolean": (BooleanType(), st.booleans(), ["c"]),
}
CASES = [(kind, text) for kind, (_, _, texts) in TYPES.items() for text in texts]


def metadata_of(texts: list[str], **types: IcebergType) -> Any:
    """The metadata of a table with these columns, divided so."""
    fields = [NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(types.items(), 1)]
    schema = Schema(*fields)
    spec = new_spec(schema, parse_all(texts))
    return new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///nowhere", {})


@pytest.mark.parametrize(("kind", "text"), CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_each_row_is_in_its_partition(kind: str, text: str, data: st.DataObject) -> None:
    """Of all types, with NULLs and times before 1970; the rows of a partition keep their order."""
    type_, values, _ = TYPES[kind]
    metadata = metadata_of([text], c=type_)
    [field], schema = metadata.spec().fields, metadata.schema()
    drawn = data.draw(st.lists(st.none() | values, max_size=30))
    rows = pa.table({"c": pa.array(drawn, schema.as_arrow().field("c").type), "n": range(len(drawn))})
    if len(drawn) > 2:
        rows = pa.concat_tables([rows.slice(0, 2), rows.slice(2)])  # in two chunks
    transform = field.transform.transform(type_)
    wanted: dict[Any, list[int]] = {}
    for number, value in enumerate(rows["c"].to_pylist()):
        wanted.setdefault(partition_record_value(field, transform(value), schema), []).append(number)
    parts = [(partition[0], part["n"].to_pylist()) for partition, part in divided(metadata, rows) if part.num_rows]
    assert len(parts) == len(wanted)
    assert dict(parts) == wanted


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.dates(date(1969, 12, 30), date(1970, 1, 2)))))
def test_several_fields_make_a_partition_together(drawn: list[tuple[int | None, date | None]]) -> None:
    """Each combination is a partition of its own."""
    metadata = metadata_of(["a", "day(d)"], a=IntegerType(), d=DateType())
    columns: list[Any] = list(zip(*drawn, strict=True)) if drawn else [[], []]
    rows = pa.table({"a": pa.array(columns[0], pa.int32()), "d": pa.array(columns[1], pa.date32())})
    found: dict[Any, list[Any]] = {}
    for partition, part in divided(metadata, rows):
        found[tuple(partition[index] for index in range(len(partition)))] = part.to_pylist()
    if not drawn:
        assert list(found.values()) == [[]]
        return
    wanted: dict[Any, list[Any]] = {}
    for a, d in drawn:
        wanted.setdefault((a, None if d is None else (d - date(1970, 1, 1)).days), []).append({"a": a, "d": d})
    assert found == wanted


def test_known_values_of_the_specification() -> None:
    """Its appendix B, "32-bit Hash Requirements", and its table of transforms."""
    assert hashed("c", IntegerType(), 34) == 2017239379 % 1000
    assert hashed("c", LongType(), 34) == 2017239379 % 1000
    assert hashed("c", DecimalType(9, 2), Decimal("14.20")) == (-500754589 & 0x7FFFFFFF) % 1000
    assert hashed("c", DateType(), date(2017, 11, 16)) == (-653330422 & 0x7FFFFFFF) % 1000
    assert hashed("c", StringType(), "iceberg") == 1210000089 % 1000
    assert hashed("c", BinaryType(), b"\x00\x01\x02\x03") == (-188683207 & 0x7FFFFFFF) % 1000
    early = datetime(1969, 12, 31, 23, 59, 59, 999999)
    for text, wanted in (("year(c)", -1), ("month(c)", -1), ("day(c)", -1), ("hour(c)", -1)):
        assert value_of(text, TimestampType(), early) == wanted
    assert value_of("truncate(10, c)", IntegerType(), -1) == -10
    assert value_of("truncate(50, c)", DecimalType(9, 2), Decimal("10.65")) == Decimal("10.50")
    assert value_of("truncate(3, c)", StringType(), "🎉iceberg") == "🎉ic"


def hashed(name: str, kind: IcebergType, value: object) -> object:
    """The value's bucket of a thousand."""
    return value_of(f"bucket(1000, {name})", kind, value)


def value_of(text: str, kind: IcebergType, value: object) -> object:
    """The partition of one row."""
    metadata = metadata_of([text], c=kind)
    rows = pa.table({"c": pa.array([value], metadata.schema().as_arrow().field("c").type)})
    [(partition, _)] = divided(metadata, rows)
    return partition[0]


@pytest.fixture
def files_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TableFiles]:
    """Call it with a schema and partitions for a table of a catalog of its own."""

    def make(schema: Schema, *texts: str) -> TableFiles:
        folder = tmp_path_factory.mktemp("catalog")
        catalog = SqlCatalog("c", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
        catalog.create_namespace("n")
        spec = new_spec(schema, parse_all(texts)) if texts else PartitionSpec()
        return TableFiles.of(catalog.create_table(("n", "t"), schema, partition_spec=spec))

    return make


def test_a_value_that_no_folder_can_have_is_a_partition(files_of: Callable[..., TableFiles]) -> None:
    """Names of files have no values: these may be long, secret, or full of slashes."""
    values = ["../../etc", "x" * 5_000, "", "a/b=c%2F", "😀", None]
    files = files_of(Schema(NestedField(1, "v", StringType())), "v")
    written = write_rows(files, pa.table({"v": pa.array(values)}))
    assert {file.partition[0] for file in written} == set(values)
    assert all(file.file_path.startswith(f"{files.location}/data/") for file in written)
    assert all(file.file_path.count("/") == f"{files.location}/data/x".count("/") for file in written)


def test_deletes_of_each_partition_are_a_file(files_of: Callable[..., TableFiles]) -> None:
    """Readers apply a file of deletes only to data files of its partition."""
    files = files_of(Schema(NestedField(1, "id", IntegerType())), "bucket(3, id)")
    rows = write_rows(files, pa.table({"id": pa.array(range(100), pa.int32())}))
    assert len(rows) == 3
    deletes = write_deletes(files, {file.file_path: np.array([0]) for file in rows[:2]}, rows)
    assert [(file.spec_id, file.partition) for file in deletes] == [(one.spec_id, one.partition) for one in rows[:2]]
    with pytest.raises(KeyError, match="unknown"):  # never a guess
        write_deletes(files, {"unknown": np.array([0])}, rows)


def test_names_of_fields_are_those_of_spark_and_unlike_columns() -> None:
    """Iceberg gives a name to one thing only."""
    columns = ["id", "d", "d_day", "D_DAY_", "id_bucket_4"]
    schema = Schema(*(NestedField(number, name, DateType()) for number, name in enumerate(columns, 1)))
    assert [field.name for field in new_spec(schema, parse_all(["day(d)", "bucket(4, id)", "d_day"])).fields] == [
        "d_day__",
        "id_bucket_4_",
        "d_day",
    ]
    plain = Schema(NestedField(1, "a b", StringType()), NestedField(2, "d", DateType()))
    fields = new_spec(plain, parse_all(["truncate(2, a b)", "year(d)"])).fields
    assert [field.name for field in fields] == ["a b_trunc_2", "d_year"]
