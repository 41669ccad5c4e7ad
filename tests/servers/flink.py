"""A small Flink in one process, from Maven Central, which reads and writes tables of the lake by Iceberg's connector.

What the connector needs of Hadoop comes with PySpark. The jars are 170 MB, fetched once into the cache folder.
"""

import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pyspark

from lakeingest.spark.session import java_home
from tests.servers import pinned

FLINK, ICEBERG = "1.20.3", "1.10.1"
_JARS = tuple(
    ("org.apache.flink", name, FLINK)
    for name in (
        "flink-clients",
        "flink-connector-base",
        "flink-connector-files",
        "flink-table-api-java-bridge",
        "flink-table-planner-loader",
        "flink-table-runtime",
    )
)
_CONNECTOR = (("org.apache.iceberg", "iceberg-flink-runtime-1.20", ICEBERG), ("org.xerial", "sqlite-jdbc", "3.50.3.0"))
_FROM_SPARK = ("hadoop-client-*.jar", "commons-logging-*.jar")
_OPENED = (
    "java.lang",
    "java.util",
    "java.util.concurrent",
    "java.net",
    "java.io",
    "java.nio",
    "java.time",
    "java.text",
)
_PROGRAM = Path(__file__).parent / "FlinkReader.java"
_SECONDS = 300.0  # until rows come that were published, with the start of Flink
_ESCAPED = {"\\\\": "\\", "\\t": "\t", "\\n": "\n"}

Row = list[str | None]  # its kind, such as `+I`, and the texts of its columns


def with_catalog(properties: Mapping[str, str]) -> str:
    """The statement that makes the catalog `lake` with these properties."""
    given = ", ".join(f"'{name}' = '{value}'" for name, value in {"type": "iceberg", **properties}.items())
    return f"CREATE CATALOG lake WITH ({given})"


class Rows:
    """The rows of a query, as they come."""

    def __init__(self, lines: Iterable[str], log: Path) -> None:
        self._come: Queue[Row | None] = Queue()  # None is behind the last one
        self._log = log
        self._listener = Thread(target=self._listen, args=(lines,))
        self._listener.start()

    def end(self) -> None:
        """Wait until no lines come any more, since the process has ended."""
        self._listener.join()

    @property
    def have_ended(self) -> bool:
        """Whether the process has ended."""
        return not self._listener.is_alive()

    def take(self, count: int) -> list[Row]:
        """The next rows; AssertionError with what Flink said if they do not come."""
        deadline, found = time.monotonic() + _SECONDS, list[Row]()
        while len(found) < count:
            try:
                row = self._come.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                row = None
            assert row is not None, f"{len(found)} of {count} rows have come:\n{self._log.read_text()[-4000:]}"
            found.append(row)
        return found

    def _listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._come.put(_row(line))
        self._come.put(None)


@contextmanager
def streamed(statements: Sequence[str], log: Path, more: Sequence[Path] = ()) -> Iterator[Rows]:
    """The rows of the last statement, a query or an INSERT, which has none; the statements before it are run first.

    What an INSERT writes is committed each second; if it fails, the rows end. `more`: jars and folders of classes of
    other connectors. It needs a Java with a compiler, and ends after the block. Raises OperatorNeeded if the jars
    cannot be fetched.
    """
    home = java_home()
    java = "java" if home is None else str(home / "bin" / "java")
    spark = Path(pyspark.__path__[0]) / "jars"
    path = [*pinned.jars("flink", _JARS, with_needed=True), *pinned.jars("flink-iceberg", _CONNECTOR)]
    path += [*more, *(jar for pattern in _FROM_SPARK for jar in spark.glob(pattern))]
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    command = [java, "-XX:TieredStopAtLevel=1", "-Xmx700m", *opened, "-cp", ":".join(map(str, path)), str(_PROGRAM)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, *statements], stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        )
    assert process.stdout is not None
    rows = Rows(process.stdout, log)
    try:
        yield rows
    finally:
        process.kill()
        rows.end()
        process.communicate()


def _row(line: str) -> Row:
    return [None if text == "\\N" else re.sub(r"\\.", _unescaped, text) for text in line.rstrip("\n").split("\t")]


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED[found[0]]
