"""What readers of a lake see, past our code."""

from pyspark.sql import DataFrame, SparkSession

from lakeingest.config import Target
from lakeingest.core.schema import TableId


def shown(spark: SparkSession, settings: Target, table: TableId) -> DataFrame:
    """The table's rows as a user reads them; without the columns that Hudi adds."""
    if settings.format == "iceberg":
        return spark.table(settings.name(table))
    rows = spark.read.format("hudi").load(settings.name(table))
    return rows.select(*(f"`{name}`" for name in rows.columns if not name.startswith("_hoodie_")))


def is_shown(spark: SparkSession, settings: Target, table: TableId) -> bool:
    """Whether there is such a table."""
    if settings.format == "iceberg":
        return spark.catalog.tableExists(settings.name(table))
    return settings.folder(table).exists()
