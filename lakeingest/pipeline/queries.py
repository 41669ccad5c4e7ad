"""How to query what a pipeline has written."""

import sys
from pathlib import Path

import pyspark

from lakeingest.config import CATALOG, Config
from lakeingest.core.schema import TableId
from lakeingest.spark.session import JARS, java_home


def queries(config: Config, table: TableId) -> tuple[str, str, str]:
    """A command for PyIceberg, for Spark and for DuckDB that counts the table's rows."""
    name = ".".join(config.target.identifier(table))
    arguments = ", ".join(f"{key}='{value}'" for key, value in config.target.pyiceberg_properties().items())
    opened = (
        "from pyiceberg.catalog.sql import SqlCatalog; "
        f"scan = SqlCatalog('{CATALOG}', {arguments}).load_table('{name}').scan()"
    )
    settings = " ".join(f"--conf {key}={value}" for key, value in config.target.spark_properties().items())
    home = Path(pyspark.__file__).parent
    java = java_home()
    environment = f"SPARK_HOME={home}" + ("" if java is None else f" JAVA_HOME={java}")
    spark_sql = f"env {environment} {home}/bin/spark-sql --packages {','.join(JARS[config.target.format])} {settings}"
    return (
        f'{sys.executable} -c "{opened}; print(scan.to_arrow().num_rows)"',
        f'{spark_sql} -e "SELECT COUNT(*) FROM {CATALOG}.{name}"',
        f"{sys.executable} -c \"{opened}; print(scan.to_duckdb('t').sql('SELECT COUNT(*) FROM t'))\"",
    )
