"""Copies with partitions: each row is once in the table, in the folder of its partition, whoever writes the commit."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config, History
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.binlog.position import Place
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.core.waves.splits import Split
from lakeingest.errors import ForeignWrite, PartitionsDiffer
from lakeingest.lake.formats import open_points, open_rollbacks, open_target
from lakeingest.lake.hudi import all_rows, row_delta
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.divided import (
    BACK,
    BACKED,
    COLUMNS,
    EPOCH,
    MOVED,
    MOVES,
    NEW,
    OLD,
    ROWS,
    Divide,
    folder,
    places,
)
from tests.lake.divided import assert_seen_in_hudi as assert_seen
from tests.lake.hudi.test_lift import give_another_form
from tests.lake.hudi.test_record_key import ODD
from tests.lake.hudi.test_row_delta import SECRET, STEPS, alone, commits, die, properties
from tests.lake.hudi.test_services import call
from tests.lake.iceberg.test_lift import lifted
from tests.lake.steps import START, Crash, Lake
from tests.servers.engines import HUDI_RS

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]


def merging(lake: Lake, lake_config: Config, merge: str) -> Lake:
    """The same table, published in another way."""
    target = lake.settings.model_copy(update={"merge": merge})
    options = {"contract.*": TableOptions(partition_by=tuple(_texts_of(lake)))}
    config = lake_config.model_copy(update={"target": target, "tables": Tables(include=("*.*",), options=options)})
    return replace(lake, settings=target, open=lambda: open_target(config, lambda: lake.spark))


def _texts_of(lake: Lake) -> list[str]:
    return list(map(str, lake.open()._partitions_of(lake.table)))  # type: ignore[attr-defined]  # noqa: SLF001


def test_readers_open_the_files_of_the_partitions_they_ask_for(divide: Divide) -> None:
    """The files of the others may be away."""
    lake = divide("day(d)", "v")
    lake.published(*ROWS)
    names = sorted(set(places(lake).values()))
    assert names == ["1969-12-31.a", "1970-01-01.b", "1970-01-01.e", "2026-02-03.EMPTY", "NULL.NULL", "NULL.c"]
    away = folder(lake).parent / f"{lake.table.name}.away"
    away.mkdir()
    for name in names:
        if not name.startswith("1970"):
            for file in (folder(lake) / name).glob("*.parquet"):
                file.rename(away / file.name)
    found = lake.spark.read.format("hudi").load(str(folder(lake)))
    for condition, keys in ((f"{PARTITION} LIKE '1970-01-%'", [2, 5]), (f"{PARTITION} = '1970-01-01.b'", [2])):
        assert sorted(key for (key,) in found.where(condition).select("id").collect()) == keys


def test_a_publish_writes_to_the_partitions_of_its_rows_alone(divide: Divide) -> None:
    """Of many partitions, those in which an old or a new row is."""
    days = [date(2026, 1, 1 + number) for number in range(25)]
    lake = divide("day(d)")
    lake.published(*((number, day, "x") for number, day in enumerate(days)))
    before = places(lake)
    assert set(before.values()) == set(map(str, days))
    alone(lake, lake.merge(lake.loaded(), (3, days[4], "y", False), (24, days[24], "z", False), pos=30))
    after = places(lake)
    assert {place for path, place in after.items() if path not in before} == set(map(str, (days[3], days[4], days[24])))


KEYED = {
    "integers": (COLUMNS, ("id",)),
    "two integers": (
        (replace(COLUMNS[0], name="a"), Column("b", Kind.UINT64, source_type("bigint unsigned"), nullable=False)),
        ("a", "b"),
    ),
    "texts": ((Column("k", Kind.STRING, source_type("varchar(99)"), nullable=False),), ("k",)),
}


@pytest.mark.long("publishes of Hudi, and repeats")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("keys", KEYED)
def test_whoever_publishes_each_row_is_once_in_its_partition(
    divide: Divide, lake_config: Config, monkeypatch: pytest.MonkeyPatch, keys: str, seed: int
) -> None:
    """Random changes, several of a key before a publish: by files, by a statement, in tasks, when read again."""
    chance = random.Random(seed)
    columns, key = KEYED[keys]
    columns = (*(column for column in columns if column.name in key), *COLUMNS[1:])
    known_by_kind: dict[str, list[tuple[Any, ...]]] = {
        "integers": [(n,) for n in range(-12, 12)],
        "two integers": [(a, Decimal(b)) for a in range(-3, 3) for b in range(4)],
        "texts": [(one,) for one in ODD],
    }
    known = known_by_kind[keys]
    lake = divide("day(d)", "truncate(1, v)", columns=columns, key=key)

    def drawn(one: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*one, chance.choice([OLD, EPOCH, NEW, None]), chance.choice(["", "a1", "a2", "b", "😀", "/", None]))

    rows = {one: drawn(one) for one in known[::2]}
    staged = lake.copied(*rows.values())
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    by_statement = merging(lake, lake_config, "statement")
    for number in range(8):
        staged = lake.loaded()
        if number == 4:
            staged = lake.wave(lake.started_over(staged), [*rows.values()])
            staged = lake.open().mark(staged, lake.leveled(staged, 100 * number + 20))
        for merge in range(chance.randint(1, 3)):
            chosen = chance.sample(known, chance.randint(1, 9))
            changes = {one: (*drawn(one), chance.random() < 0.3) for one in chosen}
            rows |= {one: change[:-1] for one, change in changes.items() if not change[-1]}
            rows = {one: row for one, row in rows.items() if one not in changes or not changes[one][-1]}
            staged = lake.merge(staged, *changes.values(), pos=100 * number + merge + 30)
        with monkeypatch.context() as patch:
            way = chance.choice(["alone", "statement", "too large"])
            if way == "too large":
                patch.setattr(row_delta, "MOST_BYTES", 1)
                patch.setattr(all_rows, "MOST_BYTES", 1)
                patch.setattr(all_rows, "_PASS_BYTES_OF_TASKS", 1)
            if way == "alone":
                alone(lake, staged)
            else:
                (by_statement if way == "statement" else lake).publish(staged)
        assert lake.open().count(lake.table, lake.loaded().version) == len(rows)
        assert places(lake)
        found = lake.spark.read.format("hudi").load(str(folder(lake)))
        read = sorted(tuple(row) for row in found.select(*key, "d", "v", PARTITION).collect())
        expected = [(*row, text_of(row)) for row in rows.values()]
        assert read == sorted(expected, key=lambda row: row[: len(key)])
        assert lake.rows(lake.loaded()) == sorted(rows.values(), key=lambda row: row[: len(key)])


def text_of(row: tuple[Any, ...]) -> str:
    """The partition of a row of two fields: its day, and the first letter of its text."""
    day, text = row[-2:]
    letter = {None: "NULL", "": "EMPTY"}.get(text, (text or "")[:1])
    coded = letter if letter.isascii() and letter.isalpha() else "".join(f"~{byte:02X}" for byte in letter.encode())
    return f"{day or 'NULL'}.{coded}"


@pytest.mark.long("publishes of Hudi")
def test_hudi_makes_the_same_table(divide: Divide) -> None:
    """Its properties, its columns, and in which folders and buckets the rows are."""
    lake, theirs = divide("day(d)", "v"), divide("day(d)", "v", merge="statement")
    for one in (lake, theirs):
        one.published(*ROWS)
    ours, made = properties(lake), properties(theirs)
    differing = {key: (ours.get(key), made.get(key)) for key in {*ours, *made} if ours.get(key) != made.get(key)}
    assert differing.keys() == SECRET, differing
    schemas = [commits(one)[0]["extraMetadata"]["schema"].replace(one.table.name, "") for one in (lake, theirs)]
    assert schemas[0] == schemas[1]
    assert sorted(places(lake).values()) == sorted(places(theirs).values())
    assert buckets_of_places(lake) == buckets_of_places(theirs)
    described = [sorted(described_partitions(one)) for one in (lake, theirs)]
    assert described[0] == described[1]


def buckets_of_places(lake: Lake) -> set[tuple[str, str]]:
    """The partition and the bucket of each file."""
    return {(partition, path.rpartition("/")[2][:8]) for path, partition in places(lake).items()}


def described_partitions(lake: Lake) -> set[tuple[str, int]]:
    """The folders that Hudi knows as partitions, each with the number of lines that say so."""
    return {
        (str(file.parent.relative_to(folder(lake))), file.read_text().count("partitionDepth=1"))
        for file in folder(lake).rglob(".hoodie_partition_metadata")
    }


@pytest.mark.long("publishes of Hudi")
@pytest.mark.parametrize("way", ["auto", "statement"])
def test_a_row_that_is_marked_as_deleted_is_in_one_partition(divide: Divide, lake_config: Config, way: str) -> None:
    """With the values that it had; when it comes back, it may be in another."""
    lake = divide("day(d)")
    lake.schema = replace(lake.schema, choices=replace(lake.schema.choices, deletes="soft"))
    staged = lake.created()
    rows = [(*row, False) for row in ROWS]
    lake.publish(lake.open().mark(staged := soft_wave(lake, staged, rows), lake.leveled(staged, 20)))
    lake = merging(lake, lake_config, way)
    lake.publish(lake.merge(lake.loaded(), (1, OLD, "a", True), (2, NEW, "b2", False), (5, EPOCH, "e", True), pos=30))
    lake.publish(lake.merge(lake.loaded(), (1, NEW, "again", False), (2, None, "b3", True), pos=40))
    found = lake.spark.read.format("hudi").load(str(folder(lake)))
    read = sorted(tuple(row) for row in found.select("id", "d", "v", DELETED, PARTITION).collect())
    assert read == [
        (1, NEW, "again", False, "2026-02-03"),
        (2, None, "b3", True, "NULL"),
        (3, None, "c", False, "NULL"),
        (4, NEW, "", False, "2026-02-03"),
        (5, EPOCH, "e", True, "1970-01-01"),
        (6, None, None, False, "NULL"),
    ]
    places(lake)


def soft_wave(lake: Lake, staged: Staged, rows: Sequence[tuple[Any, ...]]) -> Staged:
    """One wave with all rows, with the column that marks the deleted ones."""
    target = lake.open()
    progress = staged.progress.wave_committed((Split(KeyRange(None, None), START, Place(1, 1, 10)),), len(rows))
    return target.commit_wave(staged, [target.writer(lake.table).write(lake.changes(rows))], progress)


@pytest.mark.long("publishes of Hudi")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", ["auto", "statement"])
def test_a_publish_that_dies_is_repeated(
    divide: Divide, lake_config: Config, monkeypatch: pytest.MonkeyPatch, step: str, way: str
) -> None:
    """Readers see all rows in their old partitions, or all in their new ones; no file of the dead run stays."""
    lake = divide("day(d)")
    lake.published(*ROWS)
    staged = lake.merge(lake.loaded(), *MOVES, pos=30)
    die(monkeypatch, *STEPS[step])
    with pytest.raises(Crash):
        alone(lake, staged)
    monkeypatch.undo()
    is_visible = step.endswith(("gone", "swept"))
    assert_seen(lake, MOVED if is_visible else sorted(ROWS))
    lake = merging(lake, lake_config, way)
    loaded = lake.loaded()
    if not loaded.visible:
        lake.publish(loaded)
    assert_seen(lake, MOVED)
    lake.publish(lake.merge(lake.loaded(), *BACK, pos=40))
    assert_seen(lake, BACKED)
    assert_no_leftovers(lake)


@pytest.mark.long("repeats")
@pytest.mark.parametrize("step", ["before the first file", "between two files", "before the commit"])
def test_a_first_publish_that_dies_is_repeated(divide: Divide, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Nobody sees the table before."""
    lake = divide("day(d)")
    staged = lake.copied(*ROWS)
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    die(monkeypatch, *STEPS[step])
    with pytest.raises(Crash):
        alone(lake, staged)
    monkeypatch.undo()
    assert not folder(lake).exists()
    alone(lake, lake.loaded())
    assert_seen(lake, sorted(ROWS))
    assert_no_leftovers(lake)


def assert_no_leftovers(lake: Lake) -> None:
    """Each file of the table was written by one of its commits."""
    stats = [stat for one in commits(lake) for stats in one["partitionToWriteStats"].values() for stat in stats]
    written = {stat["path"] for stat in stats}
    assert {str(file.relative_to(folder(lake))) for file in folder(lake).rglob("*.parquet")} <= written | {
        str(file.relative_to(folder(lake))) for file in (folder(lake) / ".hoodie").rglob("*.parquet")
    }


@pytest.mark.long("two dozen publishes")
def test_hudi_archives_from_time_to_time(divide: Divide, lake_config: Config) -> None:
    """Rows move all the time, also with the publishes that Hudi makes; files of no commit are deleted."""
    lake = divide("day(d)", "truncate(1, v)")
    history = History.model_validate({"least": 2, "readers": "0s"})
    target = lake.settings.model_copy(update={"history": history})
    tables = Tables(include=("*.*",), options={"contract.*": TableOptions(partition_by=("day(d)", "truncate(1, v)"))})
    config = lake_config.model_copy(update={"target": target, "tables": tables})
    lake = replace(lake, settings=target, open=lambda: open_target(config, lambda: lake.spark))
    chance, days = random.Random(7), (OLD, EPOCH, NEW, None)
    rows = {n: (n, chance.choice(days), chance.choice("ab")) for n in range(12)}
    lake.published(*rows.values())
    for number in range(20):
        changed = [(n, chance.choice(days), chance.choice("abc")) for n in chance.sample(range(14), 3)]
        rows |= {row[0]: row for row in changed}
        lake.publish(lake.merge(lake.loaded(), *((*row, False) for row in changed), pos=30 + number))
        assert lake.open().count(lake.table, lake.loaded().version) == len(rows)
    assert_seen(lake, [rows[n] for n in sorted(rows)])
    assert any((folder(lake) / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    for _ in range(2):
        lake.publish(lake.open().maintain(lake.loaded()))
    files = [file for file in folder(lake).glob("*/*.parquet") if ".hoodie" not in file.parts]
    assert len(files) < 12 * 6
    assert_seen(lake, [rows[n] for n in sorted(rows)])


def test_partitions_follow_a_column_that_is_renamed(divide: Divide, lake_config: Config) -> None:
    """With a new column in the same DDL; pipeline.yml may have either name, also before the next publish."""
    lake = divide("day(d)")
    lake.publish(lake.merge(lake.published(*ROWS), *MOVES, pos=30))
    more = Column("n", Kind.INT32, source_type("int"), default=Value(7))
    named = replace(COLUMNS[1], name="at")
    after = replace(lake.schema, columns=(COLUMNS[0], named, COLUMNS[2], more))
    staged = lifted(lake, lake.loaded(), Lift(lake.schema, after, ("id", "d", "v", None)), 40)
    lake.schema = after
    staged = lake.merge(staged, (2, NEW, "b3", 5, False), (6, OLD, None, 6, False), pos=45)
    assert_still_seen(lake, MOVED)
    for text in ("day(at)", "day(d)"):
        renamed = divide(text)
        renamed.schema = lake.schema
        assert renamed.loaded() == staged
    lake.publish(staged)
    rows = {row[0]: (*row, 7) for row in MOVED} | {2: (2, NEW, "b3", 5), 6: (6, OLD, None, 6)}
    assert_seen(lake, [rows[key] for key in sorted(rows)])
    for text, key in (("day(at)", 1), ("day(d)", 3)):
        renamed = divide(text)
        renamed.schema = lake.schema
        rows[key] = (key, None, text, 1)
        renamed.publish(renamed.merge(renamed.loaded(), (*rows[key], False), pos=50 + key))
        merging(renamed, lake_config, "statement")
    assert_seen(lake, [rows[key] for key in sorted(rows)])
    unlike = divide("day(v)")
    unlike.schema = lake.schema
    with pytest.raises(PartitionsDiffer):
        unlike.loaded()


def assert_still_seen(lake: Lake, rows: Sequence[tuple[Any, ...]]) -> None:
    """Readers see the rows and the columns of before."""
    found = lake.spark.read.format("hudi").load(str(folder(lake)))
    assert sorted(map(tuple, found.select("id", "d", "v").collect()), key=lambda row: row[0]) == list(rows)


def test_a_partition_of_a_text_follows_its_column_to_another_type(divide: Divide) -> None:
    """All rows are read again, so each is put where the new value says."""
    lake = divide("v")
    staged = lake.published((1, OLD, "5"), (2, OLD, "x"))
    lake.schema = replace(lake.schema, columns=(*COLUMNS[:2], replace(COLUMNS[2], kind=Kind.INT64)))
    staged = lake.wave(lake.started_over(staged), [(1, OLD, 5), (2, OLD, -7), (3, None, None)])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 40)))
    assert assert_seen(lake, [(1, OLD, 5), (2, OLD, -7), (3, None, None)]) == {"5", "-7", "NULL"}


def test_a_long_value_is_a_folder_all_the_same(divide: Divide) -> None:
    """Its name ends with a digest; values that begin alike have folders of their own."""
    lake = divide("v")
    texts = ["x" * 300 + "1", "x" * 300 + "2", "😀" * 99, "_hidden", ".hidden", "..", "a b", "%2F", "=", "NULL"]
    lake.published(*((number, None, text) for number, text in enumerate(texts)))
    assert len(assert_seen(lake, [(number, None, text) for number, text in enumerate(texts)])) == len(texts)


@pytest.mark.long("clusterings by Spark")
def test_a_clustering_by_others_is_taken_back(divide: Divide, spark: SparkSession) -> None:
    """Its files are in the folders of the partitions; until the next publish readers see them."""
    lake = divide("year(d)")
    lake.published(*ROWS)
    before = places(lake)
    staged = lake.merge(lake.loaded(), *MOVES, pos=30)
    call(lake, spark, "run_clustering", op="scheduleAndExecute")
    assert_still_seen(lake, sorted(ROWS))
    files = {str(file.relative_to(folder(lake))) for file in folder(lake).glob("[!.]*/*.parquet")}
    assert files > before.keys()
    assert lake.loaded() == staged
    alone(lake, lake.loaded())
    assert_seen(lake, MOVED)
    assert_no_leftovers(lake)


@pytest.mark.long("Hudi's cleaner")
def test_a_point_keeps_the_files_of_all_partitions(divide: Divide, lake_config: Config, spark: SparkSession) -> None:
    """Also from somebody's cleaner."""
    lake = divide("day(d)")
    version = lake.published(*ROWS).version
    kept = open_points(lake_config).keep(lake.table, version, "nightly")
    for number in range(3):
        lake.publish(lake.merge(lake.loaded(), *(MOVES if number % 2 == 0 else BACK), pos=30 + number))
    spark.sql(f"CREATE TABLE cleaned USING hudi LOCATION '{folder(lake)}'")
    spark.sql(
        "CALL run_clean(table => 'cleaned', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1)"
    ).collect()
    spark.sql("DROP TABLE cleaned")
    old = spark.read.format("hudi").option("as.of.instant", kept.read_as).load(str(folder(lake)))
    assert sorted(tuple(row) for row in old.select("id", "v").where("id < 6").collect()) == [
        (key, v) for key, _, v in ROWS if key < 6
    ]
    assert_seen(lake, MOVED)


@pytest.mark.long("a statement of Spark")
def test_a_write_of_others_is_rolled_back(divide: Divide, lake_config: Config, spark: SparkSession) -> None:
    """Its files are gone from the folders of the partitions."""
    lake = divide("day(d)")
    lake.published(*ROWS)
    spark.sql(f"CREATE TABLE theirs USING hudi LOCATION '{folder(lake)}'")
    spark.sql("UPDATE theirs SET v = 'theirs' WHERE id = 2")
    spark.sql("DROP TABLE theirs")
    with pytest.raises(ForeignWrite):
        lake.loaded()
    rollbacks = open_rollbacks(lake_config)
    found = rollbacks.found(lake.table)
    assert found is not None
    rollbacks.roll_back(lake.table, found)
    assert_seen(lake, sorted(ROWS))
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, MOVED)
    assert_no_leftovers(lake)


@pytest.mark.long("starts another engine")
def test_hudi_rs_reads_the_rows_of_all_partitions(divide: Divide) -> None:
    """The column of partitions is one like the others."""
    lake = divide("month(d)", "v")
    lake.published(*ROWS)
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    read = HUDI_RS.read("", str(folder(lake))).select(["id", "d", "v"]).to_pylist()
    assert sorted((tuple(row.values()) for row in read), key=lambda row: row[0]) == MOVED


@pytest.mark.long("publishes of Hudi")
def test_a_table_that_others_changed_is_written_by_hudi(divide: Divide) -> None:
    """As exactly, and with its partitions."""
    lake = divide("day(d)")
    lake.published(*ROWS)
    give_another_form(lake)
    lake.publish(lake.merge(lake.loaded(), *MOVES, pos=30))
    assert_seen(lake, MOVED)
    lake.publish(lake.merge(lake.loaded(), *BACK, pos=40))
    assert_seen(lake, BACKED)
    staged = lake.wave(lake.started_over(lake.loaded()), [(1, NEW, "a"), (7, None, "g")])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 50)))
    assert_seen(lake, [(1, NEW, "a"), (7, None, "g")])


@pytest.mark.long("publishes of Hudi")
def test_a_copy_without_rows_gets_its_first_ones(divide: Divide) -> None:
    """No file tells its columns, so Hudi writes them."""
    lake = divide("day(d)")
    lake.published()
    lake.publish(lake.merge(lake.loaded(), *((*row, False) for row in ROWS), pos=30))
    assert_seen(lake, sorted(ROWS))
    alone(lake, lake.merge(lake.loaded(), *MOVES, pos=40))
    assert_seen(lake, MOVED)
    lake.publish(lake.merge(lake.loaded(), *((key, None, None, True) for key in (1, 2, 3, 5, 6, 9)), pos=50))
    assert assert_seen(lake, []) == set()
    alone(lake, lake.merge(lake.loaded(), (1, NEW, "a", False), pos=60))
    assert_seen(lake, [(1, NEW, "a")])
