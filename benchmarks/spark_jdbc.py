"""Spark's own JDBC reader into Iceberg, as one writes it by hand: `python -m benchmarks.spark_jdbc` copies once.

Arguments: HOST PORT USER DATABASE TABLE FOLDER. It prints a JSON line when Spark is up.
"""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from lakeingest.config import FORMATS

_CONNECTOR = "com.mysql:mysql-connector-j:8.4.0"
_PARTITIONS = 8
_FETCH_ROWS = 10_000


def session(warehouse: Path, *jars: str) -> SparkSession:
    """A session with a Hadoop catalog, and with the jars that lakeingest has."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.master": "local[*]",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars.packages": ",".join([FORMATS["iceberg"].jar, *jars]),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.warehouse.dir": (warehouse / "spark-warehouse").as_uri(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse.as_uri(),
    }
    builder = SparkSession.builder.appName("benchmarks")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    host, port, user, database, table, folder = sys.argv[1:]
    spark = session(Path(folder).absolute() / "warehouse", _CONNECTOR)
    print(json.dumps({"event": "ready", "at": time.time()}), flush=True)
    url = f"jdbc:mysql://{host}:{port}/{database}?useSSL=false&connectionTimeZone=UTC&useCursorFetch=true"
    options = {"user": user, "driver": "com.mysql.cj.jdbc.Driver", "fetchsize": str(_FETCH_ROWS)}
    bounds = f"(SELECT CAST(MIN(id) AS SIGNED) low, CAST(MAX(id) AS SIGNED) high FROM {table}) bounds"
    [(low, high)] = spark.read.jdbc(url, bounds, properties=options).collect()
    rows = spark.read.jdbc(url, table, "id", low, high + 1, _PARTITIONS, properties=options)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{database}")
    rows.writeTo(f"lake.{database}.{table}").using("iceberg").tableProperty("format-version", "2").create()
    spark.stop()


if __name__ == "__main__":
    main()
