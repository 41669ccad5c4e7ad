"""What is special about tables in an object store: listing, probing, and a store that does not answer."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.errors import StateUnreadable, StorageAway, StorageFailed
from lakeingest.lake.formats import unwritable
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.lake.conftest import lake_named
from tests.lake.steps import Lake
from tests.servers.catalog_servers import TARGETS, add_catalog

pytestmark = pytest.mark.spark

NOBODY = {"s3.access-key-id": SecretStr("nobody"), "s3.secret-access-key": SecretStr("wrong")}


@pytest.fixture(scope="module")
def settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A target in S3 with a REST catalog."""
    with TARGETS["rest on s3"](tmp_path_factory.mktemp("s3")) as doc:
        doc["catalog"]["name"] = "in_s3"
        found = Target.model_validate({**doc, "history": {"readers": "0s"}})
        add_catalog(spark, found)
        yield found


@pytest.fixture
def lake(request: pytest.FixtureRequest, settings: Target, lake_config: Config, spark: SparkSession) -> Lake:
    """A table with an integer key and a text."""
    return lake_named(request, settings, lake_config, spark, "s3")


def elsewhere(settings: Target, **changed: object) -> Target:
    """The target with another storage."""
    return settings.model_copy(update={"storage": settings.storage.model_copy(update=changed)})


@pytest.mark.long("takes seconds")
def test_files_without_a_commit_are_deleted(lake: Lake) -> None:
    """No file that a snapshot needs; and nothing that is young."""
    lake.publish(lake.merge(lake.published((1, "a"), (2, "b")), (2, "c", False), pos=30))
    target = lake.open()
    target.writer(lake.table).write(lake.arrow([(3, "left by a killed task")]))
    assert target.remove_leftovers(lake.table, timedelta(days=1)) == (0, 0)
    removed, freed = target.remove_leftovers(lake.table, timedelta(0))
    assert removed == 1
    assert freed > 100
    assert lake.seen() == lake.rows(lake.loaded()) == [(1, "a"), (2, "c")]


@pytest.mark.long("tries a store again for a while")
def test_a_store_that_does_not_answer_is_away(lake: Lake, settings: Target) -> None:
    """Exit code 75: nothing is wrong with the table, which goes on when the store is back."""
    staged = lake.published((1, "a"))
    away = IcebergTarget(elsewhere(settings, endpoint="http://127.0.0.1:1"))
    with pytest.raises(StorageAway, match="the store does not answer, or fails"), away.storage_errors():
        lake.merge(staged, (1, "b", False), target=away)
    lake.publish(lake.merge(staged, (1, "b", False), pos=30))
    assert lake.seen() == [(1, "b")]


@pytest.mark.long("a store and a session of its own")
def test_an_object_that_is_gone_is_named(lake: Lake) -> None:
    """Whoever reads it: PyArrow, or Spark."""
    staged = lake.copied((1, "a"))
    raw = lake.open()._table(lake.table)  # type: ignore[attr-defined] # noqa: SLF001
    [task] = raw.scan(snapshot_id=staged.version).plan_files()
    raw.io.delete(task.file.file_path)
    with pytest.raises(StateUnreadable, match="gone or damaged"), lake.open().storage_errors():
        lake.merge(staged, (1, "b", False))
    with pytest.raises(StateUnreadable, match="gone or damaged"), lake.open().storage_errors():
        lake.rows(staged)


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"endpoint": "http://127.0.0.1:1"}, "NETWORK_CONNECTION"),
        (
            {"properties": {"s3.access-key-id": SecretStr("x"), "s3.secret-access-key": SecretStr("y")}},
            "No user exists",
        ),
    ],
)
@pytest.mark.long("tries a store again for a while", only=("NETWORK_CONNECTION",))
def test_check_says_why_the_warehouse_cannot_be_written(
    settings: Target, lake_config: Config, changed: dict[str, object], finding: str
) -> None:
    """A small object is written and deleted; nothing of it is left."""
    assert unwritable(lake_config.model_copy(update={"target": settings})) is None
    found = unwritable(lake_config.model_copy(update={"target": elsewhere(settings, **changed)}))
    assert found is not None
    assert finding in found
    assert "correct target.storage" in found


def test_a_store_that_refuses_has_to_be_put_right(lake: Lake, settings: Target) -> None:
    """Exit code 3: another try would be refused, too."""
    staged = lake.copied((1, "a"))
    secret = {**settings.storage.properties, "s3.secret-access-key": SecretStr("wrong")}
    wrong = IcebergTarget(elsewhere(settings, properties=secret))
    with pytest.raises(StorageFailed, match="cannot be read or written"), wrong.storage_errors():
        lake.merge(staged, (1, "b", False), target=wrong)
