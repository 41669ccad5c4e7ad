"""Commands that query the tables of a pipeline."""

import sys
from pathlib import Path

import pyspark

from lakeingest.config import FORMATS, Config
from lakeingest.config.formats import spark_properties
from lakeingest.core.schema import TableId
from lakeingest.spark.session import java_home


def queries(config: Config, table: TableId) -> dict[str, str]:
    """Commands that count the rows of a table, by the name of the tool that they use."""
    samples = FORMATS[config.target.format].sample_queries(config.target, table)
    return {
        tool: _spark_sql(config, query) if tool == "Spark" else f'{sys.executable} -c "{query}"'
        for tool, query in samples.items()
    }


def _spark_sql(config: Config, sql: str) -> str:
    settings = " ".join(f"--conf {key}={value}" for key, value in spark_properties(config.target).items())
    home = Path(pyspark.__file__).parent
    java = java_home()
    environment = f"SPARK_HOME={home}" + ("" if java is None else f" JAVA_HOME={java}")
    packages = ",".join(FORMATS[config.target.format].jars(config.target))
    return f'env {environment} {home}/bin/spark-sql --packages {packages} {settings} -e "{sql}"'
