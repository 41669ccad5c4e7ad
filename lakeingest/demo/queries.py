"""Commands that query the tables of a pipeline."""

import sys
from importlib.util import find_spec
from pathlib import Path

from lakeingest.config import FORMATS, Config
from lakeingest.config.formats import spark_properties
from lakeingest.core.tables.schema import TableId
from lakeingest.spark.session import java_home


def queries(config: Config, table: TableId) -> dict[str, str]:
    """Commands that count the rows of a table, by tool. The tool Spark is left out if PySpark is not installed."""
    samples = FORMATS[config.target.format].sample_queries(config.target, table)
    pyspark = find_spec("pyspark")
    commands = {}
    for tool, query in samples.items():
        if tool != "Spark":
            commands[tool] = f'{sys.executable} -c "{query}"'
        elif pyspark is not None and pyspark.origin is not None:
            commands[tool] = _spark_sql(config, query, Path(pyspark.origin).parent)
    return commands


def _spark_sql(config: Config, sql: str, home: Path) -> str:
    """The command that asks a question by the program `spark-sql`. `home`: the folder of the package pyspark."""
    settings = " ".join(f"--conf {key}={value}" for key, value in spark_properties(config.target).items())
    java = java_home()
    environment = f"SPARK_HOME={home}" + ("" if java is None else f" JAVA_HOME={java}")
    packages = ",".join(FORMATS[config.target.format].jars(config.target))
    return f'env {environment} {home}/bin/spark-sql --packages {packages} {settings} -e "{sql}"'
