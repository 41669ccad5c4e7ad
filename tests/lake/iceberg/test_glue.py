"""What is special about Glue: names, a first publish in two steps, and other tables beside ours."""

from collections.abc import Iterator

import boto3  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import CatalogAway, NotOurTable, StorageFailed, UnsupportedTable
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.lake.conftest import building, lake_named
from tests.lake.steps import PLAIN, Crash, Lake
from tests.servers.catalog_servers import TARGETS, add_catalog

pytestmark = [pytest.mark.spark, pytest.mark.long("a catalog that needs two more servers")]


@pytest.fixture(scope="module")
def settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A target on Glue."""
    with TARGETS["glue on s3"](tmp_path_factory.mktemp("glue")) as doc:
        doc["catalog"]["name"] = "on_glue"
        found = Target.model_validate(doc)
        add_catalog(spark, found)
        yield found


@pytest.fixture
def lake(request: pytest.FixtureRequest, settings: Target, lake_config: Config, spark: SparkSession) -> Lake:
    """A table with an integer key and a text."""
    return lake_named(request, settings, lake_config, spark, "glue")


def glue(settings: Target) -> boto3.client:
    """Glue itself, past Iceberg."""
    uri = settings.catalog.plain_properties["glue.endpoint"]
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client("glue", endpoint_url=uri, region_name="us-east-1", **keys)


def names(settings: Target) -> set[str]:
    """All names of tables there."""
    return {one["Name"] for one in glue(settings).get_tables(DatabaseName="glue")["TableList"]}


def test_a_publish_that_died_between_two_names_is_finished(
    lake: Lake, settings: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both names lead to the table; the next run drops the other one, and no file of the table."""
    staged = lake.copied((1, "a"))
    target = lake.open()
    staged = target.mark(staged, lake.leveled(staged, 20))

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as dying:
        dying.setattr(target._catalog, "drop_table", die)  # type: ignore[attr-defined] # noqa: SLF001
        lake.publish(staged, target)
    name = lake.table.name
    [other] = building(target._catalog, lake)  # type: ignore[attr-defined] # noqa: SLF001
    assert {name, other} <= names(settings)
    found = lake.loaded()
    assert found.version == found.published == staged.version
    assert other not in names(settings)
    lake.publish(lake.merge(found, (1, "b", False), pos=30))
    assert lake.seen() == [(1, "b")]


@pytest.mark.parametrize("name", ["Orders", "a-b", "prices €"])
def test_a_name_that_glue_cannot_have_is_refused(lake: Lake, name: str) -> None:
    """Glue would fold it to lower case, or refuse it in Spark alone."""
    with pytest.raises(UnsupportedTable, match="has only names of a-z, 0-9 and _, not glue"):
        lake.open().types(TableSchema(TableId("glue", name), PLAIN, ("id",)))


def test_a_table_of_another_format_under_our_name_is_not_ours(lake: Lake, settings: Target) -> None:
    """It is not touched."""
    lake.open().recover(lake.table)
    client = glue(settings)
    if "glue" not in {one["Name"] for one in client.get_databases()["DatabaseList"]}:
        client.create_database(DatabaseInput={"Name": "glue"})
    client.create_table(DatabaseName="glue", TableInput={"Name": lake.table.name, "Parameters": {"table_type": "HUDI"}})
    with pytest.raises(NotOurTable, match=r"glue\.\w+ exists and is no copy"):
        lake.open().recover(lake.table)


@pytest.mark.parametrize(
    ("properties", "error"),
    [({"glue.endpoint": "http://127.0.0.1:1"}, CatalogAway), ({"glue.profile-name": "nobody"}, StorageFailed)],
)
def test_a_glue_that_is_away_or_refuses_is_named(
    lake: Lake, settings: Target, properties: dict[str, str], error: type[Exception]
) -> None:
    """Exit code 75 where another try helps, else 3."""
    doc = {"catalog": {"type": "glue", "properties": {**settings.catalog.plain_properties, **properties}}}
    wrong = settings.model_copy(update={"catalog": Target.model_validate(doc).catalog})
    with pytest.raises(error, match="the catalog of type glue"):
        IcebergTarget(wrong).recover(lake.table)
