"""What holds for Iceberg alone: the branch, its properties, the publish, and values as three engines read them."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.core.copies import progress_form
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import NotOurTable, StaleWriter, StateUnreadable, UnsupportedTable
from lakeingest.lake.iceberg.merges import folding
from lakeingest.lake.iceberg.merges.compaction import FILES
from lakeingest.lake.iceberg.merges.folding import SMALL_ROWS
from lakeingest.lake.iceberg.tables.history import STAGING
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import BUILDING, OWNER
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import building
from tests.lake.steps import Lake, Raw, Row

pytestmark = pytest.mark.spark


def summary(table: Table, version: int) -> dict[str, str]:
    """The properties of a commit."""
    snapshot = table.snapshot_by_id(version)
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties


def test_every_commit_has_its_marks(lake: Lake, raw: Raw) -> None:
    """A marked commit names itself, its base, its epoch and its position; no two have one name."""
    made = lake.created()
    copied = lake.wave(made, [(1, "a")])
    merged = lake.merge(copied, (2, "b", False), pos=20)
    table = raw(BUILDING)
    found = [summary(table, staged.version) for staged in (made, copied, merged)]
    empty = table.snapshot_by_name("main")
    assert empty is not None
    bases = [empty.snapshot_id, made.version, copied.version]
    assert [int(properties["lakeingest.base"]) for properties in found] == bases
    assert len({properties["lakeingest.commit"] for properties in found}) == 3
    assert [properties["lakeingest.epoch"] for properties in found] == ["1", "1", "1"]
    positions = ["", "", "000001.0000000001.00000000000000000020"]
    assert [properties["lakeingest.position"] for properties in found] == positions
    for properties, staged in zip(found, (made, copied, merged), strict=True):
        assert json.loads(properties["lakeingest.progress"]) == progress_form.to_json(staged.progress)
    assert table.properties[OWNER] == str(lake.table)


def test_a_publish_moves_main_and_its_position_together(lake: Lake, raw: Raw) -> None:
    """One metadata version has both; the name for building is gone after the first."""
    first = lake.published((1, "a"), pos=20)
    with pytest.raises(NoSuchTableError):
        raw(BUILDING)
    before = raw().metadata_location
    second = lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    table = raw()
    main, log = table.snapshot_by_name("main"), [entry.metadata_file for entry in table.metadata.metadata_log]
    assert main is not None
    assert main.snapshot_id == second.version
    assert json.loads(table.properties["lakeingest.position"])["at"] == "binlog.000001:30"
    assert table.properties["lakeingest.gate"] == "{}"
    # the commits of the merge, and the publish, which alone moved main; a statement makes a branch, and commits there
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == [
        *[entry.snapshot_id for entry in table.metadata.snapshot_log][:-2],
        first.version,
        second.version,
    ]
    assert len(log) - log.index(before) == {"row_delta": 2, "statement": 4}[lake.settings.way_of_merging]


def test_a_commit_between_look_and_commit_is_noticed(
    lake: Lake, raw: Raw, lake_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When staging moves after we looked, the append fails: PyIceberg must not rebase it on the other's commit."""
    stale = lake.created()
    zombie, early = IcebergTarget(lake_config.target), raw(BUILDING)
    file = zombie.writer(lake.table).write(lake.arrow([(1, "twice")]))
    current = lake.wave(stale, [(1, "a")])
    monkeypatch.setattr(zombie, "_table", lambda _: early)
    with pytest.raises(StaleWriter, match=f"{lake.table}: another writer"):
        zombie.commit_wave(stale, [file], stale.progress)
    assert lake.loaded() == current
    assert lake.rows(current) == [(1, "a")]


def test_a_publish_between_look_and_publish_is_noticed(
    lake: Lake, raw: Raw, lake_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When main moves after we looked, the publish fails."""
    stale = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    zombie, early = IcebergTarget(lake_config.target), raw()
    current = lake.publish(lake.merge(stale, (3, "c", False), pos=40))
    monkeypatch.setattr(zombie, "_table", lambda _: early)
    with pytest.raises(StaleWriter, match=f"{lake.table}: another writer"):
        zombie.publish(stale, lake.schema, {})
    assert lake.loaded().published == current.version
    assert lake.seen() == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("how", ["append", "merge"])
@pytest.mark.long("a merge by Spark of what an append shows", only=("merge",))
def test_an_unmarked_tip_is_reset(lake: Lake, raw: Raw, spark: SparkSession, how: str) -> None:
    """What was committed to staging without progress is not done: it is taken back before anything else."""
    staged = lake.copied((1, "a"))
    name = ".".join((CATALOG, *raw(BUILDING).name(), f"branch_{STAGING}"))
    if how == "append":
        spark.sql(f"INSERT INTO {name} VALUES (9, 'unmarked')")
    else:
        spark.createDataFrame([(1, "unmarked")], "id int, v string").createOrReplaceTempView("unmarked")
        spark.sql(f"MERGE INTO {name} t USING unmarked c ON t.id = c.id WHEN MATCHED THEN UPDATE SET t.v = c.v")
    tip = raw(BUILDING).snapshot_by_name(STAGING)
    assert tip is not None
    assert tip.snapshot_id != staged.version
    with pytest.raises(StaleWriter):
        lake.open().mark(staged, staged.progress)
    location = raw(BUILDING).metadata_location
    assert lake.open().inspect(lake.table) == staged
    assert raw(BUILDING).metadata_location == location  # a merge that is under way is not disturbed
    loaded = lake.loaded()
    assert loaded == replace(staged, version=loaded.version)
    tip = raw(BUILDING).snapshot_by_name(STAGING)
    assert tip is not None
    assert (tip.snapshot_id, tip.parent_snapshot_id) == (loaded.version, staged.version)
    assert lake.loaded() == loaded
    assert lake.rows(lake.merge(loaded, (2, "b", False))) == [(1, "a"), (2, "b")]


def test_a_table_is_made_in_one_commit(lake: Lake, raw: Raw) -> None:
    """Its first version has main, staging and progress: there is no moment at which it is half made."""
    made = lake.created()
    table = raw(BUILDING)
    assert table.metadata.metadata_log == []
    assert set(table.metadata.refs) == {"main", STAGING}
    assert lake.open().inspect(lake.table) == made
    assert lake.rows(made) == []


def test_a_table_of_someone_else_is_not_ours(lake: Lake, catalog: SqlCatalog) -> None:
    """A name that is taken is refused and the table there stays as it is, whichever table it is said to copy."""
    catalog.create_namespace_if_not_exists(lake.table.database)
    name = (lake.table.database, lake.table.name)
    theirs = catalog.create_table(name, Schema(NestedField(1, "id", IntegerType())))
    location = theirs.metadata_location
    for properties in ({}, {OWNER: "shop.other"}):
        if properties:
            theirs.transaction().set_properties(properties).commit_transaction()
            location = theirs.metadata_location
        with pytest.raises(NotOurTable, match=f"{lake.table} exists and is no copy of {lake.table}"):
            lake.open().recover(lake.table)
        assert catalog.load_table(name).metadata_location == location


@pytest.mark.parametrize("broken", ["{", "[]", '{"format": 99}'])
def test_progress_that_cannot_be_read_is_named(lake: Lake, raw: Raw, broken: str) -> None:
    """Corrupt progress, and that of a newer version, is never taken for none."""
    lake.copied((1, "a"))
    table = raw(BUILDING)
    with (
        table.transaction() as transaction,
        transaction.update_snapshot({"lakeingest.progress": broken}, STAGING).fast_append(),
    ):
        pass
    with pytest.raises(StateUnreadable, match=f"{lake.table}: the progress of snapshot"):
        lake.open().recover(lake.table)


def test_the_table_keeps_the_types_and_the_key(lake_of: Callable[..., Lake], catalog: SqlCatalog) -> None:
    """The key's columns are required and the identifier; a column that may be NULL is optional."""
    columns = (
        Column("v", Kind.STRING, source_type("text")),
        Column("b", Kind.INT64, source_type("bigint"), nullable=False),
        Column("a", Kind.INT32, source_type("int"), nullable=False),
    )
    lake = lake_of(columns, ("a", "b"))
    lake.created()
    [name] = building(catalog, lake)
    schema = catalog.load_table((lake.table.database, name)).schema()
    assert {field.name: (str(field.field_type), field.required) for field in schema.fields} == {
        "v": ("string", False),
        "b": ("long", True),
        "a": ("int", True),
    }
    assert schema.identifier_field_names() == {"a", "b"}


@pytest.mark.parametrize("name", ["_pos", "_file", "_Partition"])
def test_a_column_with_a_name_that_iceberg_reserves_is_refused(lake_of: Callable[..., Lake], name: str) -> None:
    """Before anything is made: Spark would not read the table."""
    lake = lake_of(
        (Column("id", Kind.INT32, source_type("int"), nullable=False), Column(name, Kind.STRING, source_type("text"))),
        ("id",),
    )
    with pytest.raises(UnsupportedTable, match=name):
        lake.created()
    assert lake.open().inspect(lake.table) is None


# Every kind with values at its edges, as Python and Arrow have them.
VALUES: dict[str, tuple[Column, list[Any]]] = {
    "int32": (Column("c", Kind.INT32, source_type("int")), [-(2**31), 2**31 - 1, 0]),
    "int64": (Column("c", Kind.INT64, source_type("bigint")), [-(2**63), 2**63 - 1, 0]),
    "uint64": (
        Column("c", Kind.UINT64, source_type("bigint unsigned")),
        [Decimal(2**64 - 1), Decimal(2**63), Decimal(0)],
    ),
    "decimal": (
        Column("c", Kind.DECIMAL, source_type("decimal(38,10)"), precision=38, scale=10),
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10"), Decimal("0.0000000000")],
    ),
    "float": (
        Column("c", Kind.FLOAT, source_type("float")),
        [0.10000000149011612, -3.4028234663852886e38, 1.401298464324817e-45],
    ),
    "double": (Column("c", Kind.DOUBLE, source_type("double")), [0.1, 1.7976931348623157e308, 5e-324]),
    "date": (
        Column("c", Kind.DATE, source_type("date")),
        [dt.date(1000, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 10)],
    ),
    "datetime": (
        Column("c", Kind.DATETIME, source_type("datetime(6)")),
        [dt.datetime(1000, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1)],
    ),
    "timestamp": (
        Column("c", Kind.TIMESTAMP, source_type("timestamp(6)")),
        [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=dt.UTC)],
    ),
    "string": (Column("c", Kind.STRING, source_type("text")), ["", "naïve \U0001f40b", "tail  ", "a\0b", "x" * 70_000]),
    "time": (Column("c", Kind.TIME, source_type("time(6)")), ["-838:59:59.000000", "00:00:00.000001"]),
    "numeral": (Column("c", Kind.NUMERAL, source_type("decimal(65,30)")), ["-" + "9" * 35 + "." + "9" * 30]),
    "uuid": (Column("c", Kind.UUID, source_type("uuid")), ["00112233-4455-6677-8899-aabbccddeeff"]),
    "address": (Column("c", Kind.ADDRESS, source_type("inet6")), ["::", "2001:db8::ff00:42:8329"]),
    "json": (Column("c", Kind.JSON, source_type("json")), ['{"a": [1, null, "ä"]}', "null"]),
    "boolean": (Column("c", Kind.BOOLEAN, source_type("bit(1)")), [True, False]),
    "binary": (Column("c", Kind.BINARY, source_type("blob")), [b"", b"\0\xff", bytes(range(256)) * 300]),
    "moment": (
        Column("c", Kind.MOMENT, source_type("datetime(1)"), fraction=1),
        ["0000-00-00 00:00:00.0", "2024-02-29 23:59:59.9"],
    ),
    "micros": (Column("c", Kind.MICROS, source_type("time(6)")), [-3_020_399_999_999, 0, 1]),
    "vector": (
        Column("c", Kind.VECTOR, source_type("vector")),
        [[0.10000000149011612, -0.0], [3.4028234663852886e38] * 2048],
    ),
}


def test_values_are_read_back_by_three_engines(
    lake_of: Callable[..., Lake], catalog: SqlCatalog, spark: SparkSession
) -> None:
    """What a writer was given, Spark, PyIceberg and DuckDB read, for every kind up to its edges, and null."""
    assert {column.kind for column, _ in VALUES.values()} == set(Kind)
    count = max(len(values) for _, values in VALUES.values()) + 1
    columns = (
        Column("id", Kind.INT32, source_type("int"), nullable=False),
        *(replace(column, name=name) for name, (column, _) in VALUES.items()),
    )
    given = {name: values + [None] * (count - len(values)) for name, (_, values) in VALUES.items()}
    rows = list(zip(range(count), *given.values(), strict=True))
    lake = lake_of(columns)
    lake.published(*rows)
    scan = catalog.load_table((lake.table.database, lake.table.name)).scan()
    assert [tuple(row.values()) for row in sorted(scan.to_arrow().to_pylist(), key=lambda row: row["id"])] == rows
    duck = scan.to_duckdb("t")
    duck.sql("SET TimeZone = 'UTC'")
    found = duck.sql("SELECT * FROM t ORDER BY id").to_arrow_table().cast(lake.arrow(rows).schema)
    assert found == lake.arrow(rows)
    # Spark's Python rows have local times; in Arrow they are instants
    batches = spark.table(f"{CATALOG}.{lake.table}").orderBy("id")._collect_as_arrow()  # noqa: SLF001
    assert pa.Table.from_batches(batches).cast(lake.arrow(rows).schema) == lake.arrow(rows)


def test_columns_have_any_name(lake_of: Callable[..., Lake]) -> None:
    """Odd names are quoted wherever they stand."""
    columns = (
        Column("a`b c", Kind.INT32, source_type("int"), nullable=False),
        Column("Größe", Kind.STRING, source_type("text")),
    )
    lake = lake_of(columns, ("a`b c",))
    merged = lake.merge(lake.copied((1, "a"), (2, "b")), (1, None, True), (2, "B", False), (3, "c", False))
    assert lake.rows(merged) == [(2, "B"), (3, "c")]


@pytest.mark.long("hundreds of commits")
def test_many_merges_leave_few_files(lake: Lake, raw: Raw) -> None:
    """Small files and deletes are put together now and then, and every row stays what it was."""
    rows = {number: f"v{number}" for number in range(40)}
    staged = lake.publish(lake.open().mark(lake.copied(*rows.items()), lake.leveled(lake.loaded(), 20)))
    for merge in range(2 * FILES + 3):
        changes: list[Row] = [(merge, f"new {merge}", False), (100 + merge, "added", False), (39 - merge, None, True)]
        staged = lake.publish(lake.merge(staged, *changes, pos=30 + merge))
        rows |= {key: value for key, value, _ in changes[:2]}
        rows.pop(39 - merge, None)
        assert lake.open().count(lake.table, staged.version) == len(rows)
        files = raw().inspect.files()
        kinds = Counter(files["content"].to_pylist())
        assert kinds[0] <= FILES + 1
        assert kinds[1] <= FILES
    assert lake.rows(staged) == sorted(rows.items())
    assert lake.seen() == sorted(rows.items())
    scanned = raw().scan().to_arrow()
    assert sorted(zip(scanned["id"].to_pylist(), scanned["v"].to_pylist(), strict=True)) == sorted(rows.items())
    answer = summary(raw(), staged.version)
    assert (int(answer["total-data-files"]), int(answer["total-delete-files"])) == (kinds[0], kinds[1])


@pytest.mark.long("takes seconds")
def test_a_file_with_mostly_deleted_rows_is_rewritten(lake: Lake, raw: Raw) -> None:
    """Without them, when files are put together anyway; what is left of it stays what it was."""
    merges = FILES + 2
    rows = [(number, "x") for number in range(SMALL_ROWS + 1)]
    staged = lake.copied(*rows)
    staged = lake.merge(staged, *((number, None, True) for number in range(0, SMALL_ROWS, 2)), pos=30)
    for merge in range(merges):
        staged = lake.merge(staged, (merge, "y", False), pos=31 + merge)
    old = [file for file in raw(BUILDING).inspect.files(staged.version).to_pylist() if file["content"] == 0]
    assert max(file["record_count"] for file in old) <= SMALL_ROWS // 2 + 1 + merges
    assert lake.open().count(lake.table, staged.version) == SMALL_ROWS // 2 + 1 + merges // 2
    expected = {number for number in range(SMALL_ROWS + 1) if number % 2 or number == SMALL_ROWS} | set(range(merges))
    assert {row[0] for row in lake.rows(staged)} == expected


def test_a_file_without_a_living_row_leaves_at_once(lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows it has: nothing of it is written again. A long backlog replaces all rows of a table often."""
    monkeypatch.setattr(folding, "SMALL_ROWS", 5)
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", 10)
    numbers = range(40)
    staged = lake.copied(*((number, "x") for number in numbers))
    for merge in range(FILES + 2):
        staged = lake.merge(staged, *((number, f"v{merge}", False) for number in numbers), pos=30 + merge)
    files = raw(BUILDING).inspect.files(staged.version).to_pylist()
    assert sum(file["record_count"] for file in files if file["content"] == 0) <= FILES * len(numbers)
    assert lake.rows(staged) == [(number, f"v{FILES + 1}") for number in numbers]
