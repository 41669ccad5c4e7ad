"""Tables of a test's own, in every format that there is."""

import itertools
from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config import Config
from lakeingest.core.schema import Column, TableId, TableSchema
from lakeingest.lake.iceberg import IcebergTarget
from lakeingest.lake.target import Target
from tests.lake.steps import PLAIN, Lake, Raw

TARGETS: dict[str, Callable[[config.Target], Target]] = {"iceberg": IcebergTarget}
BOUNDARIES = {"iceberg": {"commit": "_commit", "rename": "_show"}}
_numbers = itertools.count(1)


@pytest.fixture(params=TARGETS)
def lake_of(request: pytest.FixtureRequest, lake_config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """Call it with columns and a key: a table's name of its own, in each format."""

    def make(columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",)) -> Lake:
        schema = TableSchema(TableId("contract", f"t{next(_numbers)}"), columns, key)
        return Lake(lambda: TARGETS[request.param](lake_config.target), spark, schema, BOUNDARIES[request.param])

    return make


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table with an integer key and a text."""
    return lake_of()


@pytest.fixture(scope="session")
def catalog(lake_config: Config) -> SqlCatalog:
    """The Iceberg catalog itself, past our code."""
    lake_config.target.warehouse.mkdir(exist_ok=True)
    return SqlCatalog(config.CATALOG, **lake_config.target.pyiceberg_properties())


@pytest.fixture
def raw(lake: Lake, catalog: SqlCatalog) -> Raw:
    """Call it for the Iceberg table past our code; with BUILDING for the one that is not published yet."""
    return lambda suffix="": catalog.load_table((lake.table.database, lake.table.name + suffix))
