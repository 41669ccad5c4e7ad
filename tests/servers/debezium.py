"""Debezium's and Kafka Connect's own readers of events: their classes are fetched from Maven Central, once.

Of Debezium, 3.4 is the last version whose core is one jar with both its transformation and its deserialiser. The other
classes that they need come with PySpark.
"""

import json
import shutil
import subprocess
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark

from lakeingest.spark.session import java_home
from tests.servers import pinned

DEBEZIUM, KAFKA = "3.4.3.Final", "4.1.1"
JACKSON = "2.15.2"  # the version of the Jackson that PySpark 3.5 has
JARS = (
    ("com.fasterxml.jackson.module", "jackson-module-blackbird", JACKSON),
    ("io.debezium", "debezium-api", DEBEZIUM),
    ("io.debezium", "debezium-common", DEBEZIUM),
    ("io.debezium", "debezium-core", DEBEZIUM),
    ("org.apache.kafka", "connect-api", KAFKA),
    ("org.apache.kafka", "connect-json", KAFKA),
    ("org.apache.kafka", "connect-transforms", KAFKA),
    ("org.apache.kafka", "kafka-clients", KAFKA),
)
_FROM_SPARK = ("jackson-*-2.*.jar", "slf4j-api-*.jar")
_PROGRAM = Path(__file__).parent / "DebeziumReader.java"


def can_compile() -> bool:
    """Whether the Java of this machine can start a program from its source."""
    home = java_home()
    return shutil.which("javac") is not None if home is None else (home / "bin" / "javac").exists()


def read_by_debezium(lines: Iterable[str]) -> list[dict[str, Any]]:
    """What Debezium's readers make of lines of debezium-json: a document for each line.

    `is_own`: Debezium's builder of events makes the same schema. `schema` is the name of the line's schema, `envelope`
    the event as Kafka Connect reads it, `flat` the row that `ExtractNewRecordState` takes out of it, and `serde` what
    Debezium's deserialiser gives for `after`.
    """
    home = java_home()
    java = "java" if home is None else str(home / "bin" / "java")
    spark = Path(pyspark.__path__[0]) / "jars"
    path = [*pinned.jars("debezium", JARS), *(jar for pattern in _FROM_SPARK for jar in spark.glob(pattern))]
    done = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-Xmx400m", "-cp", ":".join(map(str, path)), str(_PROGRAM)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line, parse_float=Decimal) for line in done.stdout.split("\n") if line]
