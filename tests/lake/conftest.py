"""Tables of a test's own, in every format that there is."""

import itertools
from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config import Config, Target
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.tables.schema import Column, TableId, TableSchema
from lakeingest.lake.formats import open_target
from lakeingest.lake.marks import BUILDING
from tests.lake.clocks import Clock
from tests.lake.divided import COLUMNS, Divide
from tests.lake.steps import PLAIN, Lake, Raw

BOUNDARIES = {
    "iceberg": {"commit": "_commit", "rename": "_entries.give_name"},
    "hudi": {"commit": "_commit", "rename": "_give_name"},
}
numbers = itertools.count(1)


def lake_named(
    request: pytest.FixtureRequest, settings: Target, lake_config: Config, spark: SparkSession, database: str
) -> Lake:
    """A table with an integer key and a text, under the name of the test, on another target than the session's."""
    config = lake_config.model_copy(update={"target": settings})
    schema = TableSchema(TableId(database, request.node.name.partition("[")[0][-40:]), PLAIN, ("id",))
    return Lake(settings, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)


@pytest.fixture
def lake_of(lake_config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """A function that makes a table with these columns and this key, under a new name."""

    def make(columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",)) -> Lake:
        schema = TableSchema(TableId("contract", f"t{next(numbers)}"), columns, key)
        return Lake(lake_config.target, lambda: open_target(lake_config, lambda: spark), spark, schema, BOUNDARIES)

    return make


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table with an integer key and a text."""
    return lake_of()


@pytest.fixture
def divide(lake_config: Config, spark: SparkSession) -> Divide:
    """Call it with partitions for a new table, which has COLUMNS by default. `merge` is the way of merges."""

    def make(
        *texts: str, columns: tuple[Column, ...] = COLUMNS, key: tuple[str, ...] = ("id",), merge: str = "auto"
    ) -> Lake:
        schema = TableSchema(TableId("contract", f"divided{next(numbers)}"), columns, key)
        tables = Tables(include=("*.*",), options={"contract.*": TableOptions(partition_by=texts)})
        target = lake_config.target.model_copy(update={"merge": merge})
        config = lake_config.model_copy(update={"tables": tables, "target": target})
        return Lake(target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)

    return make


@pytest.fixture(scope="session")
def catalog(lake_config: Config) -> SqlCatalog:
    """The Iceberg catalog itself, past our code."""
    lake_config.target.warehouse.path.mkdir(exist_ok=True)
    return SqlCatalog(config.CATALOG, **lake_config.target.pyiceberg_properties())


@pytest.fixture
def raw(lake: Lake, catalog: SqlCatalog) -> Raw:
    """Call it for the Iceberg table past our code; with BUILDING for the one that is not published yet."""

    def load(suffix: str = "") -> Table:
        name = lake.table.name
        if suffix == BUILDING:
            found = building(catalog, lake)
            if not found:
                raise NoSuchTableError(name)
            [name] = found
        return catalog.load_table((lake.table.database, name))

    return load


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still, for removals that wait."""
    return Clock(monkeypatch)


def building(catalog: Catalog, lake: Lake) -> list[str]:
    """The names under which the table is being built."""
    listed = [name for *_, name in catalog.list_tables((lake.table.database,))]
    return [name for name in listed if name.startswith(lake.table.name + BUILDING)]
