"""The lake formats as values: everything about a format that the code outside of `lake/` has to know.

The format's package under `lake/` only reads and writes tables.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakeingest.config.catalog_kinds import kind_of
from lakeingest.config.spark_line import spark_line
from lakeingest.config.storage import S3A_JARS
from lakeingest.config.stores import STORES, store_of
from lakeingest.config.target import FormatName, Target
from lakeingest.core.tables.change import DATABASE, TABLE
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import OperatorNeeded

EXTENSIONS = "spark.sql.extensions"


@dataclass(frozen=True, slots=True)
class Format:
    """A lake format.

    `stores`: the URI schemes of the object stores that can hold tables of the format.
    `catalogs`: the types of catalogs that the format can use, the default first.
    `cluster_catalogs`: the types of catalogs that the format can use if Spark runs on a cluster.
    `by_line`: the Maven coordinates of the format's jar, by the line of Spark (such as 3.5).
    `extension`: the class of the format's Spark extension.
    `jars`: the Maven coordinates of all jars that a session needs.
    `settings`: all settings that a session needs.
    `keeps_by_age`: commits are kept for `target.history.keep` even if the user does not set this key.
    `table_name`: the name of a table that users query, or the folder that they load.
    `sample_queries`: queries that count the rows of a table, by the tool's name; SQL for Spark, Python for other tools.
    """

    stores: tuple[str, ...]
    catalogs: tuple[str, ...]
    cluster_catalogs: tuple[str, ...]
    by_line: Mapping[str, str]
    extension: str
    jars: Callable[[Target], tuple[str, ...]]
    settings: Callable[[Target], dict[str, str]]
    keeps_by_age: bool
    table_name: Callable[[Target, TableId], str]
    sample_queries: Callable[[Target, TableId], Mapping[str, str]]

    @property
    def by_folder(self) -> bool:
        """Whether readers find tables by their folders, even if a catalog names the tables, too."""
        return "path" in self.catalogs

    @property
    def jar(self) -> str:
        """The Maven coordinates of the format's jar for the installed Spark. Raises OperatorNeeded if there is none."""
        line = spark_line()
        if line not in self.by_line:
            raise OperatorNeeded(
                f"lakeingest knows no jar of this table format for Spark {line}, only for Spark"
                f" {' and '.join(self.by_line)}; set spark.jars to `provided` where the service has it, or to a path"
            )
        return self.by_line[line]


def _iceberg_settings(target: Target) -> dict[str, str]:
    """The Spark settings of the catalog. A property of the catalog overrides the same property of the store."""
    prefix = f"spark.sql.catalog.{target.catalog.name}"
    catalog_properties = kind_of(target.catalog).spark(target.catalog, target.warehouse)
    properties = _store_properties(target) | catalog_properties
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in properties.items()},
        f"{prefix}.cache-enabled": "false",  # so that Spark sees commits of PyIceberg at once
        EXTENSIONS: _ICEBERG_EXTENSION,
    }


def _store_properties(target: Target) -> dict[str, str]:
    scheme, storage = target.warehouse.scheme, target.storage
    return {} if scheme is None else storage.properties_with(store_of(scheme).spark(storage))


def _iceberg_jars(target: Target) -> tuple[str, ...]:
    scheme = target.warehouse.scheme
    jars_of_store = () if scheme is None else (store_of(scheme).jar,)
    return FORMATS["iceberg"].jar, *kind_of(target.catalog).jars, *jars_of_store


def _iceberg_name(target: Target, table: TableId) -> str:
    parts = target.catalog.name, *target.shown(table)
    return ".".join(part if part.isascii() and part.isidentifier() else quote(part) for part in parts)


def _iceberg_queries(target: Target, table: TableId) -> Mapping[str, str]:
    """The queries that count the rows of an Iceberg table; each Python query first loads the catalog."""
    name = ".".join(target.shown(table))
    if target.catalog.is_embedded:
        properties = (f"{key}='{value}'" for key, value in target.pyiceberg_properties().items())
        arguments = ", ".join([f"'{target.catalog.name}'", *properties])
        scan = f"from pyiceberg.catalog.sql import SqlCatalog; catalog = SqlCatalog({arguments}); "
    else:  # the catalog's properties are not printed, because some are secrets
        scan = (
            "from pathlib import Path; from lakeingest import load_config; from pyiceberg.catalog import load_catalog;"
            " target = load_config(Path('pipeline.yml')).target;"
            f" catalog = load_catalog('{target.catalog.name}', **target.pyiceberg_properties()); "
        )
    rows = _of_shard(target, table)
    scan += f"scan = catalog.load_table('{name}').scan({repr(rows) if rows else ''})"
    where = f" WHERE {rows}" if rows else ""
    return {
        "PyIceberg": f"{scan}; print(scan.to_arrow().num_rows)",
        "Spark": f"SELECT COUNT(*) FROM {table_name(target, table)}{where}",
        "DuckDB": f"{scan}; print(scan.to_duckdb('t').sql('SELECT COUNT(*) FROM t'))",
    }


def _of_shard(target: Target, table: TableId) -> str:
    """The condition of the rows of a shard in the table that readers query; '' for all rows of that table."""
    # only texts of the characters in _PLAIN are written alike in the queries of all tools
    are_plain = all(_PLAIN.fullmatch(part) for part in (table.database, table.name))
    if not target.is_shard(table) or not are_plain:
        return ""
    return f"{DATABASE} = '{table.database}' AND {TABLE} = '{table.name}'"


def _hudi_settings(target: Target) -> dict[str, str]:
    """The Spark settings of Hudi tables; those of Hadoop's client only for a warehouse in an object store."""
    hadoop = {} if target.warehouse.scheme is None else target.storage.hadoop()
    return {
        **{f"spark.hadoop.{key}": value for key, value in hadoop.items()},
        EXTENSIONS: _HUDI_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        # write and read dates and times unchanged, also those before 1582, without a change of the calendar
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def _hudi_name(target: Target, table: TableId) -> str:
    return target.folder(table).hadoop


def _hudi_queries(target: Target, table: TableId) -> Mapping[str, str]:
    view = f"CREATE TEMPORARY VIEW t USING hudi OPTIONS (path '{table_name(target, table)}')"
    return {"Spark": f"{view}; SELECT COUNT(*) FROM t"}


_PLAIN = re.compile(r"[\w$ .-]+")
_ICEBERG_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_HUDI_EXTENSION = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
FORMATS: Mapping[FormatName, Format] = {
    "iceberg": Format(
        stores=tuple(STORES),
        catalogs=("sql", "rest", "glue", "hive"),
        cluster_catalogs=("glue", "rest", "sql", "hive"),  # sql with a uri, because SQLite is a file of one machine
        by_line={
            "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
            "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        },
        extension=_ICEBERG_EXTENSION,
        jars=_iceberg_jars,
        settings=_iceberg_settings,
        keeps_by_age=True,
        table_name=_iceberg_name,
        sample_queries=_iceberg_queries,
    ),
    "hudi": Format(
        stores=("s3", "s3a"),  # S3A_JARS has Hadoop's client for these alone
        catalogs=("path", "hive"),  # hive: a metastore also names the tables, which are in folders as with `path`
        cluster_catalogs=("path", "hive"),
        by_line={
            "3.5": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
            "4.1": "org.apache.hudi:hudi-spark4.1-bundle_2.13:1.2.0",  # not tested: docs/reference/platforms.md
        },
        extension=_HUDI_EXTENSION,
        jars=lambda target: (FORMATS["hudi"].jar, *(() if target.warehouse.scheme is None else S3A_JARS)),
        settings=_hudi_settings,
        keeps_by_age=False,
        table_name=_hudi_name,
        sample_queries=_hudi_queries,
    ),
}


def table_name(target: Target, table: TableId) -> str:
    """The name of a table that users query, or the folder that they load."""
    return FORMATS[target.format].table_name(target, table)


def spark_properties(target: Target) -> dict[str, str]:
    """The Spark settings of the target's format, and of no other format.

    The extensions of two formats in one session would damage each other's tables.
    """
    return FORMATS[target.format].settings(target)
