"""The lake formats as values: what other rooms know about a format.

A format's package under `lake/` reads and writes its tables; all other facts about it are here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakeingest.config.place import uri
from lakeingest.core.keys import quote
from lakeingest.core.schema import TableId

if TYPE_CHECKING:
    from lakeingest.config.target import Target

FormatName = Literal["iceberg", "hudi"]
CATALOG = "lake"  # the catalog's name in Spark and PyIceberg, and so in users' queries
EXTENSIONS = "spark.sql.extensions"


@dataclass(frozen=True, slots=True)
class Format:
    """A lake format.

    `catalog` and `cluster_catalog` are the default types of catalog, the second for a Spark on a cluster. `jars` are
    Maven coordinates: the format first, then what its embedded catalog needs. `settings` are those of a Spark session.
    `table_name` is the name that users query, or the folder that they load. `sample_queries` count the rows of a table,
    by the tool's name: SQL for Spark, Python for every other tool.
    """

    catalog: str
    cluster_catalog: str
    jars: tuple[str, ...]
    settings: Callable[["Target"], dict[str, str]]
    table_name: Callable[["Target", TableId], str]
    sample_queries: Callable[["Target", TableId], Mapping[str, str]]


def _iceberg_settings(target: "Target") -> dict[str, str]:
    catalog = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{target.catalog_file}",
    }
    if target.catalog.type == "glue":
        catalog = {
            "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        }
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in catalog.items()},
        f"{prefix}.warehouse": uri(target.warehouse),
        f"{prefix}.cache-enabled": "false",  # PyIceberg's commits must be seen at once
        EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }


def _iceberg_name(target: "Target", table: TableId) -> str:
    return ".".join(part if part.isidentifier() else quote(part) for part in (CATALOG, *target.identifier(table)))


def _iceberg_queries(target: "Target", table: TableId) -> Mapping[str, str]:
    name = ".".join(target.identifier(table))
    arguments = ", ".join(f"{key}='{value}'" for key, value in target.pyiceberg_properties().items())
    opened = (
        "from pyiceberg.catalog.sql import SqlCatalog; "
        f"scan = SqlCatalog('{CATALOG}', {arguments}).load_table('{name}').scan()"
    )
    return {
        "PyIceberg": f"{opened}; print(scan.to_arrow().num_rows)",
        "Spark": f"SELECT COUNT(*) FROM {target.name(table)}",
        "DuckDB": f"{opened}; print(scan.to_duckdb('t').sql('SELECT COUNT(*) FROM t'))",
    }


def _hudi_settings(_: "Target") -> dict[str, str]:
    return {
        EXTENSIONS: "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        # dates and times unchanged, also those before 1582
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def _hudi_name(target: "Target", table: TableId) -> str:
    return str(target.folder(table))


def _hudi_queries(target: "Target", table: TableId) -> Mapping[str, str]:
    view = f"CREATE TEMPORARY VIEW t USING hudi OPTIONS (path '{target.name(table)}')"
    return {"Spark": f"{view}; SELECT COUNT(*) FROM t"}


FORMATS: Mapping[FormatName, Format] = {
    "iceberg": Format(
        catalog="sql",
        cluster_catalog="glue",  # SQLite is a file of one machine
        jars=("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0"),
        settings=_iceberg_settings,
        table_name=_iceberg_name,
        sample_queries=_iceberg_queries,
    ),
    "hudi": Format(
        catalog="path",
        cluster_catalog="path",
        jars=("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),
        settings=_hudi_settings,
        table_name=_hudi_name,
        sample_queries=_hudi_queries,
    ),
}
