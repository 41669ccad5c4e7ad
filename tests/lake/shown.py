"""What readers of a lake see, past our code."""

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import DataFrame, SparkSession

from lakeingest.config import Target
from lakeingest.config.formats import table_name
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.lake.hudi.folder import is_table
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.lake.hudi.record_key import RECORD_KEY
from tests.servers.engines import HUDI_RS


def shown(spark: SparkSession, settings: Target, table: TableId) -> DataFrame:
    """The table's rows as a user reads them; without the columns that Hudi, or we for Hudi, add."""
    if settings.format == "iceberg":
        return spark.table(table_name(settings, table))
    rows = spark.read.format("hudi").load(table_name(settings, table))
    added = {RECORD_KEY, PARTITION}.union(name for name in rows.columns if name.startswith("_hoodie_"))
    return rows.select(*(f"`{name}`" for name in rows.columns if name not in added))


def catalog_of(settings: Target) -> Catalog:
    """The Iceberg catalog itself; to be closed."""
    return load_catalog(settings.catalog.name, **{"type": "sql", **settings.pyiceberg_properties()})


def is_shown(spark: SparkSession, settings: Target, table: TableId) -> bool:
    """Whether there is such a table, and it does not say that it is still being built."""
    if settings.format == "iceberg":
        name = table_name(settings, table)
        return spark.catalog.tableExists(name) and not _is_bootstrapping(spark, name)
    return is_table(files.at(settings.folder(table), settings.storage))


def _is_bootstrapping(spark: SparkSession, name: str) -> bool:
    found = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    if found.get("lakeingest.state") != "bootstrapping":
        return False
    assert spark.table(name).count() == 0
    return True


class Poller:
    """Polls a table with an `id` as PyIceberg or hudi-rs finds it.

    `seen` has each state that it saw once: the columns, then the rows.
    """

    def __init__(self, target: Target, table: TableId) -> None:
        self._target, self._table = target, table
        self.seen = list[tuple[object, ...]]()

    def poll(self, _: int, is_over: Callable[[], bool]) -> None:
        """Until it is over; whatever fails, fails the test."""
        while not is_over():
            self.look()

    def look(self) -> None:
        """Once."""
        found = self._rows()
        rows = sorted(found.to_pylist(), key=lambda row: row["id"])
        now = (tuple(found.column_names), *(tuple(row.values()) for row in rows))
        if now not in self.seen:
            self.seen.append(now)

    def _rows(self) -> pa.Table:
        if self._target.format == "hudi":
            found = HUDI_RS.read("", str(self._target.folder(self._table)))
            added = {RECORD_KEY, PARTITION}.union(name for name in found.column_names if name.startswith("_hoodie_"))
            return found.select([name for name in found.column_names if name not in added])
        with catalog_of(self._target) as catalog:
            table = catalog.load_table(str(self._table))
            return table.scan().to_arrow().select([field.name for field in table.schema().fields])
