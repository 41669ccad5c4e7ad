"""A small Flink in one process, from Maven Central, which reads tables of the lake as streams by Iceberg's connector.

What the connector needs of Hadoop comes with PySpark. The jars are 170 MB, fetched once into the cache folder.
"""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from lakeingest.spark.session import java_home
from tests.servers import pinned

_FLINK, _ICEBERG = "1.20.3", "1.10.1"
_JARS = tuple(
    ("org.apache.flink", name, _FLINK)
    for name in (
        "flink-clients",
        "flink-connector-base",
        "flink-table-api-java-bridge",
        "flink-table-planner-loader",
        "flink-table-runtime",
    )
)
_CONNECTOR = (("org.apache.iceberg", "iceberg-flink-runtime-1.20", _ICEBERG), ("org.xerial", "sqlite-jdbc", "3.50.3.0"))
_FROM_SPARK = ("hadoop-client-*.jar", "commons-logging-*.jar")
_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.time", "java.text")
_PROGRAM = Path(__file__).parent / "FlinkReader.java"


@contextmanager
def streamed(catalog: Mapping[str, str], query: str, log: Path) -> Iterator[Iterator[list[str]]]:
    """The rows of a query of a table in the catalog `lake`, as they come: their kinds, and the texts of their columns.

    `catalog` has the properties of the catalog. The rows end when the process does, which is killed after the block.
    """
    home = java_home()
    java = "java" if home is None else str(home / "bin" / "java")
    spark = Path(pyspark.__path__[0]) / "jars"
    path = [*pinned.jars("flink", _JARS, with_needed=True), *pinned.jars("flink-iceberg", _CONNECTOR)]
    path += [jar for pattern in _FROM_SPARK for jar in spark.glob(pattern)]
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in {"type": "iceberg", **catalog}.items())
    command = [java, "-XX:TieredStopAtLevel=1", "-Xmx700m", *opened, "-cp", ":".join(map(str, path)), str(_PROGRAM)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, f"CREATE CATALOG lake WITH ({properties})", query],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
    try:
        assert process.stdout is not None
        yield (line.rstrip("\n").split("\t") for line in process.stdout)
    finally:
        process.kill()
        process.communicate()
