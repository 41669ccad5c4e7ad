"""Copies with partitions: each file is in the partition of its rows, through copies, merges, compactions and DDL."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from operator import attrgetter

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import ForeignWrite, PartitionsDiffer
from lakeingest.lake.formats import open_rollbacks
from lakeingest.lake.iceberg.merges import compaction
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.divided import BACK, BACKED, COLUMNS, EPOCH, MOVED, MOVES, NEW, OLD, ROWS, Divide
from tests.lake.divided import assert_seen_in_iceberg as assert_seen
from tests.lake.partitioned import places
from tests.lake.steps import UUID, Lake
from tests.servers.engines import CLICKHOUSE, DUCKDB, Engine

pytestmark = pytest.mark.spark


@pytest.fixture
def opened(catalog: SqlCatalog) -> Callable[[Lake], Table]:
    """Call it for the table past our code."""
    return lambda lake: catalog.load_table((lake.table.database, lake.table.name))


Opened = Callable[[Lake], Table]


def test_a_merge_writes_to_the_partitions_of_its_rows_alone(divide: Divide, opened: Opened) -> None:
    """Of many partitions, those in which an old or a new row is."""
    days = [date(2026, 1, 1 + number) for number in range(25)]
    lake = divide("day(d)")
    lake.published(*((number, day, "x") for number, day in enumerate(days)))
    before = places(opened(lake))
    assert len(before) == len(days)
    lake.publish(lake.merge(lake.loaded(), (3, days[4], "y", False), (24, days[24], "z", False), pos=30))
    after = places(opened(lake))
    first = date(1970, 1, 1)
    assert {place[1][0] for path, place in after.items() if path not in before} == {
        (days[4] - first).days,
        (days[24] - first).days,
    }
    summary = opened(lake).current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary["changed-partition-count"] == "3"  # the old row of key 3 is in a third one


def test_compactions_combine_the_files_of_each_partition(
    divide: Divide, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a partition has many, with the merge; all of them by `maintain`."""
    monkeypatch.setattr(compaction, "FILES", 3)
    lake = divide("d")
    lake.published(*ROWS)
    for number in range(5):
        lake.publish(lake.merge(lake.loaded(), (1, OLD, f"a{number}", False), (10 + number, NEW, "n", False)))
        places(opened(lake))
    of_day = [place for place in places(opened(lake)).values() if place[1] == (-1,)]
    assert len(of_day) <= 3
    untouched = [path for path, place in places(opened(lake)).items() if place[1] == (0,)]
    assert len(untouched) == 1
    lake.publish(lake.merge(lake.loaded(), (2, EPOCH, "b2", False), (6, NEW, "f2", False), pos=70))
    lake.publish(lake.open().maintain(lake.loaded()))
    found = places(opened(lake))
    assert len(found) == len(set(found.values())) == 4
    assert untouched[0] not in found
    new = [(10 + number, NEW, "n") for number in range(5)]
    rows = [(1, OLD, "a4"), (2, EPOCH, "b2"), (3, None, "c"), (4, NEW, ""), (5, EPOCH, "e"), (6, NEW, "f2"), *new]
    assert_seen(lake, opened(lake), rows)


def test_many_partitions_with_few_files_are_no_reason_to_compact(
    divide: Divide, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files could not be combined: each commit would write them again."""
    monkeypatch.setattr(compaction, "FILES", 3)
    lake = divide("id")
    lake.published(*((number, EPOCH, "x") for number in range(8)))
    before = places(opened(lake))
    lake.publish(lake.merge(lake.loaded(), (3, EPOCH, "y", False), pos=30))
    assert before.keys() <= places(opened(lake)).keys()


def test_a_compaction_by_spark_is_built_on(divide: Divide, opened: Opened) -> None:
    """Its files have the spec of the table, in folders with the names of partitions."""
    lake = divide("month(d)")
    lake.published(*ROWS)
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    options = "map('rewrite-all', 'true', 'delete-file-threshold', '1')"
    lake.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', options => {options})")
    assert_seen(lake, opened(lake), MOVED)
    lake.publish(lake.merge(lake.loaded(), *BACK, pos=40))
    lake.publish(lake.open().maintain(lake.loaded()))
    assert_seen(lake, opened(lake), BACKED)


def test_names_of_columns_are_data(divide: Divide, opened: Opened) -> None:
    """With blanks, quotes, parentheses, tags and emoji."""
    names = ("id", "day, (of) `it` 😀", '<script>"größe"')
    columns = tuple(replace(column, name=name) for column, name in zip(COLUMNS, names, strict=True))
    lake = divide("day(`day, (of) ``it`` 😀`)", 'truncate(2, <script>"größe")', columns=columns)
    lake.published(*ROWS)
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, opened(lake), MOVED)


def test_partitions_that_others_change_are_taken_back(divide: Divide, opened: Opened, lake_config: Config) -> None:
    """A field more, or one less; `rollback` restores those of the copy."""
    lake = divide("day(d)")
    lake.published(*ROWS)
    name = f"{CATALOG}.{lake.table}"
    for change, fields in (("ADD PARTITION FIELD v", "d_day, v"), ("DROP PARTITION FIELD d_day", "none")):
        lake.spark.sql(f"ALTER TABLE {name} {change}")
        with pytest.raises(ForeignWrite, match=f"divided it into partitions: {fields}; `lakeingest rollback"):
            lake.loaded()
        rollbacks = open_rollbacks(lake_config)
        found = rollbacks.found(lake.table)
        assert found is not None
        assert found.restores == ("partitions",)
        rollbacks.roll_back(lake.table, found)
        assert [field.name for field in opened(lake).spec().fields] == ["d_day"]
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, opened(lake), MOVED)


def lifted(lake: Lake, staged: Staged, after: TableSchema, origins: tuple[str | None, ...], pos: int) -> Staged:
    """The lift to a definition, with what executors have written."""
    target, lift = lake.open(), Lift(lake.schema, after, origins)
    position = Position(UUID, 1, FilePosition("binlog.000001", pos), GtidSet.parse(f"{UUID}:1-{pos}"))
    progress = staged.progress.lifted(position, after.fingerprint)
    rewritten = [one.rewrite() for one in target.rewriters(staged, lift)]
    lake.schema = after
    return target.lift(staged, lift, progress, rewritten)


def test_partitions_follow_a_column_that_is_renamed(divide: Divide, opened: Opened) -> None:
    """With a new column in the same DDL, for which all rows are written again; pipeline.yml may have either name."""
    lake = divide("day(d)")
    lake.publish(lake.merge(lake.published(*ROWS), *MOVES, pos=30))
    more = Column("n", Kind.INT32, source_type("int"), default=Value(7))
    named = replace(COLUMNS[1], name="at")
    after = replace(lake.schema, columns=(COLUMNS[0], named, COLUMNS[2], more))
    lake.publish(lifted(lake, lake.loaded(), after, ("id", "d", "v", None), 40))
    assert_seen(lake, opened(lake), [(*row, 7) for row in MOVED])
    for text in ("day(at)", "day(d)"):
        renamed = divide(text)
        renamed.schema = lake.schema
        changes = ((1, OLD, "a", 1, False), (6, NEW, "f", 2, False))
        renamed.publish(renamed.merge(renamed.loaded(), *changes, pos=50))
    rows = [(1, OLD, "a", 1), *[(*row, 7) for row in MOVED[1:4]], (6, NEW, "f", 2), (9, NEW, "i", 7)]
    assert_seen(lake, opened(lake), rows)
    unlike = divide("day(v)")
    unlike.schema = lake.schema
    with pytest.raises(PartitionsDiffer):
        unlike.loaded()


def test_a_column_with_the_name_of_a_partition_field_stops_the_table_by_name(divide: Divide) -> None:
    """Iceberg takes it for the field."""
    lake = divide("day(d)")
    staged = lake.published(*ROWS)
    more = Column("D_day", Kind.INT32, source_type("int"), default=Value(7))
    lift = Lift(lake.schema, replace(lake.schema, columns=(*COLUMNS, more)), ("id", "d", "v", None))
    with pytest.raises(PartitionsDiffer, match="has a partition field d_day, and Iceberg allows no column of"):
        lake.open().rewriters(staged, lift)


def test_a_partition_of_a_number_follows_a_wider_type(divide: Divide, opened: Opened) -> None:
    """Old files have the value as they had it."""
    columns = (COLUMNS[0], COLUMNS[1], replace(COLUMNS[2], kind=Kind.INT32, source_type=source_type("int")))
    lake = divide("v", "bucket(3, id)", columns=columns)
    lake.published((1, OLD, 5), (2, OLD, -7), (3, None, None))
    wider = replace(columns[2], kind=Kind.INT64, source_type=source_type("bigint"))
    after = replace(lake.schema, columns=(*columns[:2], wider))
    lake.publish(lifted(lake, lake.loaded(), after, ("id", "d", "v"), 30))
    lake.publish(lake.merge(lake.loaded(), (1, OLD, 2**40, False), (2, OLD, 5, False), (4, NEW, -7, False), pos=40))
    lake.publish(lake.open().maintain(lake.loaded()))
    assert_seen(lake, opened(lake), [(1, OLD, 2**40), (2, OLD, 5), (3, None, None), (4, NEW, -7)])


def test_spark_finds_each_row_in_the_partition_that_it_would_choose(divide: Divide, spark: SparkSession) -> None:
    """By Iceberg's own functions in Java."""
    days = [date(1969, 11, 30), OLD, EPOCH, NEW, date(1, 1, 1), date(9999, 12, 31), None]
    texts = ["", "a", "iceberg", "🎉🎉🎉", None, "ä", "x"]
    lake = divide("month(d)", "bucket(5, id)", "truncate(2, v)")
    lake.published(*((number * 7 - 20, day, text) for number, (day, text) in enumerate(zip(days, texts, strict=True))))
    functions = f"{CATALOG}.system"
    rows = spark.sql(
        f"SELECT _partition.*, {functions}.months(d), {functions}.bucket(5, id), {functions}.truncate(2, v)"
        f" FROM {CATALOG}.{lake.table}"
    ).collect()
    assert len(rows) == len(days)
    for row in rows:
        assert tuple(row)[:3] == tuple(row)[3:]


@pytest.mark.parametrize("engine", [DUCKDB, CLICKHOUSE], ids=attrgetter("name"))
@pytest.mark.long("starts another engine", only=("ClickHouse",))
def test_other_engines_read_the_rows_of_all_partitions(divide: Divide, opened: Opened, engine: Engine) -> None:
    """Each delete is applied in its partition, and a value of a partition is no value of a row."""
    lake = divide("month(d)", "bucket(2, id)", "v")
    lake.published(*ROWS)
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    table = opened(lake)
    found = engine.read(table.metadata_location, table.location())
    types = zip(lake.schema.names, (pa.int32(), pa.date32(), pa.string()), strict=True)
    columns = [found[name].cast(kind).to_pylist() for name, kind in types]
    assert sorted(zip(*columns, strict=True), key=lambda row: row[0]) == MOVED


def test_an_empty_partition_is_no_file(divide: Divide, opened: Opened) -> None:
    """All rows of a partition go: its files may stay until a compaction, and then they are gone."""
    lake = divide("d")
    lake.published(*ROWS)
    lake.publish(lake.merge(lake.loaded(), (1, None, None, True), pos=30))
    lake.publish(lake.open().maintain(lake.loaded()))
    found = places(opened(lake))
    assert (-1,) not in {place[1] for place in found.values()}
    snapshot = opened(lake).current_snapshot()
    assert snapshot is not None
    contents = {
        entry.data_file.content
        for manifest in snapshot.manifests(opened(lake).io)
        for entry in manifest.fetch_manifest_entry(opened(lake).io)
    }
    assert contents == {DataFileContent.DATA}
    assert_seen(lake, opened(lake), sorted(ROWS[1:]))
