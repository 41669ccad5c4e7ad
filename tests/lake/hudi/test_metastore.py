"""Published tables are registered in a real metastore of Hive, and nothing else is."""

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hive_metastore import ttypes
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import CatalogAway, NotOurTable, UnsupportedTable
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi.last_commit import our_last_commit
from lakeingest.lake.hudi.metastore import Metastore
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.timeline import writes
from lakeingest.lake.metastore import TimedClient
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Crash, Lake
from tests.servers.hive_server import hive_server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.formats("hudi"),
    pytest.mark.long("needs another server, a metastore of Hive"),
]
DATABASE = "shop"
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A target with a metastore."""
    folder = tmp_path_factory.mktemp("hive")
    with hive_server(folder / "metastore") as uri:
        catalog = {"type": "hive", "uri": uri}
        yield Target.model_validate({"format": "hudi", "warehouse": str(folder / "lake"), "catalog": catalog})


@pytest.fixture
def lake_of(settings: Target, lake_config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """A function that makes a table under a new name."""
    config = lake_config.model_copy(update={"target": settings})

    def make() -> Lake:
        schema = TableSchema(TableId(DATABASE, f"t{next(numbers)}"), PLAIN, ("id",))
        return Lake(settings, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)

    return make


@pytest.fixture
def away(lake: Lake, lake_config: Config) -> Lake:
    """The same table, where the metastore does not answer."""
    catalog = {"type": "hive", "uri": "thrift://127.0.0.1:1"}
    doc = {"format": "hudi", "warehouse": str(lake.settings.warehouse), "catalog": catalog}
    config = lake_config.model_copy(update={"target": Target.model_validate(doc)})
    return replace(lake, settings=config.target, open=lambda: open_target(config, lambda: lake.spark))


def client(lake: Lake) -> TimedClient:
    """A connection to the metastore, past our code."""
    return TimedClient.of({"uri": lake.settings.catalog.address})


def registered(lake: Lake) -> Any:
    """What the metastore has under the table's name; None if nothing."""
    return client(lake).entry(DATABASE, lake.table.name)


def folder(lake: Lake) -> Local:
    """Where the table is."""
    return Local(lake.settings.folder(lake.table).path)


def last_commit(lake: Lake) -> str:
    """The time of the commit that readers see."""
    instant = our_last_commit(lake.table, folder(lake))
    assert instant is not None
    return instant.time


def assert_follows(lake: Lake, expected: Mapping[str, str] = {"id": "int", "v": "string"}) -> None:
    """The metastore has the table, its columns and its last commit."""
    found = registered(lake)
    assert found.sd.location == f"file:{folder(lake)}"
    assert found.sd.inputFormat == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    assert found.sd.serdeInfo.serializationLib.endswith("ParquetHiveSerDe")
    assert found.parameters["spark.sql.sources.provider"] == "hudi"
    assert found.parameters["last_commit_time_sync"] == last_commit(lake)
    columns = {column.name: column.type for column in found.sd.cols if not column.name.startswith("_hoodie_")}
    assert columns == expected


def all_tables(lake: Lake) -> set[str]:
    """The names of all tables of the database."""
    with client(lake) as asked:
        return set(asked.get_all_tables(DATABASE)) if DATABASE in asked.get_all_databases() else set()


def test_a_published_table_is_registered_and_followed(lake: Lake) -> None:
    """From its first publish on, which also makes the database; never what is being built."""
    before = all_tables(lake)
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    assert all_tables(lake) == before
    lake.publish(staged)
    assert all_tables(lake) == before | {lake.table.name}
    assert_follows(lake)
    first = last_commit(lake)
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    assert last_commit(lake) > first
    assert_follows(lake)
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_an_interrupted_first_publish_is_registered_by_the_next_run(lake: Lake) -> None:
    """It finishes the first publish, and a commit of progress alone tells the metastore."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    before = all_tables(lake)
    with pytest.raises(Crash):
        lake.publish(staged, target=lake.dying_before("rename"))
    assert all_tables(lake) == before
    found = lake.loaded()
    assert all_tables(lake) == before
    assert not found.visible
    lake.publish(found)
    assert_follows(lake)
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a")]


@pytest.mark.parametrize("asks", ["our client", "the tool of Hudi"])
def test_a_metastore_that_is_away_loses_no_publish(
    lake: Lake, away: Lake, asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the commit by its folder, once; the next run registers it, though no row has changed."""
    lake.published((1, "a"))
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    with monkeypatch.context() as patch:
        if asks != "our client":
            patch.setattr(Metastore, "assert_ours", lambda *_: None)
        with pytest.raises(CatalogAway, match=r"thrift://127\.0\.0\.1:1 does not answer"):
            lake.publish(staged, target=away.open())
    assert lake.seen() == [(1, "a"), (2, "b")]
    assert len(writes(folder(lake))) == 2
    assert registered(lake).parameters["last_commit_time_sync"] < last_commit(lake)
    found = lake.loaded()
    assert (found.published, found.visible) == (staged.version, False)
    assert found.progress.position == staged.progress.position
    lake.publish(found)
    assert_follows(lake)
    assert lake.loaded().visible
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_a_first_publish_without_the_metastore_is_registered_later(lake: Lake, away: Lake) -> None:
    """The table is in its folder; the metastore has it with the next publish."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    with pytest.raises(CatalogAway):
        lake.publish(staged, target=away.open())
    assert lake.seen() == [(1, "a")]
    assert registered(lake) is None
    lake.publish(lake.loaded())
    assert_follows(lake)


def test_a_check_says_that_the_metastore_is_away(lake: Lake, away: Lake) -> None:
    """As for a catalog on a server: nobody can tell whether the lake exists."""
    assert lake.open().exists()
    with pytest.raises(CatalogAway):
        away.open().exists()
    with pytest.raises(CatalogAway):
        away.open().inspect(lake.table)


def test_a_table_in_another_folder_is_never_touched(lake: Lake, tmp_path: Path) -> None:
    """It is refused by name before anything is published, and by a publish, if it was made meanwhile."""
    staged = lake.open().mark(lake.copied((1, "a")), lake.leveled(lake.loaded(), 20))
    make(lake, tmp_path, {"spark.sql.sources.provider": "hudi"})
    before = registered(lake)
    for ask in (lake.open().inspect, lake.open().recover):
        with pytest.raises(NotOurTable, match=rf"{DATABASE}\.{lake.table.name} in thrift://.* is no copy"):
            ask(lake.table)
    with pytest.raises(NotOurTable):
        lake.publish(staged)
    assert registered(lake) == before
    drop(lake)
    lake.publish(lake.loaded())
    assert_follows(lake)


def test_a_table_that_is_none_of_hudi_is_never_touched(lake: Lake) -> None:
    """Though it is in our folder: someone reads it in another way."""
    lake.published((1, "a"))
    staged = lake.merge(lake.loaded(), (2, "b", False), pos=30)
    drop(lake)
    make(lake, folder(lake), {})
    before = registered(lake)
    with pytest.raises(NotOurTable):
        lake.open().inspect(lake.table)
    with pytest.raises(NotOurTable):
        lake.publish(staged)
    assert registered(lake) == before


def test_a_table_that_is_copied_again_has_its_new_columns(lake: Lake) -> None:
    """Also a column with another type, which a metastore does not let alter."""
    lake.published((1, "a"), (2, "b"))
    shutil.rmtree(folder(lake))
    assert lake.open().recover(lake.table) is None
    columns = (PLAIN[0], replace(PLAIN[0], name="v"), replace(PLAIN[1], name="more"))
    again = replace(lake, schema=replace(lake.schema, columns=columns))
    again.published((1, 5, "x"))
    assert_follows(again, {"id": "int", "v": "int", "more": "string"})
    assert again.seen() == [(1, 5, "x")]


def drop(lake: Lake) -> None:
    """Someone drops the table from the metastore."""
    with client(lake) as asked:
        asked.drop_table(dbname=DATABASE, name=lake.table.name, deleteData=False)


def make(lake: Lake, place: Path, parameters: dict[str, str]) -> None:
    """Someone else's table under the same name."""
    serde = ttypes.SerDeInfo(serializationLib="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe")
    columns = [ttypes.FieldSchema("id", "int", None)]
    storage = ttypes.StorageDescriptor(cols=columns, location=place.as_uri(), serdeInfo=serde, parameters={})
    table = ttypes.Table(lake.table.name, DATABASE, "someone", 1, 1, 0, storage, [], {"EXTERNAL": "TRUE", **parameters})
    table.tableType = "EXTERNAL_TABLE"
    with client(lake) as asked:
        if DATABASE not in asked.get_all_databases():
            asked.create_database(ttypes.Database(DATABASE, "", (place / "db").as_uri(), {}))
        asked.create_table(table)


def test_a_name_that_a_metastore_would_change_is_refused(lake: Lake) -> None:
    """It has small letters only."""
    schema = replace(lake.schema, table=TableId(DATABASE, "Orders"))
    with pytest.raises(UnsupportedTable, match=r"only names of a-z, 0-9 and _, not shop\.Orders"):
        lake.open().types(schema)


def test_partitions_are_registered_with_the_table(
    lake: Lake, settings: Target, lake_config: Config, spark: SparkSession
) -> None:
    """By the column that Hudi knows as the partition; those that are new follow."""
    options = {f"{DATABASE}.*": TableOptions(partition_by=("truncate(1, v)",))}
    config = lake_config.model_copy(update={"target": settings, "tables": Tables(include=("*.*",), options=options)})
    lake = replace(lake, open=lambda: open_target(config, lambda: spark))
    lake.published((1, "a"), (2, None))
    found = registered(lake)
    assert [(column.name, column.type) for column in found.partitionKeys] == [(PARTITION, "string")]
    assert partitions(lake) == {"a": "a", "NULL": "NULL"}
    lake.publish(lake.merge(lake.loaded(), (1, "b/c", False), (3, "%", False), pos=30))
    assert partitions(lake) == {"a": "a", "NULL": "NULL", "b": "b", "~25": "~25"}
    assert registered(lake).parameters["last_commit_time_sync"] == last_commit(lake)
    assert lake.seen() == [(1, "b/c"), (2, None), (3, "%")]


def partitions(lake: Lake) -> dict[str, str]:
    """The folder of each partition by its value."""
    with client(lake) as asked:
        found = asked.get_partitions(DATABASE, lake.table.name, -1)
    return {one.values[0]: one.sd.location.removeprefix(f"file:{folder(lake)}/") for one in found}
