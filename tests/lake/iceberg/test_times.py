"""Clocks that are wrong: the times in a table's metadata do not go back, and every reader can read it."""

import gzip
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config import Target
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from lakeingest.lake.iceberg.tables import times
from lakeingest.lake.iceberg.tables.times import OrderedCatalog
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.faults.clocks import clock_ahead
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake
from tests.servers.catalog_servers import TARGETS

NAME = ("shop", "orders")
AHEAD = (
    timedelta(minutes=3),
    timedelta(0),
    timedelta(days=-2),
    timedelta(days=40),
    timedelta(0),
    timedelta(minutes=-3),
)


def lake_on(settings: Target) -> Lake:
    """A table; no step of these tests needs Spark."""
    schema = TableSchema(TableId(*NAME), PLAIN, ("id",))
    return Lake(settings, lambda: IcebergTarget(settings), cast("SparkSession", None), schema, BOUNDARIES)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table in a warehouse on this machine's disk."""
    return lake_on(config.Target(warehouse=Place.of(tmp_path)))


@pytest.fixture(params=TARGETS)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table in each catalog that is a server."""
    with TARGETS[request.param](tmp_path) as doc:
        doc["catalog"]["name"] = "clocks"
        yield lake_on(Target.model_validate(doc))


def metadata(lake: Lake) -> TableMetadata:
    """What the catalog says now."""
    return open_catalog(lake.settings).load_table(NAME).metadata


def assert_in_order(found: TableMetadata) -> None:
    """As Iceberg's own library demands, which tolerates a minute; ours does not need it."""
    for log in (found.snapshot_log, found.metadata_log):
        times = [*(entry.timestamp_ms for entry in log), found.last_updated_ms]
        assert times == sorted(times)


def change(lake: Lake, number: int) -> None:
    """One more publish, by a process of its own."""
    lake.publish(lake.merge(lake.loaded(), (number, f"v{number}", False), pos=30 + number))


@pytest.mark.long("takes seconds")
def test_no_entry_is_before_the_last_one(lake: Lake) -> None:
    """Clocks jump by minutes and days, back and forth."""
    lake.published((1, "a"))
    for number, by in enumerate(AHEAD):
        with clock_ahead(by):
            change(lake, number)
        assert_in_order(metadata(lake))
    assert lake.open().count(lake.table, lake.loaded().version) == len(AHEAD)
    assert len(metadata(lake).snapshot_log) == len(AHEAD) + 2


@pytest.mark.long("takes seconds")
def test_two_machines_whose_clocks_disagree_take_turns(lake: Lake) -> None:
    """One is right, the other is two days ahead."""
    lake.published((1, "a"))
    for number, by in enumerate(itertools.islice(itertools.cycle((timedelta(0), timedelta(days=2))), 6)):
        with clock_ahead(by):
            change(lake, number)
    assert_in_order(metadata(lake))


def test_a_log_that_went_back_is_mended_by_the_next_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version of lakeingest has made it."""
    lake.published((1, "a"))
    with monkeypatch.context() as before:
        before.delattr(OrderedCatalog, "_update_and_stage_table")  # as it was before it was there
        before.setattr("lakeingest.lake.iceberg.commits.commit.not_before", lambda _, updates, __: updates)
        for number, by in enumerate((timedelta(hours=5), timedelta(0), timedelta(0))):
            with clock_ahead(by):
                change(lake, number)
        with pytest.raises(AssertionError):
            assert_in_order(metadata(lake))
    lake.open().mark(lake.loaded(), lake.loaded().progress)
    assert_in_order(metadata(lake))


@pytest.mark.spark
def test_spark_reads_a_table_after_the_clock_was_set_right(lake_of: Callable[..., Lake]) -> None:
    """Iceberg's library for Java looks at all times when it loads a table."""
    seen = lake_of()
    seen.published((1, "a"))
    for number, by in enumerate((timedelta(minutes=3), timedelta(0))):
        with clock_ahead(by):
            change(seen, number)
    assert seen.seen() == [(0, "v0"), (1, "v1")]


@pytest.mark.long("takes seconds")
@pytest.mark.spark
def test_changes_are_merged_without_a_statement_while_the_clock_is_behind(lake_of: Callable[..., Lake]) -> None:
    """Iceberg's library for Java would refuse its own commit."""
    stated = lake_of()
    settings = stated.settings.model_copy(update={"merge": "statement"})
    stated = replace(stated, settings=settings, open=lambda: IcebergTarget(settings, open_spark=lambda: stated.spark))
    stated.published((1, "a"))
    for number, by in enumerate((timedelta(days=2), timedelta(0))):
        with clock_ahead(by):
            change(stated, number)
    assert stated.seen() == [(0, "v0"), (1, "v1")]
    stated.publish(stated.merge(stated.loaded(), (0, None, True), (2, "new", False), pos=40))
    assert stated.seen() == [(1, "v1"), (2, "new")]


@pytest.mark.long("each catalog with clocks that jump")
def test_every_catalog_takes_the_commits_of_clocks_that_jump(anywhere: Lake) -> None:
    """A server that writes the metadata itself takes its own clock for some times."""
    anywhere.published((1, "a"))
    for number, by in enumerate(AHEAD):
        with clock_ahead(by):
            change(anywhere, number)
    assert_in_order(metadata(anywhere))
    assert anywhere.open().count(anywhere.table, anywhere.loaded().version) == len(AHEAD)


@pytest.mark.parametrize("setting", ["false", "true"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_metadata_are_written_as_pyiceberg_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, setting: str
) -> None:
    """Byte for byte, also compressed, and for readers that want -1 for a table without a snapshot."""
    times._writes_no_snapshot_as_minus_one.cache_clear()  # noqa: SLF001 - it reads the setting once for a process
    monkeypatch.setenv("PYICEBERG_LEGACY_CURRENT_SNAPSHOT_ID", setting)
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    found = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, tmp_path.as_uri())
    io, (ours, theirs) = DurableFileIO(), [tmp_path / f"{who}{ending}.metadata.json" for who in ("ours", "theirs")]
    try:
        OrderedCatalog._write_metadata(found, io, ours.as_uri())  # noqa: SLF001 - as PyIceberg's catalogs call it
    finally:
        times._writes_no_snapshot_as_minus_one.cache_clear()  # noqa: SLF001 - as above
    ToOutputFile.table_metadata(found, io.new_output(theirs.as_uri()))
    opened = gzip.decompress if ending else bytes
    assert opened(ours.read_bytes()) == opened(theirs.read_bytes())
    assert ('"current-snapshot-id":-1' in opened(ours.read_bytes()).decode()) is (setting == "true")
    with pytest.raises(FileExistsError):
        OrderedCatalog._write_metadata(found, io, ours.as_uri())  # noqa: SLF001 - as above
