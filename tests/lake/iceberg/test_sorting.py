"""Copies with a sort order: the rows of each file that we write are sorted, and each change of a row stays exact."""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import PartitionsDiffer, UnsupportedTable
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg.files import sorting
from lakeingest.lake.iceberg.merges import compaction
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import BOUNDARIES, numbers
from tests.lake.partitioned import places
from tests.lake.sorted_files import sorted_files
from tests.lake.steps import UUID, Lake, Row

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", Kind.INT32, source_type("int"), nullable=False),
    Column("w", Kind.VECTOR, source_type("vector(2)")),
    Column("d", Kind.DATE, source_type("date")),
    Column("v", Kind.STRING, source_type("text"), charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
)
EPOCH = dt.datetime(1970, 1, 1)
Sort = Callable[..., Lake]
Opened = Callable[[Lake], Table]


@pytest.fixture
def sort(lake_config: Config, spark: SparkSession) -> Sort:
    """Call it with columns to sort a table by. `of` is a table that exists; by default a new one, with COLUMNS."""

    def make(
        *texts: str,
        of: Lake | None = None,
        columns: tuple[Column, ...] = COLUMNS,
        partition_by: tuple[str, ...] = (),
        merge: str = "auto",
    ) -> Lake:
        schema = (
            TableSchema(TableId("contract", f"sorted{next(numbers)}"), columns, ("id",)) if of is None else of.schema
        )
        options = TableOptions(sort_by=texts, partition_by=partition_by)
        tables = Tables(include=("*.*",), options={"contract.*": options})
        target = lake_config.target.model_copy(update={"merge": merge})
        config = lake_config.model_copy(update={"tables": tables, "target": target})
        return Lake(target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)

    return make


@pytest.fixture
def opened(catalog: SqlCatalog) -> Opened:
    """Call it for the table past our code."""
    return lambda lake: catalog.load_table((lake.table.database, lake.table.name))


def rows_of(chance: random.Random, keys: range) -> list[Row]:
    """Rows with few values of each column, in no order; some are NULL."""
    found: list[Row] = []
    for key in keys:
        day = None if chance.random() < 0.2 else dt.date(1970, 1, 1) + dt.timedelta(chance.randint(-3, 3))
        text = None if chance.random() < 0.2 else chance.choice(["", "a", "Z", "ä", "🦆", "\ue000"])
        found.append((key, [float(key), 0.5], day, text))
    return found


def seen(lake: Lake, table: Table) -> list[Row]:
    """What PyIceberg and Spark read, which is the same."""
    columns = [table.scan().to_arrow()[name].to_pylist() for name in lake.schema.names]
    found = sorted(zip(*columns, strict=True), key=lambda row: row[0])
    by_spark = sorted(map(tuple, lake.spark.table(f"{CATALOG}.{lake.table}").collect()), key=lambda row: row[0])
    assert by_spark == found
    return found


ORDERS = {"v": [("v", False)], "d desc,id": [("d", True), ("id", False)], "v desc,d": [("v", True), ("d", False)]}


@pytest.mark.parametrize("texts", ORDERS)
@pytest.mark.long("a variant", only=("v desc,d", "v"))
def test_the_rows_of_every_file_are_sorted(
    sort: Sort, opened: Opened, monkeypatch: pytest.MonkeyPatch, texts: str
) -> None:
    """Of waves, of merges and of compactions; merges find their keys all the same."""
    monkeypatch.setattr(compaction, "FILES", 3)
    chance, by = random.Random(1), ORDERS[texts]
    lake = sort(*texts.split(","))
    rows = rows_of(chance, range(60))
    staged = lake.wave(lake.created(), rows[:30], upper=(30,))
    staged = lake.wave(staged, rows[30:])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    assert sorted(sorted_files(opened(lake), by)) == [30, 30]
    present = {row[0]: row for row in rows}
    for pos in range(30, 100, 10):
        chosen = rows_of(chance, range(chance.randrange(50), 70))[: chance.randrange(2, 25)]
        changes = [(*row, chance.random() < 0.3) for row in chosen]
        for *row, is_deleted in changes:
            present.pop(row[0], None)
            if not is_deleted:
                present[row[0]] = tuple(row)
        lake.publish(lake.merge(lake.loaded(), *changes, pos=pos))
        assert sorted_files(opened(lake), by)
        assert seen(lake, opened(lake)) == sorted(present.values(), key=lambda row: row[0])
    lake.publish(lake.open().maintain(lake.loaded()))
    assert len(sorted_files(opened(lake), by)) < 3
    assert seen(lake, opened(lake)) == sorted(present.values(), key=lambda row: row[0])


def test_spark_shows_the_order_and_sorts_by_it(sort: Sort, opened: Opened) -> None:
    """It is in the metadata, by the ids of the columns, with NULL first."""
    lake = sort("d desc", "v")
    lake.published(*rows_of(random.Random(2), range(20)))
    fields = opened(lake).sort_order().fields
    assert [str(field) for field in fields] == ["3 DESC NULLS FIRST", "4 ASC NULLS FIRST"]
    options = "map('rewrite-all', 'true')"
    call = (
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', strategy => 'sort', options => {options})"
    )
    lake.spark.sql(call)
    before = seen(lake, opened(lake))
    lake.publish(lake.merge(lake.loaded(), (1, None, None, "new", False), (2, None, None, None, True), pos=30))
    assert seen(lake, opened(lake)) == [(1, None, None, "new") if row[0] == 1 else row for row in before if row[0] != 2]


def test_readers_skip_row_groups(sort: Sort, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has several, whose values of the first column do not overlap."""
    monkeypatch.setattr("lakeingest.lake.iceberg.files.data_files.GROUP_ROWS", 10)
    lake = sort("v")
    lake.published(*((key, None, None, f"{key * 7 % 50:02}") for key in range(50)))
    [file] = [task.file for task in opened(lake).scan().plan_files()]
    metadata = pq.read_metadata(file.file_path.removeprefix("file://"))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    place = metadata.schema.to_arrow_schema().names.index("v")
    bounds = [(group.column(place).statistics.min, group.column(place).statistics.max) for group in groups]
    assert bounds[:2] == [("00", "09"), ("10", "19")]
    assert len(bounds) == 5


def test_rows_are_sorted_within_their_partitions(sort: Sort, opened: Opened) -> None:
    """Each file has one partition, and its rows are sorted."""
    lake = sort("v desc", partition_by=("bucket(3, id)",))
    rows = rows_of(random.Random(3), range(40))
    lake.published(*rows)
    lake.publish(lake.merge(lake.loaded(), (7, None, None, "x", False), (8, None, None, "y", False), pos=30))
    assert len(sorted_files(opened(lake), [("v", True)])) > 3
    places(opened(lake))


@pytest.mark.parametrize("merge", ["row_delta", "statement"])
@pytest.mark.long("merges by Spark", only=("statement",))
def test_an_order_that_is_changed_counts_from_the_next_publish_on(
    sort: Sort, opened: Opened, monkeypatch: pytest.MonkeyPatch, merge: str
) -> None:
    """Files that are there stay as they are, until they are compacted."""
    monkeypatch.setattr(compaction, "FILES", 100)
    lake = sort(merge=merge)
    rows = rows_of(random.Random(4), range(30))
    lake.published(*rows)
    assert opened(lake).sort_order().is_unsorted
    expected = {row[0]: row for row in rows}
    for number, texts in enumerate((("v",), ("d desc", "id"), ("v",), ())):
        lake = sort(*texts, of=lake, merge=merge)
        for pos in (100 + 10 * number, 105 + 10 * number):  # the publish of the first one sets the order
            changed = rows_of(random.Random(pos), range(40))[number::3]
            expected |= {row[0]: row for row in changed}
            lake.publish(lake.merge(lake.loaded(), *((*row, False) for row in changed), pos=pos))
            assert seen(lake, opened(lake)) == [expected[key] for key in sorted(expected)]
        order = opened(lake).sort_order()
        assert len(order.fields) == len(texts)
    assert sorting.SORT_BY not in opened(lake).properties


def test_an_order_that_others_set_is_left_alone(sort: Sort, opened: Opened) -> None:
    """Without `sort_by`, theirs stays, and our files are not said to be sorted; with it, ours is set again."""
    lake = sort()
    lake.published(*rows_of(random.Random(5), range(9)))
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} WRITE ORDERED BY v")
    lake.publish(lake.merge(lake.loaded(), (1, None, None, "x", False), pos=30))
    assert [str(field) for field in opened(lake).sort_order().fields] == ["4 ASC NULLS FIRST"]
    assert {task.file.sort_order_id for task in opened(lake).scan().plan_files()} == {None}
    ours = sort("d", of=lake)
    ours.publish(ours.merge(ours.loaded(), (1, None, None, "y", False), pos=40))
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} WRITE ORDERED BY truncate(1, v)")
    ours.publish(ours.merge(ours.loaded(), (1, None, None, "z", False), pos=50))
    assert [str(field) for field in opened(lake).sort_order().fields] == ["3 ASC NULLS FIRST"]


def lifted(lake: Lake, after: TableSchema, origins: tuple[str | None, ...], pos: int) -> Staged:
    """The lift to a definition, with what executors have written."""
    target, staged, lift = lake.open(), lake.loaded(), Lift(lake.schema, after, origins)
    position = Position(UUID, 1, FilePosition("binlog.000001", pos), GtidSet.parse(f"{UUID}:1-{pos}"))
    progress = staged.progress.lifted(position, after.fingerprint)
    return target.lift(staged, lift, progress, [one.rewrite() for one in target.rewriters(staged, lift)])


def test_the_order_follows_a_column_that_is_renamed(sort: Sort, opened: Opened) -> None:
    """pipeline.yml may have the old name, or the new one. A new column fills all rows, which are sorted again."""
    lake = sort("v desc")
    lake.published(*rows_of(random.Random(6), range(9)))
    more = Column("n", Kind.INT32, source_type("int"), default=Value(7))
    after = replace(lake.schema, columns=(*COLUMNS[:3], replace(COLUMNS[3], name="text"), more))
    staged = lifted(lake, after, ("id", "w", "d", "v", None), 30)
    lake.schema = after
    lake.publish(staged)
    for pos, name in ((40, "v"), (50, "text"), (60, "text")):
        lake = sort(f"{name} desc", of=lake)
        rows = rows_of(random.Random(pos), range(5))
        lake.publish(lake.merge(lake.loaded(), *((*row, 8, False) for row in rows), pos=pos))
        assert [str(field) for field in opened(lake).sort_order().fields] == ["4 DESC NULLS FIRST"]
        assert len(sorted_files(opened(lake), [("text", True)])) > 1
    assert [row[-1] for row in seen(lake, opened(lake))] == [8] * 5 + [7] * 4


def test_a_dropped_column_of_the_order_stops_the_table_by_name(sort: Sort, opened: Opened) -> None:
    """Without the order in the metadata, another `sort_by` lets the table go on."""
    lake = sort("v")
    lake.published(*rows_of(random.Random(7), range(9)))
    after, origins = replace(lake.schema, columns=COLUMNS[:3]), ("id", "w", "d")
    with pytest.raises(PartitionsDiffer, match=r"its copy is sorted by v, which DDL dropped .* WRITE UNORDERED"):
        lifted(lake, after, origins, 30)
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} WRITE UNORDERED")
    staged = lifted(lake, after, origins, 30)
    lake.schema = after
    with pytest.raises(PartitionsDiffer, match=f"{lake.table}: sort_by names v, which is not a column of its copy"):
        lake.publish(staged)
    lake = sort("d", of=lake)
    lake.publish(lake.loaded())
    assert [str(field) for field in opened(lake).sort_order().fields] == ["3 ASC NULLS FIRST"]
    lake.publish(lake.merge(lake.loaded(), (1, None, dt.date(2026, 1, 1), False), pos=40))
    assert lake.rows(lake.loaded())[1][2] == dt.date(2026, 1, 1)


def test_a_dropped_column_of_an_order_of_others_stops_the_table_by_name(sort: Sort) -> None:
    """No reader could read the table."""
    lake = sort()
    lake.published(*rows_of(random.Random(8), range(9)))
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} WRITE ORDERED BY v")
    with pytest.raises(PartitionsDiffer, match="its copy is sorted by v, which DDL dropped"):
        lifted(lake, replace(lake.schema, columns=COLUMNS[:3]), ("id", "w", "d"), 30)


def test_a_column_that_cannot_be_sorted_by_is_refused_before_anything_is_made(sort: Sort) -> None:
    """With the reason."""
    for text, reason in (("w", "by which rows cannot be sorted"), ("x", "is not a column of the table")):
        with pytest.raises(UnsupportedTable, match=reason):
            sort(text).created()


def test_every_type_is_sorted_as_the_specification_says(sort: Sort, opened: Opened) -> None:
    """Numbers by value, texts and bytes by their bytes, moments by time; NULL first."""
    kinds: dict[str, tuple[Kind, str, list[Any]]] = {
        "u": (Kind.UINT64, "bigint unsigned", [2**64 - 1, 0, None, 2**63]),
        "n": (Kind.DECIMAL, "decimal(9,2)", [Decimal("-1.50"), None, Decimal("10.00"), Decimal("9.99")]),
        "t": (
            Kind.DATETIME,
            "datetime(6)",
            [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), None, dt.datetime(1970, 1, 1)],
        ),
        "b": (Kind.BINARY, "varbinary(9)", [b"\xff", b"", None, b"\x00\x7f"]),
        "o": (Kind.BOOLEAN, "bit(1)", [True, None, False, True]),
        "s": (Kind.STRING, "text", ["🦆", "\ue000", None, "a"]),
    }
    for name, (kind, text, values) in kinds.items():
        column = Column(name, kind, source_type(text), precision=9, scale=2, fraction=6)
        lake = sort(name, columns=(COLUMNS[0], column))
        lake.published(*enumerate(values))
        sorted_files(opened(lake), [(name, False)])
