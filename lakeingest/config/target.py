"""Where tables go: `target` of pipeline.yml."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import quote as encode

from pydantic import Field

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen
from lakeingest.config.place import Place, uri
from lakeingest.core.keys import quote
from lakeingest.core.schema import TableId

CATALOG = "lake"  # the catalog's name in Spark and PyIceberg, and so in users' queries


class Catalog(Frozen):
    """How tables are found by name. `type` None: SQLite in the warehouse for Iceberg, folders of it for Hudi."""

    type: Literal["sql", "rest", "glue", "hive", "path"] | None = None


class History(Frozen):
    """How long a published commit can still be read after a later commit has replaced it.

    The last `least` published commits are never removed, whatever their age.
    """

    keep: Duration = timedelta(days=5)
    least: int = Field(default=20, ge=1)


class Target(Frozen):
    """Where tables go, and how long older commits can be read."""

    format: Literal["iceberg", "hudi"] = "iceberg"
    catalog: Catalog = Catalog()
    warehouse: Place = Field(default=Path("./warehouse"), validate_default=True)
    table: str = "{database}.{table}"
    history: History = History()

    @property
    def catalog_file(self) -> Path:
        """The SQLite file of the embedded catalog."""
        return self.warehouse / "catalog.db"

    def identifier(self, table: TableId) -> tuple[str, str]:
        """The namespace and the name of a table's target."""
        namespace, _, name = self.table.partition(".")  # a database's name may have a dot, too
        named = {"database": table.database, "table": table.name}
        return namespace.format(**named), name.format(**named)

    def source_of(self, namespace: str, name: str) -> TableId | None:
        """The table whose target has this identifier; None if no table of a source can have it."""
        pattern = re.escape(self.table.replace(".", "\0", 1))
        for field in ("database", "table"):
            group = re.escape("{" + field + "}")
            pattern = pattern.replace(group, f"(?P<{field}>.+)", 1).replace(group, f"(?P={field})")
        found = re.fullmatch(pattern, f"{namespace}\0{name}", re.DOTALL)
        return None if found is None else TableId(found["database"], found["table"])

    def folder(self, table: TableId) -> Path:
        """The folder of a table. A character that a file name must not have is percent-encoded."""
        return self.warehouse.joinpath(*(encode(part, safe=" ") for part in self.identifier(table)))

    def name(self, table: TableId) -> str:
        """The table's name as users query it, or the folder that they load."""
        if self.format == "hudi":
            return str(self.folder(table))
        return ".".join(part if part.isidentifier() else quote(part) for part in (CATALOG, *self.identifier(table)))

    def pyiceberg_properties(self) -> dict[str, str]:
        """The properties of PyIceberg's SqlCatalog."""
        return {"uri": f"sqlite:///{self.catalog_file}", "warehouse": self.warehouse.as_uri()}

    def spark_properties(self) -> dict[str, str]:
        """The Spark settings of the format. Never both formats in a session: their extensions conflict."""
        if self.format == "hudi":
            return {
                "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
                "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
                # days and times before 1582 are not rebased
                "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
                "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
                "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            }
        catalog = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.catalog_file}",
        }
        if self.catalog.type == "glue":
            catalog = {
                "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            }
        prefix = f"spark.sql.catalog.{CATALOG}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{key}": value for key, value in catalog.items()},
            f"{prefix}.warehouse": uri(self.warehouse),
            f"{prefix}.cache-enabled": "false",  # PyIceberg's commits must be seen at once
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        }
