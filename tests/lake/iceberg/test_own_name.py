"""A REST server that neither renames nor registers: a table has its own name from the start, and an empty main."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import NotOurTable, StaleWriter
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.commits.creation import make_at_once
from lakeingest.lake.iceberg.tables.evolution import Form
from lakeingest.lake.iceberg.tables.history import STATE
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import lake_named
from tests.lake.steps import PLAIN, Lake
from tests.servers.catalog_servers import TARGETS, add_catalog

pytestmark = [pytest.mark.spark, pytest.mark.long("a catalog of its own")]


@pytest.fixture(scope="module")
def settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A target on such a server."""
    with TARGETS["rest without names"](tmp_path_factory.mktemp("own")) as doc:
        doc["catalog"]["name"] = "own_names"
        found = Target.model_validate(doc)
        add_catalog(spark, found)
        yield found


@pytest.fixture
def lake(request: pytest.FixtureRequest, settings: Target, lake_config: Config, spark: SparkSession) -> Lake:
    """A table with an integer key and a text."""
    return lake_named(request, settings, lake_config, spark, "own")


def raw(lake: Lake) -> Table:
    """The table as any reader finds it."""
    return open_catalog(lake.settings).load_table(lake.settings.identifier(lake.table))


def half_made(lake: Lake, schema: TableSchema | None = None) -> None:
    """What a run leaves that is killed between the creation and the first commit."""
    catalog = open_catalog(lake.settings)
    catalog.create_namespace_if_not_exists("own")
    make_at_once(
        catalog, lake.settings.identifier(lake.table), schema or lake.schema, Form({}, {}), lake.settings, None
    )


def test_readers_see_an_empty_table_with_the_property_until_the_publish(lake: Lake) -> None:
    """One commit moves main and removes the property."""
    staged = lake.copied((1, "a"))
    assert raw(lake).properties[STATE] == "bootstrapping"
    assert raw(lake).scan().to_arrow().num_rows == 0
    assert lake.open().inspect(lake.table) == staged
    before = raw(lake)
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    lake.publish(staged)
    after = raw(lake)
    assert STATE not in after.properties
    assert len(after.metadata.metadata_log) - len(before.metadata.metadata_log) == 2  # the mark, and the publish
    assert lake.seen() == [(1, "a")]
    assert lake.loaded().published == staged.version


def test_a_table_that_was_only_created_is_begun_by_the_next_run(lake: Lake) -> None:
    """It has no snapshot; nothing looks at it as at a copy."""
    half_made(lake)
    uuid = raw(lake).metadata.table_uuid
    assert lake.open().inspect(lake.table) is None
    assert lake.open().recover(lake.table) is None
    lake.published((1, "a"))
    assert lake.seen() == [(1, "a")]
    assert raw(lake).metadata.table_uuid == uuid


def test_a_table_that_was_begun_with_other_columns_is_refused(lake: Lake) -> None:
    """It is not dropped, because someone could publish it at the same time."""
    more = Column("w", Kind.INT64, source_type("bigint"))
    half_made(lake, TableSchema(lake.table, (*PLAIN, more), ("id",)))
    with pytest.raises(NotOurTable, match=r"was begun with other columns .* drop it"):
        lake.created()


def test_a_discarded_copy_keeps_its_entry(lake: Lake) -> None:
    """Its progress is gone, in a commit; the copy that is made next is in the same table."""
    old = lake.copied((1, "old"))
    uuid = raw(lake).metadata.table_uuid
    lake.open().discard(lake.table)
    assert lake.open().recover(lake.table) is None
    with pytest.raises(StaleWriter):
        lake.open().discard(lake.table)
    with pytest.raises(StaleWriter):
        lake.open().mark(old, old.progress)
    lake.published((2, "new"))
    assert raw(lake).metadata.table_uuid == uuid
    assert lake.seen() == [(2, "new")]


def test_a_table_that_lost_its_branch_is_copied_again(lake: Lake) -> None:
    """As one under a name for building is."""
    lake.copied((1, "a"))
    raw(lake).manage_snapshots().remove_branch("lakeingest").commit()
    assert lake.open().recover(lake.table) is None
    lake.published((2, "b"))
    assert lake.seen() == [(2, "b")]


def _create(lake_settings: Target, schema: TableSchema, barrier: Barrier, progress: object) -> None:
    target = IcebergTarget(lake_settings)
    assert target.recover(schema.table) is None
    barrier.wait()
    try:
        target.create(schema, progress)  # type: ignore[arg-type]
    except StaleWriter:
        raise SystemExit(3) from None


def test_of_processes_that_begin_a_table_one_wins(lake: Lake) -> None:
    """In each of several rounds."""
    context = multiprocessing.get_context("spawn")
    lake.created()
    staged = lake.loaded()
    for _ in range(5):
        lake.open().discard(lake.table)
        barrier = context.Barrier(2)
        given = (lake.settings, lake.schema, barrier, staged.progress)
        runs = [context.Process(target=_create, args=given) for _ in range(2)]
        for run in runs:
            run.start()
        for run in runs:
            run.join(600)
        assert sorted(-1 if run.exitcode is None else run.exitcode for run in runs) == [0, 3]
        assert lake.loaded().progress == staged.progress
