"""Hudi's tables and their staging in S3: the contract of `lake.target.Target`, and what is special about a store."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote as encode

import pytest
from py4j.protocol import Py4JJavaError
from pydantic import SecretStr
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakeingest.config import Config
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.demo.s3 import LocalS3
from lakeingest.errors import (
    ForeignWrite,
    NotOurTable,
    StaleWriter,
    StateUnreadable,
    StorageAway,
    StorageFailed,
)
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.stored import Stored
from lakeingest.lake.formats import open_target, unwritable
from lakeingest.lake.hudi import all_rows
from lakeingest.lake.hudi.folder import location
from lakeingest.lake.hudi.publication import Publication
from lakeingest.lake.hudi.table_form import PROPERTIES, record_key_of
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.marks import BUILDING
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import BOUNDARIES
from tests.lake.iceberg.test_lift import lifted
from tests.lake.steps import PLAIN, Crash, Lake
from tests.lake.test_owners import *  # noqa: F403 - the same races
from tests.lake.test_target import *  # noqa: F403 - the same contract
from tests.servers.stores import hadoop_reaches, storage_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.formats("hudi"),
    pytest.mark.long("Hudi's contract again, on a store"),
]

_numbers = itertools.count(1)


@pytest.fixture
def config(lake_config: Config, spark: SparkSession, s3: LocalS3) -> Config:
    """A pipeline with warehouse and state in S3; the running session reaches the store."""
    target = lake_config.target.model_copy(
        update={"warehouse": Place.of(f"s3://{s3.bucket}/warehouse"), "storage": storage_of(s3)}
    )
    hadoop_reaches(spark, target)
    return lake_config.model_copy(update={"target": target, "state": Place.of(f"s3://{s3.bucket}/state")})


@pytest.fixture
def lake_of(config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """A function that makes a table with these columns and this key, under a new name."""

    def make(columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",), name: str | None = None) -> Lake:
        schema = TableSchema(TableId("contract", name or f"t{next(_numbers)}"), columns, key)
        return Lake(config.target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)

    return make


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table with an integer key and a text."""
    return lake_of()


def folder(lake: Lake) -> Stored:
    """Where readers find the table."""
    found = files.at(lake.settings.folder(lake.table), lake.settings.storage)
    assert isinstance(found, Stored)
    return found


def building(lake: Lake) -> Stored:
    """Where it is until its first publish."""
    return folder(lake).parent / (folder(lake).name + BUILDING)


def staging(lake: Lake) -> File:
    """The folder of ours."""
    target = lake.open()
    assert isinstance(target, HudiTarget)
    return target._folder / encode(str(lake.table), safe=" ")  # noqa: SLF001 - what is in it is under test


def remove(place: File) -> None:
    """What someone does who drops a table, or loses a folder."""
    files.delete_all(place.tree())


def ready(lake: Lake) -> Any:
    """A copy that only has to be published."""
    return lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))


@pytest.mark.parametrize("copied", ["nothing", "a part", "all but its properties"])
def test_an_interrupted_first_publish_is_finished(lake: Lake, copied: str) -> None:
    """The copy has its name when all its files are there; until then no reader finds a table."""
    staged = ready(lake)
    with pytest.raises(Crash):
        lake.publish(staged, target=lake.dying_before("rename"))
    every = [file for file in building(lake).tree() if file.name != "hoodie.properties" and file.size()]
    for file in {"nothing": [], "a part": every[::2]}.get(copied, every):
        file.copy_to(folder(lake) / str(file).removeprefix(f"{building(lake)}/"))
    with pytest.raises((AnalysisException, Py4JJavaError)):
        lake.seen()
    assert lake.open().inspect(lake.table) == replace(staged, published=staged.version)
    assert lake.loaded() == replace(staged, published=staged.version)
    assert lake.seen() == [(1, "a")]
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]
    assert building(lake).tree() == []


def test_a_table_that_was_dropped_is_copied_again(lake: Lake) -> None:
    """Also if the run that gave it its name had no time to remove the folder before."""
    lake.published((1, "old"))
    other = replace(lake, schema=replace(lake.schema, table=TableId("contract", f"{lake.table.name}x")))
    with pytest.raises(Crash):
        other.publish(ready(other), target=other.dying_before("rename"))
    assert other.loaded().visible
    for one in (lake, other):
        remove(folder(one))
        found = one.open().recover(one.table)  # staging is there until a publish has swept it
        assert found is None or found.published is None
        if found is not None:
            one.open().discard(one.table)
        one.publish(one.open().mark(one.copied((1, "new")), one.leveled(one.loaded(), 40)))
        assert one.seen() == [(1, "new")]


def test_nothing_is_left_of_a_first_publish_and_of_staging(lake: Lake) -> None:
    """Each object is the table's own, or a commit of staging; those that stand for folders go, too."""
    lake.publish(lake.merge(lake.published((1, "a")), (2, "b", False), pos=30))
    assert building(lake).tree() == []
    assert len(staging(lake).tree()) == 1


def test_files_that_were_read_back_are_swept(lake: Lake) -> None:
    """Spark writes them as a folder; readers of them find the rows, and the next publish removes them."""
    staged = lake.merge(lake.published((1, "a"), (2, "b")), (2, "c", False), pos=30)
    [readers] = lake.open().readers(staged, ("id", "v"), [None])
    found = [row for reader in readers for row in reader.read().to_pylist()]
    assert sorted(row["v"] for row in found) == ["a", "c"]
    assert lake.open().remove_leftovers(lake.table, timedelta(days=1)) == (0, 0)
    count, size = lake.open().remove_leftovers(lake.table, timedelta(seconds=-5))
    assert count > 0
    assert size > 0
    lake.publish(staged)
    assert len(staging(lake).tree()) == 1
    assert lake.seen() == [(1, "a"), (2, "c")]


def test_the_loss_of_the_staging_folder_changes_nothing_visible(lake: Lake) -> None:
    """The table itself is the checkpoint: its progress is in its commit."""
    published = lake.published((1, "a"))
    lake.merge(lake.loaded(), (2, "staged, then lost", False), pos=30)
    remove(staging(lake))
    found = lake.loaded()
    assert (found.version, found.published, found.visible) == (published.version, published.version, True)
    lake.publish(lake.merge(found, (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_staging_whose_removal_was_interrupted_counts_as_dropped(lake: Lake) -> None:
    """Its first commits are gone, others and their files are there: they belong to no table, and go away."""
    lake.copied((1, "a"))
    staging(lake).listed("*.json")[0].delete()
    assert lake.open().inspect(lake.table) is None
    assert lake.open().recover(lake.table) is None
    assert staging(lake).tree() == []


def test_a_commit_that_was_not_completed_is_repeated(lake: Lake) -> None:
    """Readers see the commit before it, and the next write goes on from that."""
    lake.published((1, "a"), (2, "b"))
    lake.publish(lake.merge(lake.loaded(), (2, "B", False), (3, "c", False), pos=30))
    (folder(lake) / ".hoodie" / "timeline").listed("*_*.commit")[-1].delete()
    remove(staging(lake))
    assert lake.seen() == [(1, "a"), (2, "b")]
    lake.publish(lake.merge(lake.loaded(), (2, "B", False), (3, "c", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "B"), (3, "c")]


def test_a_superseded_publish_fails_by_name(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run has published since, and so Hudi has rolled back what this one was writing."""
    lake.published((1, "a"))
    staged = lake.merge(lake.loaded(), (1, "zombie", False), pos=30)

    def overtaken(*_: object) -> None:
        monkeypatch.undo()
        remove(staging(lake))
        lake.publish(lake.merge(lake.loaded(), (1, "theirs", False), pos=40))
        raise RuntimeError("the inflight file does not exist")

    monkeypatch.setattr(Publication, "publish_by_files", overtaken)
    with pytest.raises(StaleWriter, match="another writer published"):
        lake.publish(staged)
    assert lake.seen() == [(1, "theirs")]


def test_someone_elses_table_or_rows_are_refused(lake: Lake, lake_of: Callable[..., Lake]) -> None:
    """Objects under the name, a table of theirs, a write of theirs, and a table without commits."""
    stranger = folder(lake) / "their.parquet"
    stranger.write(b"theirs")
    for step in (lake.open().recover, lake.open().inspect):
        with pytest.raises(NotOurTable, match=f"is no copy of {lake.table}"):
            step(lake.table)
    stranger.delete()
    lake.published((1, "a"))
    rows = lake.spark.createDataFrame([(2, "theirs")], "id int, v string")
    given = {"hoodie.table.name": lake.table.name, "hoodie.datasource.write.recordkey.field": "id"}
    rows.write.format("hudi").options(**given).mode("append").save(location(folder(lake)))
    with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote commit"):
        lake.open().recover(lake.table)
    theirs = lake_of()
    rows.write.format("hudi").options(**given).mode("append").save(location(folder(theirs)))
    with pytest.raises(NotOurTable, match=f"is no copy of {theirs.table}"):
        theirs.open().recover(theirs.table)
    emptied = lake_of()
    emptied.published((1, "a"))
    remove(folder(emptied) / ".hoodie" / "timeline")
    with pytest.raises(ForeignWrite, match="has no commit"):
        emptied.open().recover(emptied.table)


def test_a_damaged_file_stops_the_table(lake: Lake) -> None:
    """It is named, and nothing is published on it."""
    staged = lake.merge(lake.published((1, "a"), (2, "b")), (1, "A", False), pos=30)
    file = max(folder(lake).listed("*.parquet"), key=lambda file: file.size())
    whole = file.read()
    for left in (None, whole[:-1]):
        file.delete()
        if left is not None:
            file.write(left)
        with pytest.raises(StateUnreadable, match=f"{file} (is gone|has [0-9]+ bytes)"):
            lake.publish(staged)
    file.write(whole)
    lake.publish(staged)
    assert lake.seen() == [(1, "A"), (2, "b")]


def test_the_lake_names_its_tables(lake: Lake) -> None:
    """Published ones, and those that only staging has."""
    assert (lake.table.database, lake.table.name) not in lake.open().names()
    lake.copied((1, "a"))
    assert (lake.table.database, lake.table.name) in lake.open().names()
    lake.publish(lake.open().mark(lake.loaded(), lake.leveled(lake.loaded(), 20)))
    remove(staging(lake))
    assert (lake.table.database, lake.table.name) in lake.open().names()


def test_a_name_may_have_other_letters(lake_of: Callable[..., Lake]) -> None:
    """They are in the name of the folder as they are."""
    lake = lake_of(name="größe$1-x")
    lake.publish(lake.merge(lake.published((1, "a")), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]
    assert (lake.table.database, lake.table.name) in lake.open().names()


def test_check_says_why_the_warehouse_cannot_be_written(config: Config) -> None:
    """A small object is written and deleted."""
    assert unwritable(config) is None
    wrong = {**config.target.storage.properties, "s3.secret-access-key": SecretStr("wrong")}
    storage = config.target.storage.model_copy(update={"properties": wrong})
    found = unwritable(config.model_copy(update={"target": config.target.model_copy(update={"storage": storage})}))
    assert found is not None
    assert "correct target.storage" in found


def test_failures_of_the_store_are_named(lake: Lake, config: Config, spark: SparkSession) -> None:
    """By our client and by Hadoop's: 75 if it does not answer, 3 if it refuses."""
    staged = lake.copied((1, "a"))
    lake.rows(staged)
    wrong_key = {**config.target.storage.properties, "s3.secret-access-key": SecretStr("no")}
    changes: list[tuple[str, dict[str, Any], type[Exception]]] = [
        ("away", {"endpoint": "http://127.0.0.1:1"}, StorageAway),
        ("refused", {"properties": wrong_key}, StorageFailed),
    ]
    for bucket, changed, expected in changes:
        storage = config.target.storage.model_copy(update=changed)
        target = config.target.model_copy(
            update={"warehouse": Place.of(f"s3://{bucket}/warehouse"), "storage": storage}
        )
        conf: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        for key, value in storage.hadoop().items():
            conf.set(key.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}."), value)
        wrong = open_target(config.model_copy(update={"target": target, "state": Place.of(f"s3://{bucket}/state")}))
        with pytest.raises(expected, match="s3://"):
            wrong.recover(lake.table)
        with pytest.raises(expected), wrong.storage_errors():
            spark.read.parquet(f"s3a://{bucket}/any.parquet").count()


def test_a_publish_has_its_marks(lake: Lake) -> None:
    """The position and the complete progress are in Hudi's own commit."""
    first = lake.published((1, "a"), pos=20)
    properties = lake.open().properties(lake.table)
    assert properties["lakeingest.version"] == str(first.version)
    assert json.loads(properties["lakeingest.progress"])["position"]["at"] == "binlog.000001:20"
    assert lake.open().inventory(lake.table).files >= 1
    assert (folder(lake) / PROPERTIES).exists()


def test_tasks_write_a_table_that_is_too_large_for_one_process(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first files, and all of them after DDL: each task reads and writes in the store itself."""
    monkeypatch.setattr(all_rows, "MOST_BYTES", 0)
    monkeypatch.setattr(all_rows, "_PASS_BYTES_OF_TASKS", 1)
    staged = lake.published(*((n, str(n)) for n in range(50)))
    assert lake.seen() == [(n, str(n)) for n in range(50)]
    new = Column("w", Kind.INT32, source_type("int"), default=Value(None))
    lift = Lift(lake.schema, replace(lake.schema, columns=(*PLAIN, new)), ("id", "v", None), frozenset())
    staged = lifted(lake, staged, lift, 30)
    lake.schema = lift.after
    lake.publish(lake.merge(staged, (1, "one", 1, False), (2, None, None, True), pos=40))
    assert lake.seen() == [(0, "0", None), (1, "one", 1), *((n, str(n), None) for n in range(3, 50))]


def test_a_key_of_integers_gets_another_name(lake: Lake) -> None:
    """The properties of the table name it right after the commit, and merges find its rows."""
    staged = lake.published((1, "a"), (2, "b"), (3, "c"))
    after = replace(lake.schema, columns=(replace(PLAIN[0], name="number"), *PLAIN[1:]), key=("number",))
    staged = lifted(lake, staged, Lift(lake.schema, after, ("id", "v"), frozenset()), 30)
    lake.schema = after
    lake.publish(lake.merge(staged, (1, "one", False), (2, None, True), pos=40))
    assert record_key_of(folder(lake)) == ("number",)
    lake.publish(lake.merge(lake.loaded(), (1, None, True), (3, "three", False), (4, "d", False), pos=50))
    assert lake.seen() == [(3, "three"), (4, "d")]


def test_rows_move_between_partitions(lake_of: Callable[..., Lake], config: Config, spark: SparkSession) -> None:
    """The files are below the names of their partitions, from the first publish on; also after one that died."""
    options = {"contract.*": TableOptions(partition_by=("truncate(1, v)",))}
    divided = config.model_copy(update={"tables": Tables(include=("*.*",), options=options)})
    lake = replace(lake_of(), open=lambda: open_target(divided, lambda: spark))
    staged = lake.copied((1, "a"), (2, "b/c"), (3, None))
    with pytest.raises(Crash):
        lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)), target=lake.dying_before("rename"))
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a"), (2, "b/c"), (3, None)]
    lake.publish(lake.merge(lake.loaded(), (1, "/", False), (2, None, False), (3, "b", False), (4, "a", False), pos=30))
    assert lake.seen() == [(1, "/"), (2, None), (3, "b"), (4, "a")]
    below = [str(file).removeprefix(f"{folder(lake)}/") for file in folder(lake).tree()]
    assert {name.partition("/")[0] for name in below if "/" in name} == {".hoodie", "a", "b", "NULL", "~2F"}
    lake.publish(lake.open().maintain(lake.loaded()))
    assert lake.seen() == [(1, "/"), (2, None), (3, "b"), (4, "a")]
