"""Deletes by the values of columns, as Flink writes them: the positions that they mean, beside a slow oracle."""

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from lakeingest.lake.iceberg.files.data_files import Positions, read_rows, write_deletes, write_rows
from lakeingest.lake.iceberg.files.live_rows import entries_of
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges, RowDelta
from lakeingest.lake.iceberg.foreign.foreign_deletes import ForeignDeletes, unreadable_deletes
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.history import MAIN, tip

FIELDS = (
    NestedField(1, "id", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "n", DoubleType()),
    NestedField(4, "part", IntegerType()),
)
Row = tuple[Any, ...]
SEEDS = range(12)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog of the test's own."""
    found = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    found.create_namespace("db")
    yield found
    found.close()


def made(catalog: SqlCatalog, fields: Sequence[NestedField] = FIELDS, spec: PartitionSpec | None = None) -> Table:
    """An empty table of another tool."""
    return catalog.create_table(("db", "t"), Schema(*fields), partition_spec=spec or PartitionSpec())


def committed(table: Table, *files: DataFile) -> None:
    """One commit of the other tool."""
    with table.transaction() as transaction:
        RowDelta(transaction, table.io, MAIN, {}, FileChanges(files)).commit()


def data_files(table: Table, rows: Sequence[Row]) -> list[DataFile]:
    """Files of rows."""
    names = [field.name for field in table.schema().fields]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    schema = table.schema().as_arrow()
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return write_rows(TableFiles.of(table), pa.table(arrays, schema=schema))


def equality_delete(table: Table, names: Sequence[str], values: Sequence[Row], *others: str) -> DataFile:
    """A file of deletes by these columns. It may also have `others`, which do not count, as Flink's whole rows."""
    schema = table.schema()
    fields = [schema.find_field(name) for name in (*others, *names)]
    ids = [field.field_id for field in fields]
    columns = [*([None] * len(values) for _ in others), *zip(*values, strict=True)]
    types = Schema(*(field.model_copy(update={"required": False}) for field in fields)).as_arrow()
    rows = pa.table([pa.array(column, kind.type) for column, kind in zip(columns, types, strict=True)], schema=types)
    path = Path(table.location().removeprefix("file://")) / f"{random.getrandbits(60):x}-eq.parquet"
    pq.write_table(rows, path)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(values),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=ids[len(others) :],
        key_metadata=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return file


def found(table: Table) -> tuple[ForeignDeletes, Positions]:
    """What is read of the table, and its dead rows."""
    table.refresh()
    rows, deletes = entries_of(table, tip(table, MAIN).snapshot_id)
    all_deletes = ForeignDeletes(TableFiles.of(table), table.specs(), rows, deletes)
    return all_deletes, all_deletes.dead(["id"])


def living(deletes: ForeignDeletes, dead: Positions) -> list[Row]:
    """The rows that are left, sorted by their texts."""
    names = [field.name for field in deletes.table.metadata.schema().fields]
    left = []
    for entry in deletes.rows:
        rows = read_rows(deletes.table, entry.data_file, names).to_pylist()
        gone = set(dead.get(entry.data_file.file_path, np.zeros(0)).tolist())
        left += [tuple(row.values()) for number, row in enumerate(rows) if number not in gone]
    return sorted(left, key=repr)


def bits(value: object) -> object:
    """A value that equals itself, also if it is no number."""
    return struct.pack("<d", value) if isinstance(value, float) else value


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.long("more of the same histories", only=tuple(map(str, SEEDS[4:])))
def test_rows_are_deleted_as_the_specification_says(catalog: SqlCatalog, seed: int) -> None:
    """A delete counts for rows of earlier commits, and not for its own; NULL equals NULL."""
    chance = random.Random(seed)
    table, oracle = made(catalog), list[tuple[int, Row]]()
    removed = list[tuple[int, tuple[int, ...], Row]]()

    def draw() -> Row:
        number = chance.choice([None, 0.0, -0.0, 1.5, float("nan")])
        return chance.randint(1, 9), chance.choice([None, "", "a", "ä" * 20]), number, chance.randint(0, 1)

    for commit in range(1, 8):
        rows = [draw() for _ in range(chance.randint(1, 6))]
        files = data_files(table, rows)
        for _ in range(chance.randint(0, 2)):
            places = tuple(sorted(chance.sample(range(3), chance.randint(1, 3))))
            names, others = [FIELDS[place].name for place in places], chance.choice([(), ("part",)])
            values = [tuple(draw()[place] for place in places) for _ in range(chance.randint(1, 3))]
            files.append(equality_delete(table, names, values, *others))
            removed += [(commit, places, value) for value in values]
        committed(table, *files)
        oracle += [(commit, row) for row in rows]

    def is_dead(commit: int, row: Row) -> bool:
        return any(
            commit < later and [bits(row[place]) for place in places] == list(map(bits, value))
            for later, places, value in removed
        )

    deletes, dead = found(table)
    expected = sorted((row for commit, row in oracle if not is_dead(commit, row)), key=repr)
    assert repr(living(deletes, dead)) == repr(expected)
    # a commit of ours has positions alone, and the same rows
    committed_by_us(table, deletes, dead)
    again, still_dead = found(table)
    assert all(entry.data_file.content is DataFileContent.POSITION_DELETES for entry in again.deletes)
    assert repr(living(again, still_dead)) == repr(expected)
    assert again.changes(still_dead) == NO_FILES


def committed_by_us(table: Table, deletes: ForeignDeletes, dead: Positions) -> None:
    """The commit with which a table is taken over, as far as it is about files."""
    with table.transaction() as transaction:
        RowDelta(transaction, table.io, MAIN, {}, deletes.changes(dead)).commit()


TYPES: dict[str, tuple[IcebergType, list[object]]] = {
    "boolean": (BooleanType(), [True, False, None]),
    "float": (FloatType(), [0.0, -0.0, float("nan"), None]),
    "long": (LongType(), [0, 2**40, None]),
    "decimal": (DecimalType(20, 2), [0, 3, None]),
    "date": (DateType(), [0, 10_000, None]),
    "timestamp": (TimestampType(), [0, 10**15, None]),
    "bytes": (BinaryType(), [b"", b"\0", None]),
    "text": (StringType(), ["", "a", None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_each_type_are_found(catalog: SqlCatalog, name: str) -> None:
    """Also the value that stands for NULL beside NULL itself."""
    kind, values = TYPES[name]
    for wanted in range(len(values)):
        table = made(catalog, (NestedField(1, "id", IntegerType()), NestedField(2, "v", kind)))
        committed(table, *data_files(table, [(number, value) for number, value in enumerate(values)]))
        committed(table, equality_delete(table, ["v"], [(values[wanted],)]))
        deletes, dead = found(table)
        assert [row[0] for row in living(deletes, dead)] == [each for each in range(len(values)) if each != wanted]
        catalog.drop_table(("db", "t"))


def test_deletes_of_a_partition_count_there_alone(catalog: SqlCatalog) -> None:
    """Those of a spec without partitions count everywhere."""
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "part"))
    table = made(catalog, spec=spec)
    committed(table, *data_files(table, [(1, "a", 1.0, 0), (1, "a", 1.0, 1), (2, "b", 1.0, 0), (2, "b", 1.0, 1)]))
    in_one = equality_delete(table, ["id"], [(1,)])
    in_one[3], in_one.spec_id = Record(1), table.spec().spec_id  # the partition
    committed(table, in_one)
    deletes, dead = found(table)
    assert [row[::3] for row in living(deletes, dead)] == [(1, 0), (2, 0), (2, 1)]
    with table.update_spec() as update:
        update.remove_field("part")
    everywhere = equality_delete(table, ["id"], [(2,)])
    everywhere.spec_id = table.spec().spec_id
    committed(table, everywhere)
    deletes, dead = found(table)
    assert [row[::3] for row in living(deletes, dead)] == [(1, 0)]


def test_rows_without_a_key_and_deleted_positions_are_dead(catalog: SqlCatalog) -> None:
    """No row of a source has NULL in its key. Whether a file has one, its statistics say, or else the file."""
    table = made(catalog)
    [file] = data_files(table, [(1, "a", 1.0, 0), (None, "b", 1.0, 0), (3, "c", 1.0, 0), (4, "d", 1.0, 0)])
    committed(table, file)
    committed(table, *write_deletes(TableFiles.of(table), {file.file_path: np.array([3])}))
    deletes, dead = found(table)
    assert {path: rows.tolist() for path, rows in dead.items()} == {file.file_path: [1, 3]}
    assert [row[0] for row in living(deletes, dead)] == [1, 3]
    changes = deletes.changes(dead)
    assert (len(changes.added), len(changes.removed)) == (1, 1)


def test_deletes_by_columns_that_are_gone_are_named(catalog: SqlCatalog) -> None:
    """Nobody knows any more which rows they delete."""
    table = made(catalog)
    committed(table, *data_files(table, [(1, "a", 1.0, 0)]))
    committed(table, equality_delete(table, ["name"], [("a",)]))
    deletes, _ = found(table)
    assert unreadable_deletes(table.schema(), deletes.deletes) is None
    with table.update_schema() as update:
        update.delete_column("name")
    deletes_now = entries_of(table, tip(table, MAIN).snapshot_id)[1]
    assert "deletes rows by columns" in (unreadable_deletes(table.schema(), deletes_now) or "")


def test_as_many_positions_are_not_the_same_positions(catalog: SqlCatalog) -> None:
    """A stored position of a file that is gone, and a row without a key, which no position deletes."""
    table = made(catalog, [NestedField(1, "id", IntegerType(), required=False)])
    [file] = data_files(table, [(1,), (2,), (None,)])
    committed(table, file)
    [deletes] = write_deletes(TableFiles.of(table), {file.file_path: np.array([0]), "file:///gone": np.array([7])})
    committed(table, deletes)
    foreign, dead = found(table)
    assert dead[file.file_path].tolist() == [0, 2]
    assert foreign.changes(dead) != NO_FILES
