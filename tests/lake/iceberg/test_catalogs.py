"""The contract of `lake.target.Target` on catalogs that are servers, and on S3."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.core.tables.schema import Column, TableId, TableSchema
from lakeingest.errors import CatalogAway
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.tables import expiry
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake
from tests.lake.test_target import *  # noqa: F403 - the same contract
from tests.servers.catalog_servers import TARGETS, add_catalog
from tests.servers.lakes import target_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long("the contract that each format keeps in every run, on other catalogs", only=tuple(TARGETS)),
]

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=TARGETS)
def settings(
    request: pytest.FixtureRequest, lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A target whose catalog is on a server; the running session has that catalog beside its own."""
    name = request.param.replace(" ", "_")
    with TARGETS[request.param](tmp_path_factory.mktemp(name)) as doc:
        doc["catalog"]["name"] = name
        doc["properties"] = target_of("iceberg").get("properties", {})
        found = Target.model_validate(doc)
        add_catalog(spark, found)
        yield found


@pytest.fixture
def lake_of(settings: Target, lake_config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """A function that makes a table with these columns and this key, under a new name."""
    config = lake_config.model_copy(update={"target": settings})

    def make(columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",)) -> Lake:
        schema = TableSchema(TableId("contract", f"t{next(_numbers)}"), columns, key)
        return Lake(settings, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)

    return make


@pytest.mark.long("takes seconds")
def test_snapshots_that_are_due_are_removed(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Local) -> None:
    """As in SQLite: by the next commit. Someone moves a tag to one of them right before: that one stays."""
    monkeypatch.setattr(expiry, "WORTH", 4)
    history = lake.settings.history.model_validate({"keep": "0s", "least": 1})
    settings = lake.settings.model_copy(update={"history": history})
    target = IcebergTarget(settings, waiting=tmp_path)
    others = open_catalog(settings)
    moved: list[int] = []

    def table() -> Table:
        return others.load_table(settings.identifier(lake.table))

    def send(*request: Any) -> CommitTableResponse:
        if not moved and any(isinstance(one, RemoveSnapshotsUpdate) for one in request[2]):
            moved.append(max(next(one.snapshot_ids for one in request[2] if isinstance(one, RemoveSnapshotsUpdate))))
            table().manage_snapshots().remove_tag("audit").commit()
            table().manage_snapshots().create_tag(moved[0], "audit").commit()
        return sent(*request)

    sent = target._catalog.commit_table  # noqa: SLF001 - others are faster than this request
    monkeypatch.setattr(target._catalog, "commit_table", send)  # noqa: SLF001
    staged = lake.published((0, "a"))
    table().manage_snapshots().create_tag(staged.version, "audit").commit()
    for number in range(1, 6):
        staged = lake.publish(lake.merge(staged, (number, "a", False), pos=100 + number, target=target), target)
    left = {one.snapshot_id for one in table().metadata.snapshots}
    assert {*moved, staged.version} <= left
    assert table().metadata.refs["audit"].snapshot_id == moved[0]
    assert len(left) <= 1 + 4 + 2
    assert lake.seen() == [(number, "a") for number in range(6)]


def test_a_rest_catalog_that_is_away_is_named_where_spark_asks_it(spark: SparkSession) -> None:
    """As where PyIceberg does; the port is closed."""
    catalog = {"type": "rest", "name": "nobody", "uri": "http://127.0.0.1:1"}
    target = Target.model_validate({"catalog": catalog})
    add_catalog(spark, target)
    for ask in (lambda: spark.table("nobody.a.b"), lambda: open_catalog(target)):
        with (
            pytest.raises(CatalogAway, match=r"^http://127\.0\.0\.1:1 does not answer"),
            storage_errors("", target.catalog_place),
        ):
            ask()
