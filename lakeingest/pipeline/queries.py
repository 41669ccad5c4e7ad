"""How to query what a pipeline has written."""

import sys
from pathlib import Path

import pyspark

from lakeingest.config import CATALOG, Config
from lakeingest.core.schema import TableId
from lakeingest.spark.session import JARS, java_home


def queries(config: Config, table: TableId) -> dict[str, str]:
    """A command that counts the table's rows, for each tool by its name."""
    if config.target.format == "hudi":
        view = f"CREATE TEMPORARY VIEW t USING hudi OPTIONS (path '{config.target.name(table)}')"
        return {"Spark": _spark_sql(config, f"{view}; SELECT COUNT(*) FROM t")}
    name = ".".join(config.target.identifier(table))
    arguments = ", ".join(f"{key}='{value}'" for key, value in config.target.pyiceberg_properties().items())
    opened = (
        "from pyiceberg.catalog.sql import SqlCatalog; "
        f"scan = SqlCatalog('{CATALOG}', {arguments}).load_table('{name}').scan()"
    )
    return {
        "PyIceberg": f'{sys.executable} -c "{opened}; print(scan.to_arrow().num_rows)"',
        "Spark": _spark_sql(config, f"SELECT COUNT(*) FROM {config.target.name(table)}"),
        "DuckDB": f"{sys.executable} -c \"{opened}; print(scan.to_duckdb('t').sql('SELECT COUNT(*) FROM t'))\"",
    }


def _spark_sql(config: Config, sql: str) -> str:
    settings = " ".join(f"--conf {key}={value}" for key, value in config.target.spark_properties().items())
    home = Path(pyspark.__file__).parent
    java = java_home()
    environment = f"SPARK_HOME={home}" + ("" if java is None else f" JAVA_HOME={java}")
    packages = ",".join(JARS[config.target.format])
    return f'env {environment} {home}/bin/spark-sql --packages {packages} {settings} -e "{sql}"'
