"""The tables beside a copy, as views of Spark: its history, and its changes. And the copy's rows as of a place."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakeingest.commands.past import rows_of_history
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.binlog.position import Place
from lakeingest.core.companions.companion import SUFFIXES, companion_of
from lakeingest.core.tables.schema import TableId

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # its types are another package
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, repr=False)
class Beside:
    """The tables beside a copy, as views that a notebook can query.

    The views are `history` and, on Iceberg, `changelog`; the keys `history: scd2` and `changelog: {table: true}` of the
    configuration make their tables. `missing`: the views that the format of the lake does not have.
    """

    config: Config
    table: str
    spark: "SparkSession"
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config, table: str, spark: "SparkSession") -> Self:
        """Make the views of the tables that a run has written beside the copy of this table."""
        missing = () if config.changelog.table else ("changelog",)  # the key is set if the format has such a table
        for suffix in SUFFIXES:
            if suffix not in missing:
                name = table_name(config.target, companion_of(TableId.parse(table), suffix))
                _read(spark, config.target.format, name).createOrReplaceTempView(suffix)
        return cls(config, table, spark, missing)

    def sql(self, query: str) -> "pd.DataFrame | str":
        """The answer of Spark. If the query is about a view that is missing, a text says so."""
        for name in self.missing:
            if name in query:
                return f"tables of this format have no {name} as a table; `lakeingest {name}` prints the rows"
        return self.spark.sql(query).toPandas()

    def as_of(self, place: Place) -> pa.Table:
        """The rows of the table as of a place in the binlog, from its history, in the order of the key."""
        return rows_of_history(self.config, self.table, place)

    def __repr__(self) -> str:
        views = ", ".join(name for name in SUFFIXES if name not in self.missing)
        return f"views of Spark: {views}"


def _read(spark: "SparkSession", lake_format: str, name: str) -> "DataFrame":
    """The rows of a table in the lake. `name`: its name or, for Hudi, its folder."""
    return spark.table(name) if lake_format == "iceberg" else spark.read.format("hudi").load(name)
